//! `kiln vjp`: the gradients of a problem's graph as problem files, and what is saved for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use kiln::graph::Vjp;
use kiln::{Error, ErrorKind, OperationGraph, TensorDesc};
use serde_json::{Value, json};

use crate::problem;
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln vjp mlp.json
  kiln vjp mlp.json --of y --by w,bias --forward mlp_forward.json --backward mlp_backward.json
  kiln run mlp_backward.json --check";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct VjpArgs {
    /// Problem file of a graph (JSON)
    problem: PathBuf,
    /// Outputs whose gradients are given; all floating-point ones by default
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    of: Vec<String>,
    /// Inputs whose gradients are computed; all floating-point ones by default
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    by: Vec<String>,
    /// Write the problem with what the backward graph reads as further outputs
    #[arg(long, value_name = "FILE")]
    forward: Option<PathBuf>,
    /// Write the problem that computes the gradients
    #[arg(long, value_name = "FILE")]
    backward: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub fn vjp(args: &VjpArgs) -> kiln::Result<ExitCode> {
    let problem = problem::read_problem(&args.problem)?;
    let graph = problem.only_graph()?;
    let vjp = differentiated(graph, &args.of, &args.by)?;
    for (path, graph) in [(&args.forward, &vjp.forward), (&args.backward, &vjp.backward)] {
        if let Some(path) = path {
            write(path, graph)?;
        }
    }
    match args.json {
        true => say_json(&json!({
            "saved": saved_json(&vjp),
            "forward": vjp.forward.to_string(),
            "backward": vjp.backward.to_string(),
        })),
        false => {
            saved_lines(&vjp).iter().for_each(|line| say!("{line}"));
            say!("\n{}", vjp.backward.to_string().trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The vector-Jacobian product of a graph: of and by the tensors of these names, or all.
pub fn differentiated(graph: &OperationGraph, of: &[String], by: &[String]) -> kiln::Result<Vjp> {
    fn chosen<'a>(
        graph: &OperationGraph,
        names: &[String],
        all: impl Iterator<Item = &'a TensorDesc>,
    ) -> kiln::Result<Vec<i64>> {
        match names {
            [] => Ok(all.filter(|of| of.dtype.is_float()).map(|of| of.uid).collect()),
            names => names.iter().map(|name| Ok(graph.tensor_named(name)?.uid)).collect(),
        }
    }
    let outputs = chosen(graph, of, graph.outputs())?;
    let mut inputs = chosen(graph, by, graph.inputs())?;
    if by.is_empty() {
        // Of all inputs those that an output depends on; what has no gradient is said below.
        let is_apart = |error: Error| error.kind() == ErrorKind::BadParam;
        inputs.retain(|uid| !graph.vjp(&outputs, &[*uid]).is_err_and(is_apart));
    }
    graph.vjp(&outputs, &inputs)
}

/// What the backward graph reads of the forward one, line by line.
pub fn saved_lines(vjp: &Vjp) -> Vec<String> {
    let all: u64 = vjp.saved.iter().map(|of| of.bytes).sum();
    let kept: u64 = vjp.saved.iter().filter(|of| of.kept).map(|of| of.bytes).sum();
    let mut lines = vec![format!(
        "saved   {all} bytes that the backward graph reads, {kept} of them kept for it alone"
    )];
    for of in &vjp.saved {
        let Ok(tensor) = vjp.forward.tensor(of.uid) else { continue };
        let why = if of.kept { "kept" } else { "in memory anyway" };
        lines.push(format!("  {:>12}  {tensor}  ({why})", of.bytes));
    }
    lines
}

/// The same as JSON.
pub fn saved_json(vjp: &Vjp) -> Value {
    let saved = vjp.saved.iter().map(|of| {
        let name = vjp.forward.tensor(of.uid).map_or("", |tensor| tensor.name.as_str());
        json!({"tensor": name, "bytes": of.bytes, "kept": of.kept})
    });
    saved.collect()
}

fn write(path: &Path, graph: &OperationGraph) -> kiln::Result<()> {
    fs::write(path, graph.to_json() + "\n").map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::Io, format!("failed to write problem `{shown}`: {error}"))
    })
}
