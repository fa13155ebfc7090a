//! Problem files: reading them, and comparing results with the reference.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kiln::escape::escaped;
use kiln::plan::{Problem, Trial, Values};
use kiln::reference::Expected;
use kiln::{Error, ErrorKind, OperationGraph, TensorDesc, reference};
use serde_json::json;

use crate::progress;

/// The seed of inputs that are made up where nobody says one.
const SEED: u64 = 1;

/// Source of a problem's inputs.
#[derive(Args)]
pub struct InputArgs {
    /// Read the inputs by name from this safetensors file
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Generate random inputs from this seed
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

    /// The seed of random inputs.
    pub fn seed(&self) -> u64 {
        self.random.unwrap_or(SEED)
    }

    /// Describes the source of the inputs.
    pub fn text(&self) -> String {
        match (&self.inputs, self.random) {
            (Some(path), _) => format!("from {}", path.display()),
            (None, Some(seed)) => format!("random, from seed {seed}"),
            (None, None) => {
                format!("random, from seed {SEED} (change with --random SEED or --inputs FILE)")
            }
        }
    }

    /// The inputs; random if neither option is given.
    pub fn values_or_random(&self, problem: &Problem) -> kiln::Result<Values> {
        self.values(problem)?.map_or_else(|| problem.random_values(SEED), Ok)
    }

    /// The inputs; `None` if neither option is given.
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
    in_file(path, Problem::from_json(&read(path)?))
}

/// Adds a file's path to an error.
pub fn in_file<T>(path: &Path, result: kiln::Result<T>) -> kiln::Result<T> {
    result.map_err(|error| {
        let text = format!("`{}`: {error}", path.display());
        Error::with(error.kind(), text)
    })
}

/// Reads a problem or plan file.
pub fn read(path: &Path) -> kiln::Result<String> {
    fs::read_to_string(path).map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::BadParam, format!("failed to read `{shown}`: {error}"))
    })
}

/// Comparison of an output with the reference.
pub struct Check {
    pub name: String,
    pub elements: usize,
    /// Worst error relative to the derived bound; 0 if all elements are exact.
    pub ratio: f64,
    /// The worst element.
    pub worst: Option<reference::Deviation>,
    /// Number of elements that are NaN as expected.
    pub nan: usize,
    /// Number of elements without an error bound.
    pub unbounded: usize,
}

impl Check {
    /// Compares a tensor's values with the reference.
    pub fn of(tensor: &TensorDesc, expected: &Expected, actual: &[f64]) -> Check {
        let worst = expected.worst(actual);
        let bounds = std::iter::zip(&expected.values, &expected.bounds);
        let nan = |(value, bound): &(&f64, &f64)| value.is_nan() && !bound.is_nan();
        let nan = bounds.clone().filter(nan).count();
        let unbounded = |(value, bound): &(&f64, &f64)| {
            bound.is_nan() || (bound.is_infinite() && !value.is_nan())
        };
        Check {
            nan,
            unbounded: bounds.filter(unbounded).count(),
            name: tensor.name.clone(),
            elements: actual.len(),
            ratio: worst.map_or(0.0, |worst| worst.ratio),
            worst,
        }
    }

    pub fn passed(&self) -> bool {
        self.ratio <= 1.0
    }
}

/// Compares the outputs that there are with the reference.
pub fn check(graph: &OperationGraph, inputs: &Values, ran: &Trial) -> kiln::Result<Vec<Check>> {
    progress::doing("computing the reference");
    let expected = reference::evaluate(graph, inputs)?;
    let compare = |tensor: &TensorDesc| {
        let actual = ran.outputs.get(&tensor.uid)?;
        Some(Check::of(tensor, &expected[&tensor.uid], actual))
    };
    Ok(graph.outputs().filter_map(compare).collect())
}

/// Formats as `y: 786432 elements ok, worst error 0.52 of its bound`.
pub fn check_text(check: &Check) -> String {
    let Check { name, elements, ratio, worst, nan, unbounded } = check;
    // A multi-line name must not look like another check.
    let name = escaped(name);
    if !check.passed() {
        let detail = worst.map_or(String::new(), |worst| {
            let (at, is, wanted) = (worst.index, worst.actual, worst.expected);
            format!(": element {at} is {is}, expected {wanted} within {:e}", worst.bound)
        });
        return format!("{name}: FAILED, worst error {ratio:.2} of its bound{detail}");
    }
    let compared = elements - nan - unbounded;
    let mut text = match (compared, worst) {
        (0, _) if *elements > 0 => format!("{name}: {elements} elements, nothing to compare"),
        (_, None) => format!("{name}: {elements} elements ok, all exact"),
        (_, Some(_)) => {
            format!("{name}: {elements} elements ok, worst error {ratio:.2} of its bound")
        }
    };
    for (count, what) in [(nan, "NaN, as is the reference"), (unbounded, "without a bound")] {
        match count {
            0 => {}
            count if count == elements => text += &format!(", all of them {what}"),
            count => text += &format!(", {count} of them {what}"),
        }
    }
    text
}

/// What a check found, as a document for programs.
pub fn check_json(check: &Check) -> serde_json::Value {
    json!({
        "tensor": check.name,
        "elements": check.elements,
        "passed": check.passed(),
        "worst_error_over_bound": check.ratio,
        "nan": check.nan,
        "unbounded": check.unbounded,
    })
}

/// Formats a duration with about three significant digits.
pub fn shown(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}
