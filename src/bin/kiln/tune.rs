//! `kiln tune`: measures configurations and stores the best.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::plan::{ExecutionPlan, Trials, Tried, TriedSplit, TuneProgress, Tuned, TunedSplit};
use kiln::{Config, Error, ErrorKind};
use serde_json::{Value, json};

use crate::measure::Elsewhere;
use crate::options::{DeviceArgs, SelectionArgs};
use crate::problem;
use crate::progress::{progress_bar, tell};
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln tune mlp.json
  kiln tune mlp.json --settings 100 --device cuda:0
  kiln tune mlp.json --device sim:h200 --json

On a GPU configurations are timed, by another process: one that faults or hangs is noted, and the
others are measured. On the simulator each runs once, and its counters yield a lower
bound for the GPU. The best configuration of every subgraph of the problem is stored in the cache
folder as a JSON file and used by later plans for that GPU and version. Then the partition is
measured with and without the fusions of its subgraphs; the best partition is stored too.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// Problem file (JSON)
    problem: PathBuf,
    /// Number of configurations to measure per subgraph, ranked by the cost model
    #[arg(long, value_name = "N", default_value_t = 24)]
    settings: usize,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn tune(args: &TuneArgs) -> kiln::Result<ExitCode> {
    if args.settings == 0 {
        return Err(Error::with(ErrorKind::BadParam, "--settings is 0: nothing to measure"));
    }
    let problem = problem::read_problem(&args.problem)?;
    let config = args.selection.over(Config { count: true, ..Config::default() });
    let kiln = args.device.open_with(config)?;
    let bar = progress_bar(args.json);
    tell(&bar, "planning");
    let show = |TuneProgress { done, total, what }: TuneProgress<'_>| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        tell(&bar, what);
    };
    let (mut here, mut elsewhere) = (Trials::new(&kiln), Elsewhere::new(&args.device));
    let (mut tuned, mut splits) = (Vec::new(), Vec::new());
    for graph in problem.graphs() {
        let mut trial = |plan: &ExecutionPlan| match kiln.device().kind() {
            "cuda" => elsewhere.measure(plan),
            _ => here.measure(plan),
        };
        let of_parts = kiln.tune_by(graph, args.settings, &mut trial, show);
        let both = of_parts.and_then(|of| Ok((of, kiln.tune_split_by(graph, &mut trial, show)?)));
        let (of_parts, split) = both.map_err(|error| elsewhere.told(error))?;
        tuned.extend(of_parts);
        splits.push(split);
    }
    bar.finish_and_clear();
    if args.json {
        let device = kiln.device().target().to_string();
        let parts: Vec<Value> = tuned.iter().map(part_json).collect();
        let splits: Vec<Value> = splits.iter().map(split_json).collect();
        say_json(&json!({"device": device, "parts": parts, "splits": splits}));
        return Ok(ExitCode::SUCCESS);
    }
    say!("device  {}", kiln.device().target());
    for (number, part) in tuned.iter().enumerate() {
        say!("\npart {} of {}", number + 1, tuned.len());
        say!("{}", part.part.graph.to_string().trim_end());
        print_tried(&part.tried);
        let Tuned { us, heuristic_us, .. } = part;
        let own = shown(*heuristic_us);
        say!("best    {} at {us:.2} us, the heuristic's {own}", part.part.config);
        match &part.path {
            Some(path) => say!("kept in {}", path.display()),
            None => say!("not kept: there is no cache folder"),
        }
    }
    for split in splits.iter().filter(|split| split.tried.len() > 1) {
        print_split(split);
    }
    Ok(ExitCode::SUCCESS)
}

/// A time, or that there is none.
fn shown(us: Option<f64>) -> String {
    us.map_or("-".to_owned(), |us| format!("{us:.2} us"))
}

fn print_split(split: &TunedSplit) {
    say!("\n{:>9}  split", "measured");
    for TriedSplit { parts, us, refused } in &split.tried {
        let us = shown(*us);
        let refused = refused.as_ref().map_or(String::new(), |text| format!("  {text}"));
        say!("{us:>9}  {}{refused}", parts.join(" + "));
    }
    let TunedSplit { parts, us, heuristic_us, path, .. } = split;
    let own = shown(*heuristic_us);
    say!("best    {} parts at {us:.2} us, the heuristic's {own}", parts.len());
    if let Some(path) = path {
        say!("kept in {}", path.display());
    }
}

fn split_json(split: &TunedSplit) -> Value {
    json!({
        "parts": split.parts.iter().map(|part| part.config.to_string()).collect::<Vec<_>>(),
        "us": split.us,
        "heuristic_us": split.heuristic_us,
        "tried": split.tried,
        "path": split.path,
    })
}

fn print_tried(tried: &[Tried]) {
    say!("{:>9}  {:>9}", "measured", "predicted");
    for Tried { config, predicted_us, us, refused } in tried {
        let refused = refused.as_ref().map_or(String::new(), |text| format!("  {text}"));
        say!("{:>9}  {:>9}  {config}{refused}", shown(*us), shown(*predicted_us));
    }
}

fn part_json(part: &Tuned) -> Value {
    json!({
        "config": part.part.config.to_string(),
        "us": part.us,
        "heuristic_us": part.heuristic_us,
        "tried": part.tried,
        "path": part.path,
    })
}
