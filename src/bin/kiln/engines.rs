//! `kiln engines`: who can run a problem, and how.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::engine::{self, Engine};
use serde_json::json;

use crate::DeviceArgs;
use crate::problem;

const EXAMPLES: &str = "\
Examples:
  kiln engines chain.json
  kiln engines chain.json --device sim:h200 --source";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct EnginesArgs {
    /// The problem file (JSON)
    problem: PathBuf,
    /// Also print the CUDA source of the chosen configuration
    #[arg(long)]
    source: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn engines(args: &EnginesArgs) -> kiln::Result<ExitCode> {
    let graph = problem::read_graph(&args.problem)?;
    let kiln = args.device.open()?;
    let (target, canonical) = (kiln.device().target(), graph.canonical());
    let describe = |engine: &&dyn Engine| match engine.support(canonical, target) {
        Ok(()) => {
            let knobs = engine.knobs(canonical, target);
            let knobs: Vec<_> = knobs
                .iter()
                .map(|knob| json!({"name": knob.name, "about": knob.about, "values": knob.values}))
                .collect();
            json!({
                "engine": engine.name(),
                "supported": true,
                "config": engine.heuristic(canonical, target).to_string(),
                "reasons": engine.reasons(canonical, target),
                "knobs": knobs,
            })
        }
        Err(reason) => json!({
            "engine": engine.name(),
            "supported": false,
            "reason": reason.to_string(),
        }),
    };
    let described: Vec<_> = engine::engines().iter().map(describe).collect();
    let chosen = engine::choose(canonical, target);
    let source = match (&chosen, args.source) {
        (Ok(config), true) => Some(kiln.source(&graph, config)?.text),
        _ => None,
    };
    if args.json {
        let document = json!({
            "device": target.to_string(),
            "chosen": chosen.as_ref().ok().map(ToString::to_string),
            "engines": described,
            "source": source,
        });
        say!("{document:#}");
    } else {
        say!("device  {target}");
        say!("{}", graph.to_string().trim_end());
        for engine in &described {
            say!("\n{}", engine["engine"].as_str().unwrap_or_default());
            match engine["supported"].as_bool() {
                Some(true) => print_supported(engine),
                _ => say!("  can not: {}", engine["reason"].as_str().unwrap_or_default()),
            }
        }
        if let Some(source) = source {
            say!("\n{source}");
        }
    }
    chosen.map(|_| ExitCode::SUCCESS)
}

fn print_supported(engine: &serde_json::Value) {
    say!("  {}", engine["config"].as_str().unwrap_or_default());
    for reason in engine["reasons"].as_array().into_iter().flatten() {
        say!("    {}", reason.as_str().unwrap_or_default());
    }
    for knob in engine["knobs"].as_array().into_iter().flatten() {
        let text = |key: &str| knob[key].as_str().unwrap_or_default().to_owned();
        say!("  {:8} {:24} {}", text("name"), knob["values"].to_string(), text("about"));
    }
}
