//! `kiln engines`: who can run a problem, and how.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::engine::{self, Cut, Engine, Part};
use kiln::target::Target;
use serde_json::{Value, json};

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
    let target = kiln.device().target();
    let parts = engine::partition(&graph, target);
    let known = parts.as_deref().unwrap_or_default();
    let cuts = engine::cuts(&graph, target, known);
    let described: Vec<Value> = known.iter().map(|part| part_json(part, target)).collect();
    let mut sources = Vec::new();
    for Part { graph, config } in known.iter().filter(|_| args.source) {
        sources.extend(kiln.sources(graph, config)?.into_iter().map(|source| source.text));
    }
    if args.json {
        let document = json!({
            "device": target.to_string(),
            "parts": described,
            "cuts": cuts.iter().map(cut_json).collect::<Vec<_>>(),
            "sources": sources,
        });
        say!("{document:#}");
    } else {
        say!("device  {target}");
        for (number, part) in described.iter().enumerate() {
            if described.len() > 1 {
                say!("\npart {} of {}", number + 1, described.len());
            }
            print_part(part);
        }
        for cut in &cuts {
            say!("\n{}", cut.to_string().replace("; ", "\n  "));
        }
        for source in &sources {
            say!("\n{source}");
        }
    }
    parts.map(|_| ExitCode::SUCCESS)
}

fn cut_json(cut: &Cut) -> Value {
    json!({"parts": cut.parts.map(|part| part + 1), "reasons": cut.reasons})
}

/// A part with every engine's answer.
fn part_json(part: &Part, target: &Target) -> Value {
    let canonical = part.graph.canonical();
    let engine = |engine: &&dyn Engine| match engine.support(canonical, target) {
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
    json!({
        "graph": part.graph.to_string(),
        "chosen": part.config.to_string(),
        "engines": engine::engines().iter().map(engine).collect::<Vec<_>>(),
    })
}

fn print_part(part: &Value) {
    say!("{}", part["graph"].as_str().unwrap_or_default().trim_end());
    for engine in part["engines"].as_array().into_iter().flatten() {
        say!("\n{}", engine["engine"].as_str().unwrap_or_default());
        match engine["supported"].as_bool() {
            Some(true) => print_supported(engine),
            _ => say!("  can not: {}", engine["reason"].as_str().unwrap_or_default()),
        }
    }
}

fn print_supported(engine: &Value) {
    say!("  {}", engine["config"].as_str().unwrap_or_default());
    for reason in engine["reasons"].as_array().into_iter().flatten() {
        say!("    {}", reason.as_str().unwrap_or_default());
    }
    for knob in engine["knobs"].as_array().into_iter().flatten() {
        let text = |key: &str| knob[key].as_str().unwrap_or_default().to_owned();
        say!("  {:8} {:24} {}", text("name"), knob["values"].to_string(), text("about"));
    }
}
