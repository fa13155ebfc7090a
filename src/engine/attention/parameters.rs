//! A problem as the text that templates are filled with.

use serde_json::{Value as Json, json};

use crate::engine::attention::problem::Problem;
use crate::engine::attention::score::Source;
use crate::engine::signature::{ctype, kernel_parameter, merged};
use crate::expr::Identifiers;
use crate::graph::{Band, Diagonal};
use crate::tensor::TensorDesc;

/// The names of a tensor's strides.
const AXES: [&str; 4] = ["BATCH", "HEAD", "ROW", "COLUMN"];

/// The parameters that all kernels of a problem share.
pub(super) fn shared(problem: &Problem<'_>) -> Json {
    let shape = &problem.shape;
    let mut parameters = json!({
        "listing": [problem.op.to_string()],
        "index_type": index_type(problem),
        "sum": if problem.is_double() { "double" } else { "float" },
        "batches": shape.batches.max(1),
        "heads": shape.heads.max(1),
        "group": shape.group(),
        "queries": shape.queries,
        "keys": shape.keys,
        "depth": shape.depth,
        "width": shape.width,
        "scale": literal(problem, problem.op.scale_of(shape.depth)),
        "descending": problem.op.band.right.is_some(),
        "tensors": problem.passed().map(|(slot, at)| tensor(problem, slot, at)).collect::<Vec<_>>(),
        "scratch": [],
        "o_type": ctype(problem.tensor("o").dtype),
        "statistics": problem.op.statistics,
        "sinks": false,
        "reductions": ["Add", "Max"],
    });
    if problem.op.statistics {
        parameters["lse_type"] = json!(ctype(problem.tensor("lse").dtype));
    }
    if problem.op.sinks {
        parameters["sinks"] = json!(element(problem, "sinks"));
    }
    merged(merged(parameters, keys(problem)), score(problem))
}

/// A number as a constant of the type of sums.
pub(super) fn literal(problem: &Problem<'_>, value: f64) -> String {
    match problem.is_double() {
        true => format!("{value:?}"),
        false => format!("{:?}f", value as f32),
    }
}

fn index_type(problem: &Problem<'_>) -> &'static str {
    // Tiles reach beyond a tensor by less than 256 rows.
    let reach = |at: usize| {
        let TensorDesc { dims, strides, .. } = &problem.graph.tensors[at];
        let axes = dims.iter().zip(strides).enumerate();
        let steps = axes.map(|(axis, (dim, stride))| {
            let beyond = if axis >= 2 { 256 } else { 0 };
            (dim + beyond).saturating_mul(*stride)
        });
        steps.fold(0, i64::saturating_add)
    };
    match problem.passed().map(|(_, at)| reach(at)).max() {
        Some(most) if most >= 1 << 31 => "long long",
        _ => "int",
    }
}

/// A tensor as the kernel takes it, with its strides where it is in memory.
fn tensor(problem: &Problem<'_>, slot: &'static str, at: usize) -> Json {
    let tensor = &problem.graph.tensors[at];
    let strides: Vec<i64> = match tensor.by_value {
        true => Vec::new(),
        false => tensor.dims.iter().zip(&tensor.strides).map(stride).collect(),
    };
    let named = |(name, value): (&&str, &i64)| json!({"name": name, "value": value});
    let named: Vec<Json> = AXES.iter().zip(&strides).map(named).collect();
    let coordinates = ["batch", "head", "row", "column"];
    let terms: Vec<String> = coordinates
        .into_iter()
        .zip(AXES)
        .zip(&strides)
        .filter(|(_, stride)| **stride != 0)
        .map(|((coordinate, axis), stride)| match stride {
            1 => coordinate.to_owned(),
            _ => format!("{coordinate} * {axis}"),
        })
        .collect();
    json!({
        "name": slot,
        "declaration": kernel_parameter(problem.graph, at, slot),
        "text": tensor.to_string(),
        "strides": named,
        "offset": if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") },
    })
}

/// A dimension of 1 is broadcast.
fn stride((dim, stride): (&i64, &i64)) -> i64 {
    if *dim == 1 { 0 } else { *stride }
}

/// The element of an operand at the coordinates of a score, in its register type.
fn element(problem: &Problem<'_>, slot: &str) -> String {
    let tensor = problem.tensor(slot);
    if tensor.by_value {
        return format!("{}(t.{slot})", tensor.dtype.register());
    }
    let of = |axis: usize, name: &str| if tensor.dims[axis] == 1 { "0" } else { name }.to_owned();
    let at = ["batch", "head", "query", "key"];
    let at: Vec<String> = at.iter().enumerate().map(|(axis, name)| of(axis, name)).collect();
    format!("widen(t.{slot}[{slot}_layout::at({})])", at.join(", "))
}

/// What bounds the keys of a query.
fn keys(problem: &Problem<'_>) -> Json {
    let op = problem.op;
    let Band { diagonal, left, right } = op.band;
    let length = |given: bool, slot: &str, extent: &str| match given {
        true => format!("limited({}, {extent})", element(problem, slot)),
        false => extent.to_owned(),
    };
    let mut keys = json!({
        "lengths": op.query_lengths || op.key_lengths,
        "queries_of": length(op.query_lengths, "query_lengths", "QUERIES"),
        "keys_of": length(op.key_lengths, "key_lengths", "KEYS"),
        "bottom_right": diagonal == Diagonal::BottomRight,
        "intervals": op.intervals,
    });
    // A window beyond all keys is as good as none.
    let reach = problem.shape.queries + problem.shape.keys;
    if let Some(left) = left {
        keys["left"] = json!(left.min(reach));
    }
    if let Some(right) = right {
        keys["right"] = json!(right.min(reach));
    }
    if op.intervals {
        keys["key_begin"] = json!(element(problem, "key_begin"));
        keys["key_end"] = json!(element(problem, "key_end"));
    }
    keys
}

/// What becomes of a score, and what dropout drops.
fn score(problem: &Problem<'_>) -> Json {
    let op = problem.op;
    let score = &problem.score;
    let mut names = Identifiers::new();
    let own = ["score", "batch", "head", "query", "key", "result", "keep", "t"];
    let own = own.map(|name| names.fresh(name));
    let mut identifiers = Vec::new();
    let mut inputs = Vec::new();
    for (input, source) in score.program.inputs().iter().zip(&score.sources) {
        let ctype = input.dtype().register();
        match source {
            Source::Score => identifiers.push(own[0].clone()),
            // Coordinates are integers in the kernel.
            Source::Coordinate(axis) => identifiers.push(format!("{ctype}({})", own[axis + 1])),
            Source::Tensor(slot) => {
                let name = names.fresh(slot);
                let value = element(problem, slot);
                inputs.push(json!({"name": name, "ctype": ctype, "value": value}));
                identifiers.push(name);
            }
        }
    }
    let outputs = [own[5].clone(), own[6].clone()];
    let emitted = score.program.emit(&identifiers, &outputs, &mut names);
    let mut parameters = json!({
        "modified": score.is_modified(),
        "masked": score.is_masked(),
        "inputs": inputs,
        "lines": emitted.lines,
        "functions": emitted.functions,
        "dropout": op.dropout.is_some(),
    });
    if op.dropout.is_some() {
        parameters["dropout_threshold"] = json!(op.dropout_threshold());
        parameters["dropout_scale"] = json!(literal(problem, op.dropout_scale()));
        parameters["seed"] = json!(element(problem, "seed"));
        parameters["offset"] = json!(element(problem, "offset"));
    }
    parameters
}
