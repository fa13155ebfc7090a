//! Networks with loops on the command line.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use kiln::loops::Network;
use kiln::plan::{self, Values};
use kiln::{Kiln, TensorDesc, reference};
use serde_json::{Map, Value, json};

use crate::problem::{self, Check, InputArgs, check_json, check_text, shown};
use crate::progress;
use crate::terminal::say_json;

/// Whether a document is of a network with loops.
pub fn is_looped(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok_and(|of| of.contains_key("loop"))
}

/// What to do with a network that has run.
pub struct Wanted<'a> {
    /// A file for its outputs.
    pub outputs: Option<&'a Path>,
    /// Whether to compare them with the interpreter's.
    pub check: bool,
    /// Whether to print JSON.
    pub json: bool,
}

/// Runs a network.
pub fn run(
    kiln: &Kiln,
    path: &Path,
    text: &str,
    inputs: &InputArgs,
    wanted: &Wanted<'_>,
) -> kiln::Result<ExitCode> {
    let network = problem::in_file(path, Network::from_json(text))?;
    progress::doing(format!("planning {}", path.display()));
    let planned = kiln.build_loops(&network)?;
    let named: Vec<TensorDesc> = network.inputs().cloned().collect();
    let values = match inputs.file() {
        Some(file) => plan::read_values(file, named.iter())?,
        None => network.random_values(inputs.seed())?,
    };
    progress::doing(format!("running {}", path.display()));
    let start = Instant::now();
    let outputs = planned.trial(kiln, &values)?;
    let elapsed = start.elapsed();
    let checks = if wanted.check { compare(&network, &values, &outputs)? } else { Vec::new() };
    if let Some(file) = wanted.outputs {
        let named: Vec<TensorDesc> = network.outputs().cloned().collect();
        plan::write_values(file, named.iter(), &outputs)?;
    }
    let configs = |of: &kiln::ExecutionPlan| {
        of.parts().iter().map(|part| part.config.to_string()).collect::<Vec<_>>()
    };
    let configs: Vec<Vec<String>> = planned.plans().iter().map(configs).collect();
    if wanted.json {
        say_json(&json!({
            "device": kiln.device().target().to_string(),
            "inputs": inputs.text(),
            "graphs": configs,
            "workspace_bytes": planned.workspace_bytes(),
            "run_ms": elapsed.as_secs_f64() * 1e3,
            "metrics": kiln.metrics(),
            "checks": checks.iter().map(check_json).collect::<Vec<_>>(),
        }));
    } else {
        say!("device  {}", kiln.device().target());
        for (number, configs) in configs.iter().enumerate() {
            say!("graph {:<2} {}", number + 1, configs.join(", "));
        }
        say!("inputs  {}", inputs.text());
        say!("ran in  {}", shown(elapsed));
        for check in &checks {
            say!("check   {}", check_text(check));
        }
        if let Some(path) = wanted.outputs {
            say!("wrote   {}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(!checks.iter().all(Check::passed))))
}

/// Prints a network, and how it is run.
pub fn engines(kiln: &Kiln, path: &Path, text: &str, json: bool) -> kiln::Result<ExitCode> {
    let network = problem::in_file(path, Network::from_json(text))?;
    progress::doing(format!("planning {}", path.display()));
    let planned = kiln.build_loops(&network)?;
    let device = kiln.device().target().to_string();
    if json {
        let steps: Vec<String> = planned.steps().lines().map(str::to_owned).collect();
        let (network, bytes) = (network.to_string(), planned.workspace_bytes());
        say_json(&json!({
            "device": device, "network": network, "steps": steps, "workspace_bytes": bytes,
        }));
    } else {
        say!("device  {device}");
        say!("{}", network.to_string().trim_end());
        say!("\nruns as");
        planned.steps().lines().for_each(|line| say!("  {line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares outputs with those of the interpreter of lazy sequences.
fn compare(network: &Network, inputs: &Values, outputs: &Values) -> kiln::Result<Vec<Check>> {
    progress::doing("computing the reference");
    let expected = reference::evaluate_network(network, inputs)?;
    let check = |of: &TensorDesc| Check::of(of, &expected[&of.uid], &outputs[&of.uid]);
    Ok(network.outputs().map(check).collect())
}
