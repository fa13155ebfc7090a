//! Problem files: reading them, and comparing what they give with the reference.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kiln::escape::escaped;
use kiln::plan::{Problem, Trial, Values};
use kiln::{Error, ErrorKind, OperationGraph, TensorDesc, reference};
use serde_json::json;

/// Where a problem's inputs come from.
#[derive(Args)]
pub struct InputArgs {
    /// Read the inputs from this safetensors file, by name
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Make the inputs up instead, reproducibly from this seed
    #[arg(long, value_name = "SEED", conflicts_with = "inputs")]
    random: Option<u64>,
}

impl InputArgs {
    pub fn are_given(&self) -> bool {
        self.inputs.is_some() || self.random.is_some()
    }

    pub fn file(&self) -> Option<&Path> {
        self.inputs.as_deref()
    }

    /// The values; `None` where neither option is given.
    pub fn values(&self, problem: &Problem) -> kiln::Result<Option<Values>> {
        match (&self.inputs, self.random) {
            (Some(path), _) => problem.read_values(path).map(Some),
            (None, Some(seed)) => problem.random_values(seed).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Reads a problem file.
pub fn read_problem(path: &Path) -> kiln::Result<Problem> {
    Problem::from_json(&read(path)?)
}

/// The text of a problem or a plan.
pub fn read(path: &Path) -> kiln::Result<String> {
    fs::read_to_string(path).map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::BadParam, format!("failed to read problem `{shown}`: {error}"))
    })
}

/// The comparison of one output with the reference.
pub struct Check {
    pub name: String,
    pub elements: usize,
    /// The worst error as a multiple of the derived bound; 0 when every element is exact.
    pub ratio: f64,
    /// What the worst element looks like.
    pub worst: Option<reference::Deviation>,
}

impl Check {
    pub fn passed(&self) -> bool {
        self.ratio <= 1.0
    }
}

/// Compares outputs with the reference.
pub fn check(graph: &OperationGraph, inputs: &Values, ran: &Trial) -> kiln::Result<Vec<Check>> {
    let expected = reference::evaluate(graph, inputs)?;
    let compare = |tensor: &TensorDesc| {
        let actual = &ran.outputs[&tensor.uid];
        let worst = expected[&tensor.uid].worst(actual);
        Check {
            name: tensor.name.clone(),
            elements: actual.len(),
            ratio: worst.map_or(0.0, |worst| worst.ratio),
            worst,
        }
    };
    Ok(graph.outputs().map(compare).collect())
}

/// `y: 786432 elements ok, worst error 0.52 of its bound`.
pub fn check_text(check: &Check) -> String {
    let Check { name, elements, ratio, worst } = check;
    // A name of several lines must not look like another check.
    let name = escaped(name);
    match (check.passed(), worst) {
        (true, None) => format!("{name}: {elements} elements ok, all exact"),
        (true, Some(_)) => {
            format!("{name}: {elements} elements ok, worst error {ratio:.2} of its bound")
        }
        (false, worst) => {
            let detail = worst.map_or(String::new(), |worst| {
                let (at, is, wanted) = (worst.index, worst.actual, worst.expected);
                format!(": element {at} is {is}, expected {wanted} within {:e}", worst.bound)
            });
            format!("{name}: FAILED, worst error {ratio:.2} of its bound{detail}")
        }
    }
}

/// The same for programs.
pub fn check_json(check: &Check) -> serde_json::Value {
    json!({
        "tensor": check.name,
        "elements": check.elements,
        "passed": check.passed(),
        "worst_error_over_bound": check.ratio,
    })
}

/// A duration with three significant digits or so.
pub fn shown(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}
