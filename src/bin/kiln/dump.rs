//! `kiln dump`: writes kernels of problems with all their artifacts to folders, or to an HTML page.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kiln::engine::{EngineConfig, Machine};
use kiln::plan::{ExecutionPlan, Problem, Values};
use kiln::{Config, Error, ErrorKind, Kiln, reference};
use rustix::fs::OFlags;
use serde_json::json;
use tracing::info_span;

use crate::options::{DeviceArgs, machine};
use crate::page::{KernelSection, Page, Ran, Recorder};
use crate::problem::{self, InputArgs};
use crate::progress;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln dump chain.json -o dumps
  kiln dump chain.json -o dumps --tensors --random 1 --device sim:h200
  kiln dump chain.json mask.json --html run.html --device sim:h200
  kiln dump chain.json -o dumps --config 'pointwise{grid=1, items=2, threads=256, vector=8}'
  KILN_DUMP=dumps KILN_DUMP_FILTER=bf16 KILN_DUMP_TENSORS=1 kiln demo

Contents of the folders and of the page, and how to replay a dump:
docs/dump-and-replay.md.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    /// Problem files (JSON)
    #[arg(required = true)]
    problems: Vec<PathBuf>,
    /// Output folder, with one subfolder per kernel
    #[arg(short, long, value_name = "DIR", required_unless_present = "html")]
    output: Option<PathBuf>,
    /// Write a self-contained HTML page about all kernels; each is launched, with counters on the
    /// simulated device
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// GPU for time estimates instead of the device: A100, H100, H200, L40S, ...
    #[arg(long, value_name = "NAME", value_parser = machine, requires = "html")]
    machine: Option<Machine>,
    /// Engine and knobs, overriding the heuristic
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    /// Launch each kernel and dump its tensors; inputs are random unless given
    #[arg(long, requires = "output")]
    tensors: bool,
    #[command(flatten)]
    inputs: InputArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

impl DumpArgs {
    /// Whether tracing events must be recorded for the page's timeline.
    pub fn records(&self) -> bool {
        self.html.is_some()
    }

    fn launches(&self) -> bool {
        self.tensors || self.html.is_some()
    }
}

/// A problem with its plan and, if it is launched, its inputs.
struct Dumped<'a> {
    problem: &'a Path,
    plan: ExecutionPlan,
    inputs: Option<Values>,
}

pub fn dump(args: &DumpArgs, recorder: &Recorder) -> kiln::Result<ExitCode> {
    let bad = |text: &str| Err(Error::with(ErrorKind::BadParam, text));
    if args.inputs.are_given() && !args.launches() {
        return bad("--inputs and --random require --tensors or --html");
    }
    if args.inputs.file().is_some() && args.problems.len() > 1 {
        return bad("--inputs requires a single problem");
    }
    let problems: Vec<Problem> = args
        .problems
        .iter()
        .map(|path| problem::read_problem(path))
        .collect::<kiln::Result<_>>()?;
    let kiln = args.device.open_with(Config {
        dump: args.output.clone().filter(|_| args.tensors),
        dump_filter: Some(String::new()),
        dump_tensors: Some(args.tensors),
        count: args.html.is_some(),
        ..Config::default()
    })?;
    let mut dumped = Vec::new();
    for (path, problem) in args.problems.iter().zip(&problems) {
        let _span = info_span!("plan", problem = %path.display()).entered();
        progress::doing(format!("planning {}", path.display()));
        let mut values = match (args.launches(), args.inputs.values(problem)?) {
            (false, _) => None,
            (true, Some(values)) => Some(values),
            (true, None) => Some(problem.random_values(1)?),
        };
        let plans = match &args.config {
            Some(config) => vec![kiln.plan_with(problem.only_graph()?, config)?],
            None => {
                let graphs = problem.graphs().into_iter();
                graphs.map(|graph| kiln.plan(graph)).collect::<kiln::Result<_>>()?
            }
        };
        let count = plans.len();
        for (number, plan) in plans.into_iter().enumerate() {
            let inputs = values.as_ref().map(|values| problem.inputs(number, values));
            // Subsequent graphs need the results of this one.
            if let (Some(values), Some(inputs)) = (&mut values, &inputs)
                && number + 1 < count
            {
                progress::doing(format!("computing the reference of {}", path.display()));
                let given = reference::evaluate(plan.graph(), inputs)?;
                let given = given.into_iter().map(|(uid, expected)| (uid, expected.values));
                problem.store(number, &given.collect(), values);
            }
            dumped.push(Dumped { problem: path, plan, inputs });
        }
    }
    let folders = folders(args, &dumped)?;
    if let Some(path) = &args.html {
        write_page(path, args, &kiln, &dumped, recorder)?;
    } else {
        for Dumped { problem, plan, inputs } in &dumped {
            progress::doing(format!("running {}", problem.display()));
            inputs.as_ref().map(|inputs| kiln.trial(plan, inputs)).transpose()?;
        }
    }
    match args.json {
        true => {
            let kernels = dumped.iter().flat_map(|dumped| dumped.plan.kernels());
            let keys: Vec<String> = kernels.map(|of| of.report().key.to_hex()).collect();
            say_json(&json!({"folders": folders, "keys": keys, "html": args.html}));
        }
        false => {
            for path in folders.iter().chain(&args.html) {
                say!("{}", path.display());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Folders of the kernels, which are written now unless that happened during planning.
fn folders(args: &DumpArgs, dumped: &[Dumped<'_>]) -> kiln::Result<Vec<PathBuf>> {
    let Some(output) = &args.output else { return Ok(Vec::new()) };
    let folders = |dumped: &Dumped<'_>| match args.tensors {
        true => {
            let kernels = dumped.plan.kernels().iter();
            Ok(kernels.map(|kernel| output.join(kernel.identifier())).collect())
        }
        false => dumped.plan.dump(output),
    };
    let folders = dumped.iter().map(folders).collect::<kiln::Result<Vec<_>>>()?;
    Ok(folders.concat())
}

fn write_page(
    path: &Path,
    args: &DumpArgs,
    kiln: &Kiln,
    dumped: &[Dumped<'_>],
    recorder: &Recorder,
) -> kiln::Result<()> {
    let target = kiln.device().target();
    let machine = args.machine.clone().unwrap_or_else(|| kiln::engine::machine_of(target));
    let mut launched = Vec::new();
    for Dumped { problem, plan, inputs } in dumped {
        let inputs = inputs.as_ref().expect("a page launches every kernel");
        let _span = info_span!("launch", problem = %problem.display()).entered();
        progress::doing(format!("running {}", problem.display()));
        let trial = kiln.trial(plan, inputs)?;
        launched.push((*problem, plan, inputs, trial));
    }
    // The recorded run ends here: candidates are tried without recording or dumping.
    let steps = recorder.steps();
    let trying = args.device.open_with(Config { count: true, ..Config::default() })?;
    let mut kernels = Vec::new();
    for (problem, plan, inputs, trial) in &launched {
        for (kernel, counters) in plan.kernels().iter().zip(&trial.counters) {
            let counters = counters.as_ref();
            let ran = Ran { problem, plan, kernel, inputs, trial, counters };
            kernels.push(KernelSection::of(&trying, &machine, &ran, kernels.len())?);
        }
    }
    let page = Page {
        device: target.to_string(),
        kind: kiln.device().kind(),
        machine: machine.name,
        toolchain: kiln.toolchain().map_or_else(|_| "no NVRTC".to_owned(), |of| of.to_string()),
        version: env!("CARGO_PKG_VERSION"),
        kernels,
        total_ms: steps.iter().map(|step| step.start_ms + step.ms).fold(0.0, f64::max),
        steps,
    };
    let html = page.html()?;
    // As files of a dump: a link that someone else may have put there is not followed.
    let mut options = File::options();
    options.write(true).create(true).truncate(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options.open(path).and_then(|mut file| file.write_all(html.as_bytes())).map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::Io, format!("failed to write page `{shown}`: {error}"))
    })
}
