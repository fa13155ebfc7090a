//! `kiln plan`: saving and loading plans.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kiln::engine::EngineConfig;
use kiln::plan::ExecutionPlan;
use kiln::{Error, ErrorKind, Kiln};
use serde_json::{Value, json};

use crate::options::DeviceArgs;
use crate::problem::{self, shown};
use crate::progress;
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
    /// Plan a problem and save its partition, engines and knobs
    Save(SaveArgs),
    /// Build a saved plan without heuristics, and show it
    Load(LoadArgs),
}

#[derive(Args)]
struct SaveArgs {
    /// Problem file (JSON)
    problem: PathBuf,
    /// Plan file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Engine and knobs for the whole problem, as printed by `kiln engines`
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Args)]
struct LoadArgs {
    /// Plan file (JSON)
    plan: PathBuf,
    /// Print JSON instead of text
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
    progress::doing(format!("planning {}", args.problem.display()));
    let plan = match &args.config {
        Some(config) => kiln.plan_with(graph, config)?,
        None => kiln.plan(graph)?,
    };
    let path = &args.output;
    fs::write(path, plan.to_json_of(&text)? + "\n").map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::Io, format!("failed to write plan `{shown}`: {error}"))
    })?;
    let (parts, kernels) = (plan.parts().len(), plan.kernels().len());
    match args.json {
        true => {
            let mut document = plan_json(&kiln, &plan);
            document["path"] = json!(path);
            say!("{document:#}");
        }
        false => say!("wrote   {}: {parts} parts, {kernels} kernels", path.display()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a document is a plan rather than a problem.
///
/// # Errors
/// A plan beside `config`: it has its own engines and knobs.
pub fn is_plan(text: &str, config: Option<&EngineConfig>) -> kiln::Result<bool> {
    let document = serde_json::from_str::<serde_json::Value>(text);
    let saved = document.is_ok_and(|document| document.get("kiln_plan").is_some());
    match config {
        Some(_) if saved => Err(Error::with(
            ErrorKind::BadParam,
            "--config requires a problem: a plan has its own engines and knobs",
        )),
        _ => Ok(saved),
    }
}

fn load(args: &LoadArgs) -> kiln::Result<ExitCode> {
    let kiln = args.device.open()?;
    progress::doing(format!("building {}", args.plan.display()));
    let text = problem::read(&args.plan)?;
    let plan = problem::in_file(&args.plan, kiln.plan_from_json(&text))?;
    match args.json {
        true => say_json(&plan_json(&kiln, &plan)),
        false => {
            say!("device  {}", kiln.device().target());
            print(&plan);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A built plan as JSON.
fn plan_json(kiln: &Kiln, plan: &ExecutionPlan) -> Value {
    let kernel = |kernel: &kiln::plan::PlannedKernel| {
        let report = kernel.report();
        json!({
            "config": kernel.config().to_string(),
            "kernel": report.stem,
            "origin": report.origin.to_string(),
        })
    };
    let parts: Vec<String> = plan.parts().iter().map(|part| part.config.to_string()).collect();
    json!({
        "device": kiln.device().target().to_string(),
        "parts": parts,
        "workspace_bytes": plan.workspace_bytes(),
        "kernels": plan.kernels().iter().map(kernel).collect::<Vec<_>>(),
    })
}

/// Prints the subgraphs, kernels and workspace of a plan.
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
