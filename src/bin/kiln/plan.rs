//! `kiln plan`: plans as files.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kiln::engine::EngineConfig;
use kiln::plan::ExecutionPlan;
use kiln::{Error, ErrorKind};
use serde_json::json;

use crate::DeviceArgs;
use crate::problem::{self, shown};
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln plan save mlp.json -o mlp.plan.json --device sim:h200
  kiln plan load mlp.plan.json --device sim:h200
  kiln run mlp.plan.json --random 1 --check --device sim:h200";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plan a problem and write down its parts, engines and knobs
    Save(SaveArgs),
    /// Build a saved plan, without asking any heuristic, and show it
    Load(LoadArgs),
}

#[derive(Args)]
struct SaveArgs {
    /// The problem file (JSON)
    problem: PathBuf,
    /// The plan file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// An engine with knobs for the whole problem, as `kiln engines` prints it
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Args)]
struct LoadArgs {
    /// The plan file (JSON)
    plan: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn plan(args: &PlanArgs) -> kiln::Result<ExitCode> {
    match &args.command {
        Command::Save(args) => save(args),
        Command::Load(args) => load(args),
    }
}

fn save(args: &SaveArgs) -> kiln::Result<ExitCode> {
    let text = problem::read(&args.problem)?;
    let problem = problem::read_problem(&args.problem)?;
    let graph = problem.only_graph()?;
    let kiln = args.device.open()?;
    let plan = match &args.config {
        Some(config) => kiln.plan_with(graph, config)?,
        None => kiln.plan(graph)?,
    };
    let path = &args.output;
    fs::write(path, plan.to_json_of(&text)? + "\n").map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::Driver, format!("failed to write plan `{shown}`: {error}"))
    })?;
    say!(
        "wrote   {}: {} parts, {} kernels",
        path.display(),
        plan.parts().len(),
        plan.kernels().len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether a document is a plan, not a problem.
pub fn is_plan(text: &str) -> bool {
    let document = serde_json::from_str::<serde_json::Value>(text);
    document.is_ok_and(|document| document.get("kiln_plan").is_some())
}

fn load(args: &LoadArgs) -> kiln::Result<ExitCode> {
    let kiln = args.device.open()?;
    let plan = kiln.plan_from_json(&problem::read(&args.plan)?)?;
    match args.json {
        true => {
            let kernel = |kernel: &kiln::plan::PlannedKernel| {
                let report = kernel.report();
                json!({
                    "config": kernel.config().to_string(),
                    "kernel": report.stem,
                    "origin": report.origin.to_string(),
                })
            };
            let kernels: Vec<_> = plan.kernels().iter().map(kernel).collect();
            let (device, bytes) = (kiln.device().target().to_string(), plan.workspace_bytes());
            say_json(&json!({"device": device, "workspace_bytes": bytes, "kernels": kernels}));
        }
        false => {
            say!("device  {}", kiln.device().target());
            print(&plan);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Parts and kernels of a plan, and its workspace.
pub fn print(plan: &ExecutionPlan) {
    for part in plan.parts() {
        say!("plan    {}", part.config);
    }
    for kernel in plan.kernels() {
        let report = kernel.report();
        say!("kernel  {} ({} in {})", report.stem, report.origin, shown(report.obtain));
    }
    if plan.workspace_bytes() > 0 {
        say!("memory  {} bytes of workspace", plan.workspace_bytes());
    }
}
