//! `kiln run`: a problem file on tensors from a file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::engine::EngineConfig;
use kiln::{Config, Error, ErrorKind, plan};
use serde_json::json;

use crate::DeviceArgs;
use crate::problem::{self, Check, shown};

const EXAMPLES: &str = "\
Examples:
  kiln run chain.json --inputs in.safetensors --outputs out.safetensors --check
  kiln run chain.json --random 1 --check --device sim:rtx4090
  kiln run chain.json --random 1 --device sim:h200 --sanitize --counters
  kiln run chain.json --random 1 --config 'pointwise{grid=1, items=2, threads=256, vector=8}'

The problem format is described in docs/problem-format.md.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// The problem file (JSON)
    problem: PathBuf,
    /// Read the inputs from this safetensors file, by name
    #[arg(long, value_name = "FILE", required_unless_present = "random")]
    inputs: Option<PathBuf>,
    /// Make the inputs up instead, reproducibly from this seed
    #[arg(long, value_name = "SEED", conflicts_with = "inputs")]
    random: Option<u64>,
    /// Write the outputs to this safetensors file
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Compare the outputs with the f64 reference
    #[arg(long)]
    check: bool,
    /// Use this engine and these knobs instead of the heuristic's
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    /// On the simulator: fail on races, reads of what nobody wrote, divided barriers
    #[arg(long)]
    sanitize: bool,
    /// On the simulator: count instructions and memory traffic
    #[arg(long)]
    counters: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &RunArgs) -> kiln::Result<ExitCode> {
    let graph = problem::read_graph(&args.problem)?;
    let inputs = match (&args.inputs, args.random) {
        (Some(path), _) => problem::read_inputs(path, &graph)?,
        (None, Some(seed)) => plan::random_values(&graph, seed)?,
        (None, None) => {
            return Err(Error::with(ErrorKind::BadParam, "neither --inputs nor --random is given"));
        }
    };
    let kiln = args.device.open_with(Config {
        sanitize: args.sanitize.then_some(true),
        count: args.counters,
        ..Config::default()
    })?;
    if args.check && kiln.device().kind() == "null" {
        return Err(Error::with(ErrorKind::BadParam, "--check: the null device computes nothing"));
    }
    let plan = match &args.config {
        Some(config) => kiln.plan_with(&graph, config)?,
        None => kiln.plan(&graph)?,
    };
    let ran = kiln.trial(&plan, &inputs)?;
    if let Some(path) = &args.outputs {
        problem::write_outputs(path, &graph, &ran.outputs)?;
    }
    let checks = match args.check {
        true => problem::check(&graph, &inputs, &ran)?,
        false => Vec::new(),
    };
    let report = plan.report();
    if args.json {
        let document = json!({
            "device": kiln.device().target().to_string(),
            "config": plan.config().to_string(),
            "kernel": report.stem,
            "key": report.key.to_hex(),
            "origin": report.origin.to_string(),
            "obtain_ms": report.obtain.as_secs_f64() * 1e3,
            "run_ms": ran.elapsed.as_secs_f64() * 1e3,
            "registers": report.resources.registers,
            "spill_bytes": report.resources.spill_bytes,
            "metrics": kiln.metrics(),
            "counters": kiln.device().report(),
            "checks": checks.iter().map(check_json).collect::<Vec<_>>(),
        });
        say!("{document:#}");
    } else {
        say!("device  {}", kiln.device().target());
        say!("plan    {}", plan.config());
        say!("kernel  {} ({} in {})", report.stem, report.origin, shown(report.obtain));
        say!("ran in  {}", shown(ran.elapsed));
        for check in &checks {
            say!("check   {}", check_text(check));
        }
        if let Some(counters) = kiln.device().report() {
            say!("{}", counters.trim_end());
        }
        if let Some(path) = &args.outputs {
            say!("wrote   {}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(!checks.iter().all(Check::passed))))
}

/// `y: 786432 elements ok, worst error 0.52 of its bound`.
pub fn check_text(check: &Check) -> String {
    let Check { name, elements, ratio, worst } = check;
    match (check.passed(), worst) {
        (true, None) => format!("{name}: {elements} elements ok, all exact"),
        (true, Some(_)) => {
            format!("{name}: {elements} elements ok, worst error {ratio:.2} of its bound")
        }
        (false, worst) => {
            let detail = worst.map_or(String::new(), |worst| {
                let (at, is, wanted) = (worst.index, worst.actual, worst.expected);
                format!(": element {at} is {is}, expected {wanted} within {:e}", worst.bound)
            });
            format!("{name}: FAILED, worst error {ratio:.2} of its bound{detail}")
        }
    }
}

/// The same for programs.
pub fn check_json(check: &Check) -> serde_json::Value {
    json!({
        "tensor": check.name,
        "elements": check.elements,
        "passed": check.passed(),
        "worst_error_over_bound": check.ratio,
    })
}
