//! Template parameters of a problem.

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::attention::problem::Problem;
use crate::engine::attention::score::Source;
use crate::engine::signature::{ctype, kernel_parameter, merged};
use crate::expr::Identifiers;
use crate::graph::{AttentionShape, Band, Diagonal};
use crate::tensor::TensorDesc;

/// Names of a tensor's strides.
const AXES: [&str; 4] = ["BATCH", "HEAD", "ROW", "COLUMN"];

/// Parameters common to all kernels of a problem; `passed` are the slots of the tensors passed to
/// the kernel, with their canonical positions.
pub(super) fn shared(problem: &Problem<'_>, passed: &[(&'static str, usize)]) -> Json {
    let shape = &problem.shape;
    let is_eight = ["q", "k", "v"].iter().any(|slot| problem.tensor(slot).dtype.is_f8());
    let mut parameters = json!({
        "listing": listing(problem),
        "index_type": index_type(problem),
        "sum": if problem.is_double() { "f64" } else { "float" },
        "batches": shape.batches.max(1),
        "heads": shape.heads.max(1),
        "group": shape.group(),
        "queries": shape.queries,
        "keys": shape.keys,
        "depth": shape.depth,
        "width": shape.width,
        "scale": literal(problem, problem.op.scale_of(shape.depth)),
        "descending": problem.op.band.right.is_some(),
        "tensors": passed.iter().map(|(slot, at)| tensor(problem, slot, *at)).collect::<Vec<_>>(),
        "mapped": !passed.iter().any(|(slot, _)| *slot == "q"),
        "scratch": [],
        "o_type": ctype(problem.tensor("o").dtype),
        "statistics": problem.op.statistics,
        "sinks": false,
        "eight": is_eight,
        "descale_v": false,
        "reductions": ["Add", "Max"],
        "reduces_across": false,
    });
    if problem.op.statistics {
        parameters["lse_type"] = json!(ctype(problem.tensor("lse").dtype));
    }
    if problem.op.sinks {
        parameters["sinks"] = json!(element(problem, "sinks"));
    }
    if problem.op.descale_v {
        parameters["descale_v"] = json!(element(problem, "descale_v"));
    }
    [sequence, keys, score].into_iter().fold(parameters, |all, part| merged(all, part(problem)))
}

/// The operation and its operands, line by line.
fn listing(problem: &Problem<'_>) -> Vec<String> {
    let (op, shape) = (problem.op, &problem.shape);
    let AttentionShape { batches, heads, kv_heads, queries, keys, depth, width } = *shape;
    let kv = if shape.group() > 1 { format!("h / {}", shape.group()) } else { "h".to_owned() };
    let scale = op.scale_of(depth);
    let mut lines = vec![
        format!("o[b, h, i] = sum over j of softmax_j(s[b, h, i, j]) v[b, {kv}, j]"),
        format!("s[b, h, i, j] = {scale} q[b, h, i] . k[b, {kv}, j]"),
    ];
    let Band { diagonal, left, right } = op.band;
    let own = match diagonal {
        Diagonal::BottomRight => "i + seqlen_k - seqlen_q",
        _ => "i",
    };
    match (left, right) {
        (None, None) => {}
        (None, Some(0)) => lines.push(format!("causal: j <= {own}")),
        _ => {
            let left = left.map(|left| format!("{own} - {left} <= "));
            let right = right.map(|right| format!(" <= {own} + {right}"));
            let [left, right] = [left, right].map(Option::unwrap_or_default);
            lines.push(format!("window: {left}j{right}"));
        }
    }
    let features = [
        (op.softcap.is_some(), "softcap"),
        (op.bias, "additive bias"),
        (op.slopes, "ALiBi slopes"),
        (op.sinks, "sinks"),
        (op.dropout.is_some(), "dropout"),
        (op.query_lengths, "lengths of q"),
        (op.key_lengths, "lengths of k and v"),
        (op.intervals, "an interval of keys for each query"),
        (op.paged, "paged k and v"),
        (op.statistics, "log-sum-exp of each row"),
    ];
    let features: Vec<&str> = features.iter().filter(|(has, _)| *has).map(|(_, of)| *of).collect();
    if !features.is_empty() {
        lines.push(format!("with {}", features.join(", ")));
    }
    for (name, program) in op.programs() {
        let program = program.to_string();
        lines.push(format!("{name}: {}", program.lines().collect::<Vec<_>>().join("; ")));
    }
    lines.push(format!(
        "batch {batches}, {heads} heads of q, {kv_heads} of k and v, seqlen_q {queries}, \
         seqlen_k {keys}, head_dim {depth}, of v {width}"
    ));
    let text = |(slot, at): (&'static str, usize)| {
        let tensor = &problem.graph.tensors[at];
        TensorDesc { name: slot.to_owned(), ..tensor.clone() }.to_string()
    };
    lines.extend(problem.passed().map(text));
    lines
}

/// A constant of the accumulator type.
pub(super) fn literal(problem: &Problem<'_>, value: f64) -> String {
    match problem.is_double() {
        true => format!("{value:?}"),
        false => format!("{:?}f", value as f32),
    }
}

fn index_type(problem: &Problem<'_>) -> &'static str {
    // Tiles extend beyond a tensor by less than 256 rows.
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

/// A tensor as a kernel parameter, with its strides if it is in memory.
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

/// Stride of a dimension, 0 where its extent is 1.
fn stride((dim, stride): (&i64, &i64)) -> i64 {
    if *dim == 1 { 0 } else { *stride }
}

/// C++ expression of an operand's element at the coordinates of a score, in its register type;
/// `int` for lengths, offsets and pages.
fn element(problem: &Problem<'_>, slot: &str) -> String {
    let head = if matches!(slot, "descale_k" | "descale_v") { "head / GQA_GROUP" } else { "head" };
    element_at(problem, slot, ["batch", head, "query", "key"])
}

fn element_at(problem: &Problem<'_>, slot: &str, coordinates: [&str; 4]) -> String {
    let tensor = problem.tensor(slot);
    let of = |(axis, name)| if tensor.dims[axis] == 1 { "0" } else { name };
    let at: Vec<&str> = coordinates.into_iter().enumerate().map(of).collect();
    let value = match tensor.by_value {
        true => format!("t.{slot}"),
        false => format!("t.{slot}[{slot}_layout::at({})]", at.join(", ")),
    };
    let is_captured = slot.starts_with("score_") || slot.starts_with("keep_");
    match (tensor.by_value, tensor.dtype) {
        (_, DType::I64) if matches!(slot, "seed" | "offset") => format!("(long long)({value})"),
        (_, DType::I64) if !is_captured => format!("clamped((long long)({value}))"),
        (true, dtype) => format!("{}({value})", dtype.register()),
        (false, _) => format!("widen({value})"),
    }
}

/// Location and number of the queries and keys of a sequence.
fn sequence(problem: &Problem<'_>) -> Json {
    let op = problem.op;
    let ragged = |slot: &str, of: &str| {
        let at = |batch: &str| element_at(problem, slot, [batch, "0", "0", "0"]);
        let all = problem.tensor(of).dims[2];
        json!({"begin": at("batch"), "end": at("batch + 1"), "all": all})
    };
    let length =
        |given: bool, slot: &str| if given { json!(element(problem, slot)) } else { json!(false) };
    let (ragged_queries, q_batch, q_row) = match op.queries_max {
        None => (json!(false), "of.batch", "query"),
        Some(_) => (ragged("query_offsets", "q"), "0", "of.first_query + query"),
    };
    let (ragged_keys, k_batch, k_row) = match (op.keys_max, op.paged) {
        (Some(_), _) => (ragged("key_offsets", "k"), "0", "of.first_key + key"),
        (None, true) => (json!(false), "page_of(t, of, key)", "key % PAGE"),
        (None, false) => (json!(false), "of.batch", "key"),
    };
    let paged = op.paged.then(|| {
        let k = problem.tensor("k");
        json!({
            "size": k.dims[2].max(1),
            "count": k.dims[0],
            "each": problem.tensor("page_table").dims[3],
            "entry": element_at(problem, "page_table", ["of.batch", "0", "0", "page"]),
        })
    });
    let lengths = op.query_lengths || op.key_lengths || op.paged;
    json!({
        "limits": lengths || op.queries_max.is_some() || op.keys_max.is_some(),
        "query_length": length(op.query_lengths, "query_lengths"),
        "key_length": length(op.key_lengths, "key_lengths"),
        "ragged_queries": ragged_queries,
        "ragged_keys": ragged_keys,
        "paged": paged.unwrap_or(json!(false)),
        "q_batch": q_batch,
        "q_row": q_row,
        "k_batch": k_batch,
        "k_row": k_row,
    })
}

/// Bounds of the keys of a query.
fn keys(problem: &Problem<'_>) -> Json {
    let op = problem.op;
    let Band { diagonal, left, right } = op.band;
    let mut keys = json!({
        "bottom_right": diagonal == Diagonal::BottomRight,
        "intervals": op.intervals,
    });
    // A window larger than all keys has no effect.
    let reach = problem.shape.queries + problem.shape.keys;
    if let Some(left) = left {
        keys["left"] = json!(left.min(reach));
    }
    if let Some(right) = right {
        keys["right"] = json!(right.min(reach));
    }
    if op.intervals {
        let at = ["of.batch", "head", "query", "0"];
        keys["key_begin"] = json!(element_at(problem, "key_begin", at));
        keys["key_end"] = json!(element_at(problem, "key_end", at));
    }
    keys
}

/// The score program and dropout.
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
    let activations = op.activations(problem.tensor("q").dtype);
    let emitted = score.program.emit_with(&identifiers, &outputs, &mut names, activations);
    let mut parameters = json!({
        "modified": score.is_modified(),
        "masked": score.is_masked(),
        "reads": score.reads_tensors(),
        "long": score.is_long(),
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
