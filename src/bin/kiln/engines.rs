//! `kiln engines`: engines that support a problem, with knobs and candidate configurations.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kiln::engine::{self, Choice, CostModel, Cut, Engine, LayoutInfo, Mode, Part, Selection};
use kiln::graph::Vjp;
use kiln::plan::Problem;
use kiln::{Config, Kiln, OperationGraph};
use serde_json::{Value, json};

use crate::looped;
use crate::options::{DeviceArgs, SelectionArgs};
use crate::problem;
use crate::progress;
use crate::terminal::say_json;
use crate::vjp;

const EXAMPLES: &str = "\
Examples:
  kiln engines chain.json
  kiln engines chain.json --device sim:h200 --source
  kiln engines mlp.json --device sim:a100 --settings 40 --without tensor_core
  kiln engines mlp.json --vjp";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct EnginesArgs {
    /// Problem file (JSON)
    problem: PathBuf,
    /// Number of configurations to list, ranked by the cost model
    #[arg(long, value_name = "N", default_value_t = 5)]
    settings: usize,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Also print the CUDA source of the chosen configuration
    #[arg(long)]
    source: bool,
    /// Show the graph with what its gradients need, the graph of its gradients, and what is saved
    #[arg(long)]
    vjp: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

pub fn engines(args: &EnginesArgs) -> kiln::Result<ExitCode> {
    let text = problem::read(&args.problem)?;
    if looped::is_looped(&text) {
        let kiln = args.device.open_with(args.selection.over(Config::default()))?;
        return looped::engines(&kiln, &args.problem, &text, args.json);
    }
    let problem = problem::in_file(&args.problem, Problem::from_json(&text))?;
    let kiln = args.device.open_with(args.selection.over(Config::default()))?;
    let target = kiln.device().target();
    let selection = kiln.selection().clone();
    let (mut described, mut cuts, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    let mut refused = None;
    progress::doing(format!("asking every engine about {}", args.problem.display()));
    let gradients: Vec<Vjp> = match args.vjp {
        true => {
            let of = problem.graphs().into_iter();
            of.map(|of| vjp::differentiated(of, &[], &[])).collect::<kiln::Result<_>>()?
        }
        false => Vec::new(),
    };
    let graphs: Vec<&OperationGraph> = match args.vjp {
        true => gradients.iter().flat_map(|of| [&of.forward, &of.backward]).collect(),
        false => problem.graphs(),
    };
    for graph in graphs {
        let parts = kiln.parts(graph);
        let known = parts.as_deref().unwrap_or_default();
        let first = described.len();
        let own = engine::cuts(graph, target, known).into_iter();
        cuts.extend(own.map(|cut| Cut { parts: cut.parts.map(|part| first + part), ..cut }));
        let describe = |part: &Part| part_json(part, &kiln, &selection, args.settings);
        described.extend(known.iter().map(describe));
        for Part { graph, config } in known.iter().filter(|_| args.source) {
            sources.extend(kiln.sources(graph, config)?.into_iter().map(|source| source.text));
        }
        refused = refused.or(parts.err());
    }
    if args.json {
        let document = json!({
            "device": target.to_string(),
            "saved": gradients.iter().map(vjp::saved_json).collect::<Vec<_>>(),
            "parts": described,
            "cuts": cuts.iter().map(cut_json).collect::<Vec<_>>(),
            "sources": sources,
        });
        say_json(&document);
    } else {
        say!("device  {target}");
        gradients.iter().flat_map(vjp::saved_lines).for_each(|line| say!("{line}"));
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
    refused.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn cut_json(cut: &Cut) -> Value {
    json!({"parts": cut.parts.map(|part| part + 1), "reasons": cut.reasons})
}

/// A subgraph with the answers of all engines.
fn part_json(part: &Part, kiln: &Kiln, selection: &Selection, settings: usize) -> Value {
    let target = kiln.device().target();
    let canonical = part.graph.canonical();
    let model = Selection { mode: Mode::B, ..selection.clone() };
    let ranked = engine::choices(canonical, target, &model).unwrap_or_default();
    let setting = |choice: &Choice| {
        let notes = kiln.notes(&part.graph, &choice.config);
        json!({
            "config": choice.config.to_string(),
            "predicted_us": choice.predicted_us,
            "notes": notes.unwrap_or_default().names(),
        })
    };
    let engine = |engine: &&dyn Engine| match engine.support(canonical, target) {
        Ok(supported) => {
            let knobs: Vec<_> = supported
                .knobs()
                .iter()
                .map(|knob| json!({"name": knob.name, "about": knob.about, "values": knob.values}))
                .collect();
            json!({
                "engine": engine.name(),
                "supported": true,
                "config": supported.heuristic().to_string(),
                "reasons": supported.reasons(),
                "layouts": layouts_json(&part.graph, &supported.layouts()),
                "knobs": knobs,
            })
        }
        Err(reason) => json!({
            "engine": engine.name(),
            "supported": false,
            "reason": reason.to_string(),
        }),
    };
    let work = part.supported(target).ok().and_then(|own| own.work_of()(&part.config));
    json!({
        "graph": part.graph.to_string(),
        "chosen": part.config.to_string(),
        "predicted_us": work.map(|work| CostModel::of(target).predicted_us(&work)),
        "chosen_by": kiln.chosen_by(part).unwrap_or_default(),
        "legal": ranked.len(),
        "settings": ranked.iter().take(settings).map(setting).collect::<Vec<_>>(),
        "engines": engine::engines().iter().map(engine).collect::<Vec<_>>(),
    })
}

/// Names of the layouts that an engine prefers, by tensor.
fn layouts_json(graph: &OperationGraph, layouts: &[LayoutInfo]) -> Value {
    let names = |of: &LayoutInfo| of.types.iter().map(|layout| layout.name()).collect::<Vec<_>>();
    let tensor = |of: &LayoutInfo| {
        let name = graph.tensor(of.uid).map_or(String::new(), |tensor| tensor.name.clone());
        (name, json!(names(of)))
    };
    layouts.iter().map(tensor).collect::<serde_json::Map<_, _>>().into()
}

fn print_part(part: &Value) {
    say!("{}", part["graph"].as_str().unwrap_or_default().trim_end());
    for engine in part["engines"].as_array().into_iter().flatten() {
        say!("\n{}", engine["engine"].as_str().unwrap_or_default());
        match engine["supported"].as_bool() {
            Some(true) => print_supported(engine),
            _ => say!("  unsupported: {}", engine["reason"].as_str().unwrap_or_default()),
        }
    }
    let text = |key: &str| part[key].as_str().unwrap_or_default();
    say!("\nchosen by {}\n  {}", text("chosen_by"), text("chosen"));
    if let Some(us) = part["predicted_us"].as_f64() {
        say!("  {us:.2} us by the cost model");
    }
    let settings = part["settings"].as_array().map_or(&[][..], Vec::as_slice);
    if settings.is_empty() {
        return;
    }
    say!("\n{:>9}  {} of {} legal configurations", "predicted", settings.len(), part["legal"]);
    for setting in settings {
        let us = setting["predicted_us"].as_f64().unwrap_or(f64::INFINITY);
        let notes: Vec<&str> =
            setting["notes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let config = setting["config"].as_str().unwrap_or_default();
        say!("{us:>6.2} us  {config}  [{}]", notes.join(", "));
    }
}

fn print_supported(engine: &Value) {
    say!("  {}", engine["config"].as_str().unwrap_or_default());
    for reason in engine["reasons"].as_array().into_iter().flatten() {
        say!("    {}", reason.as_str().unwrap_or_default());
    }
    for (tensor, layouts) in engine["layouts"].as_object().into_iter().flatten() {
        say!("    prefers `{tensor}` in {layouts}");
    }
    for knob in engine["knobs"].as_array().into_iter().flatten() {
        let text = |key: &str| knob[key].as_str().unwrap_or_default().to_owned();
        say!("  {:8} {:24} {}", text("name"), knob["values"].to_string(), text("about"));
    }
}
