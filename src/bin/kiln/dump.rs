//! `kiln dump`: everything about a problem's kernel in one folder.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::engine::EngineConfig;
use kiln::{Config, Error, ErrorKind, plan};
use serde_json::json;

use crate::DeviceArgs;
use crate::problem::{self, InputArgs};

const EXAMPLES: &str = "\
Examples:
  kiln dump chain.json -o dumps
  kiln dump chain.json -o dumps --tensors --random 1 --device sim:h200
  kiln dump chain.json -o dumps --config 'pointwise{grid=1, items=2, threads=256, vector=8}'
  KILN_DUMP=dumps KILN_DUMP_FILTER=bf16 KILN_DUMP_TENSORS=1 kiln demo

What the folder holds, and how `kiln replay` runs it again: docs/dump-and-replay.md.";

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
    /// Launch the kernel once, and dump its tensors: inputs are made up where none are given
    #[arg(long)]
    tensors: bool,
    #[command(flatten)]
    inputs: InputArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn dump(args: &DumpArgs) -> kiln::Result<ExitCode> {
    let graph = problem::read_graph(&args.problem)?;
    let given = args.inputs.values(&graph)?;
    if given.is_some() && !args.tensors {
        return Err(Error::with(ErrorKind::BadParam, "--inputs and --random go with --tensors"));
    }
    let kiln = args.device.open_with(Config {
        dump: args.tensors.then(|| args.output.clone()),
        dump_filter: Some(String::new()),
        dump_tensors: Some(args.tensors),
        ..Config::default()
    })?;
    let plan = match &args.config {
        Some(config) => kiln.plan_with(&graph, config)?,
        None => kiln.plan(&graph)?,
    };
    let folder = match args.tensors {
        true => args.output.join(plan.identifier()),
        false => plan.dump(&args.output)?,
    };
    if args.tensors {
        let inputs = given.map_or_else(|| plan::random_values(&graph, 1), Ok)?;
        kiln.trial(&plan, &inputs)?;
    }
    match args.json {
        true => say!("{:#}", json!({"folder": folder, "key": plan.report().key.to_hex()})),
        false => say!("{}", folder.display()),
    }
    Ok(ExitCode::SUCCESS)
}
