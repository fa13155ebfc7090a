//! `kiln dump`: everything about a problem's kernel in one folder.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::engine::EngineConfig;
use serde_json::json;

use crate::DeviceArgs;
use crate::problem;

const EXAMPLES: &str = "\
Examples:
  kiln dump chain.json -o dumps
  kiln dump chain.json -o dumps --device sim:h200 --config 'pointwise{grid=1, items=2, ...}'
  KILN_DUMP=dumps KILN_DUMP_FILTER=bf16 kiln demo";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    /// The problem file (JSON)
    problem: PathBuf,
    /// The folder; the kernel gets one of its own in it
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Use this engine and these knobs instead of the heuristic's
    #[arg(long, value_name = "CONFIG")]
    config: Option<EngineConfig>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn dump(args: &DumpArgs) -> kiln::Result<ExitCode> {
    let graph = problem::read_graph(&args.problem)?;
    let kiln = args.device.open()?;
    let plan = match &args.config {
        Some(config) => kiln.plan_with(&graph, config)?,
        None => kiln.plan(&graph)?,
    };
    let folder = plan.dump(&args.output)?;
    match args.json {
        true => say!("{:#}", json!({"folder": folder, "key": plan.report().key.to_hex()})),
        false => say!("{}", folder.display()),
    }
    Ok(ExitCode::SUCCESS)
}
