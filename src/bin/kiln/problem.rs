//! Problem files: reading them, and comparing what they give with the reference.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kiln::escape::escaped;
use kiln::plan::{Problem, Trial, Values};
use kiln::{Error, ErrorKind, OperationGraph, TensorDesc, reference};
use serde_json::json;

use crate::progress;

/// The seed of inputs that are made up where nobody says one.
const SEED: u64 = 1;

/// Where a problem's inputs come from.
#[derive(Args)]
pub struct InputArgs {
    /// Read the inputs from this safetensors file, by name
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Make the inputs up, reproducibly from this seed
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

    /// Where the values come from.
    pub fn text(&self) -> String {
        match (&self.inputs, self.random) {
            (Some(path), _) => format!("from {}", path.display()),
            (None, Some(seed)) => format!("random, from seed {seed}"),
            (None, None) => format!(
                "random, from seed {SEED} (--random SEED takes others, --inputs FILE given ones)"
            ),
        }
    }

    /// The values; random ones where neither option is given.
    pub fn values_or_random(&self, problem: &Problem) -> kiln::Result<Values> {
        self.values(problem)?.map_or_else(|| problem.random_values(SEED), Ok)
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
    in_file(path, Problem::from_json(&read(path)?))
}

/// A result of what a file says; an error names it.
pub fn in_file<T>(path: &Path, result: kiln::Result<T>) -> kiln::Result<T> {
    result.map_err(|error| {
        let text = format!("`{}`: {error}", path.display());
        Error::with(error.kind(), text)
    })
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
    /// Elements that are NaN, as they should be.
    pub nan: usize,
    /// Elements of which the reference says no more than that they are numbers, if that.
    pub unbounded: usize,
}

impl Check {
    pub fn passed(&self) -> bool {
        self.ratio <= 1.0
    }
}

/// Compares outputs with the reference.
pub fn check(graph: &OperationGraph, inputs: &Values, ran: &Trial) -> kiln::Result<Vec<Check>> {
    progress::doing("computing the reference");
    let expected = reference::evaluate(graph, inputs)?;
    let compare = |tensor: &TensorDesc| {
        let (actual, expected) = (&ran.outputs[&tensor.uid], &expected[&tensor.uid]);
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
    };
    Ok(graph.outputs().map(compare).collect())
}

/// `y: 786432 elements ok, worst error 0.52 of its bound`.
pub fn check_text(check: &Check) -> String {
    let Check { name, elements, ratio, worst, nan, unbounded } = check;
    // A name of several lines must not look like another check.
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

/// A duration with three significant digits or so.
pub fn shown(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}
