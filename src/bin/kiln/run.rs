//! `kiln run`: runs a problem file on tensors from a file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use kiln::device::{Counters, Estimate};
use kiln::engine::{EngineConfig, Machine};
use kiln::plan::{ExecutionPlan, OverrideUse, PlannedKernel, Problem};
use kiln::{Error, ErrorKind};
use serde_json::json;

use crate::counts;
use crate::looped::{self, Wanted};
use crate::options::{DeviceArgs, WatchArgs};
use crate::plan;
use crate::problem::{self, Check, InputArgs, check_json, check_text, shown};
use crate::progress;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln run chain.json --check
  kiln run chain.json --inputs in.safetensors --outputs out.safetensors --check
  kiln run chain.json --random 1 --check --device sim:rtx4090
  kiln run chain.json --random 1 --device sim:h200 --sanitize --counters
  kiln run chain.json --random 1 --config 'pointwise{grid=1, items=2, threads=256, vector=8}'

The problem format is described in docs/problem-format.md.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// Problem file, or a plan saved by `kiln plan save` (JSON)
    problem: PathBuf,
    #[command(flatten)]
    inputs: InputArgs,
    /// Write the outputs to this safetensors file
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Check the outputs against the f64 reference
    #[arg(long)]
    check: bool,
    /// Engine and knobs, overriding the heuristic
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    #[command(flatten)]
    watch: WatchArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn run(args: &RunArgs) -> kiln::Result<ExitCode> {
    let bad = |text: &str| Err(Error::with(ErrorKind::BadParam, text));
    let text = problem::read(&args.problem)?;
    let saved = plan::is_plan(&text, args.config.as_ref())?;
    let path = &args.problem;
    let looped = looped::is_looped(&text);
    if looped && args.config.is_some() {
        return bad("--config requires a graph: a network with loops is many");
    }
    let problem = match saved || looped {
        true => None,
        false => Some(problem::in_file(path, Problem::from_json(&text))?),
    };
    let kiln = args.device.open_with(args.watch.config())?;
    if args.check && kiln.device().kind() == "null" {
        return bad("--check: the null device computes nothing");
    }
    if looped {
        let outputs = args.outputs.as_deref();
        let wanted = Wanted { outputs, check: args.check, json: args.json };
        return looped::run(&kiln, path, &text, &args.inputs, &wanted);
    }
    progress::doing(format!("planning {}", path.display()));
    let plans = match (&problem, &args.config) {
        (None, _) => vec![problem::in_file(path, kiln.plan_from_json(&text))?],
        (Some(problem), Some(config)) => vec![kiln.plan_with(problem.only_graph()?, config)?],
        (Some(problem), None) => {
            problem.graphs().into_iter().map(|graph| kiln.plan(graph)).collect::<Result<_, _>>()?
        }
    };
    let problem = match problem {
        Some(problem) => problem,
        None => Problem::of_plan(&text)?,
    };
    let mut values = args.inputs.values_or_random(&problem)?;
    let machine = kiln::engine::machine_of(kiln.device().target());
    let (mut checks, mut kernels, mut elapsed) = (Vec::new(), Vec::new(), Duration::ZERO);
    for (number, plan) in plans.iter().enumerate() {
        let inputs = problem.inputs(number, &values);
        progress::doing(format!("running {}", path.display()));
        let ran = kiln.trial(plan, &inputs)?;
        if args.check {
            checks.extend(problem::check(plan.graph(), &inputs, &ran)?);
        }
        problem.store(number, &ran.outputs, &mut values);
        elapsed += ran.elapsed;
        let counted = std::iter::zip(plan.kernels(), ran.counters);
        kernels.extend(counted.map(|(kernel, of)| Launched::of(kernel, of, &machine)));
    }
    if let Some(path) = &args.outputs {
        problem.write_values(path, &values)?;
    }
    if args.json {
        let parts = plans.iter().flat_map(ExecutionPlan::parts);
        let parts: Vec<String> = parts.map(|of| of.config.to_string()).collect();
        let document = json!({
            "device": kiln.device().target().to_string(),
            "inputs": args.inputs.text(),
            "parts": parts,
            "kernels": kernels.iter().map(Launched::json).collect::<Vec<_>>(),
            "workspace_bytes": plans.iter().map(ExecutionPlan::workspace_bytes).max(),
            "overrides": kiln.overrides().iter().map(override_json).collect::<Vec<_>>(),
            "run_ms": elapsed.as_secs_f64() * 1e3,
            "metrics": kiln.metrics(),
            "checks": checks.iter().map(check_json).collect::<Vec<_>>(),
        });
        say_json(&document);
    } else {
        say!("device  {}", kiln.device().target());
        plans.iter().for_each(plan::print);
        say!("inputs  {}", args.inputs.text());
        say!("ran in  {}", shown(elapsed));
        for check in &checks {
            say!("check   {}", check_text(check));
        }
        for launched in &kernels {
            launched.print_counts(kernels.len() > 1);
        }
        if let Some(path) = &args.outputs {
            say!("wrote   {}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(!checks.iter().all(Check::passed))))
}

/// A kernel of the plan with the counters of its launch.
struct Launched<'a> {
    kernel: &'a PlannedKernel,
    counted: Option<(Counters, Estimate)>,
}

impl Launched<'_> {
    fn of<'a>(
        kernel: &'a PlannedKernel,
        counters: Option<Counters>,
        machine: &Machine,
    ) -> Launched<'a> {
        let counted = counters.map(|mut counters| {
            counters.bytes_min = Some(kernel.part().graph.bytes_min());
            let (launch, resources) = (kernel.launch(), kernel.report().resources);
            let estimate = kiln::plan::estimate(&counters, machine, launch, resources);
            (counters, estimate)
        });
        Launched { kernel, counted }
    }

    fn json(&self) -> serde_json::Value {
        let (report, counted) = (self.kernel.report(), self.counted.as_ref());
        json!({
            "config": self.kernel.config().to_string(),
            "kernel": report.stem,
            "key": report.key.to_hex(),
            "origin": report.origin.to_string(),
            "obtain_ms": report.obtain.as_secs_f64() * 1e3,
            "registers": report.resources.registers,
            "spill_bytes": report.resources.spill_bytes,
            "counters": counted.map(|(counters, _)| counts::json(counters)),
            "estimate": counted.map(|(_, estimate)| counts::estimate_json(estimate)),
        })
    }

    fn print_counts(&self, named: bool) {
        if let Some((counters, estimate)) = &self.counted {
            if named {
                say!("\n{}", self.kernel.report().stem);
            }
            say!("{counters}{}", estimate.to_string().trim_end());
        }
    }
}

fn override_json(of: &OverrideUse) -> serde_json::Value {
    json!({"path": of.path, "kernels": of.kernels})
}
