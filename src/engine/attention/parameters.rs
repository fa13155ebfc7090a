//! Template parameters of a problem.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::dtype::DType;
use crate::engine::attention::problem::Problem;
use crate::engine::attention::score::Source;
use crate::engine::attention::turns::raster_pairs;
use crate::engine::signature::{ctype, kernel_parameter};
use crate::expr::{Emission, EmittedProgram, Identifiers, Program, Value};
use crate::graph::{AttentionShape, Band, Diagonal};
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Names of a tensor's strides.
const AXES: [&str; 4] = ["BATCH", "HEAD", "ROW", "COLUMN"];

/// What every template reads (`attention/problem.cuh`, `attention/sequence.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct ProblemParameters {
    index_type: &'static str,
    /// Type of accumulators.
    sum: &'static str,
    heads: i64,
    /// Query heads per kv head.
    group: i64,
    /// Whether the query heads of a group are packed into one tile.
    packs: bool,
    queries: i64,
    keys: i64,
    /// Head dimension of Q and K, and of V.
    depth: i64,
    width: i64,
    tensors: Vec<TensorParameters>,
    /// Declarations of workspace parameters.
    pub(super) scratch: Vec<&'static str>,
    fp8: bool,
    /// Type of the log-sum-exp, if it is stored.
    lse_type: Option<&'static str>,
    /// Functions of `device/ops/pointwise.cuh` that the kernel calls.
    functions: BTreeSet<&'static str>,
    /// Operators of `device/ops/reduce.cuh`.
    reductions: [&'static str; 2],
    reduces_across: bool,
    /// Whether the last number says how blocks take turns at tiles (`attention/tile_turns.cuh`).
    pub(super) takes_turns: bool,
    #[serde(flatten)]
    pub(super) sequence: SequenceParameters,
}

/// A tensor as a kernel parameter, with its strides if it is in memory.
#[derive(Debug, Clone, Serialize)]
struct TensorParameters {
    name: &'static str,
    declaration: String,
    text: String,
    strides: Vec<Stride>,
    offset: String,
}

#[derive(Debug, Clone, Serialize)]
struct Stride {
    name: &'static str,
    value: i64,
}

/// Location and number of the queries and keys of a sequence.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SequenceParameters {
    /// Whether data limits either number.
    limits: bool,
    query_length: Option<String>,
    key_length: Option<String>,
    ragged_queries: Option<Ragged>,
    ragged_keys: Option<Ragged>,
    paged: Option<Paged>,
    /// Whether Q, K and V are accessed through tensor maps alone.
    mapped: bool,
    /// Whether keys have gradients.
    key_results: bool,
    /// Coordinates of a query's and a key's row.
    pub(super) q_batch: &'static str,
    q_row: &'static str,
    pub(super) k_batch: &'static str,
    k_row: &'static str,
}

/// Rows of sequences one behind the other.
#[derive(Debug, Clone, Serialize)]
struct Ragged {
    begin: String,
    end: String,
}

#[derive(Debug, Clone, Serialize)]
struct Paged {
    /// Keys of a page.
    size: i64,
    /// Pages, and pages of a sequence.
    count: i64,
    each: i64,
    /// An element of the page table.
    entry: String,
}

/// What kernels that compute scores read (`attention/mask_range.cuh`, `attention/score.cuh`).
#[derive(Debug, Clone, Serialize)]
pub(super) struct ScoreParameters {
    /// The operation and its operands, line by line.
    listing: Vec<String>,
    /// Bounds of the unmasked keys, relative to the query's own.
    left: Option<String>,
    right: Option<String>,
    bottom_right: bool,
    intervals: Option<Interval>,
    /// Whether the score program changes scores, masks them, is long.
    modified: bool,
    masked: bool,
    long: bool,
    inputs: Vec<Input>,
    lines: Vec<String>,
    dropout: Option<Dropout>,
}

/// What the attention kernels read besides.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AttentionParameters {
    #[serde(flatten)]
    score: ScoreParameters,
    /// Whether the score program reads tensors.
    reads: bool,
    /// Whether tiles with the most keys come last, and so are started first.
    descending: bool,
    /// Pairs of batch and heads whose tiles run at the same time (`attention/rasterize.cuh`).
    raster_pairs: i64,
    o_type: &'static str,
    /// Elements at the coordinates of a score.
    sinks: Option<String>,
    descale_v: Option<String>,
}

/// The unmasked keys of a query.
#[derive(Debug, Clone, Serialize)]
struct Interval {
    begin: String,
    end: String,
}

/// An input of the score program, or of its derivative.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Input {
    name: String,
    ctype: &'static str,
    value: String,
}

#[derive(Debug, Clone, Serialize)]
struct Dropout {
    kept_max: u32,
    /// Of P that is kept.
    scale: String,
    seed: String,
    offset: String,
}

/// Parameters of a kernel to which the tensors of these slots are passed, with their canonical
/// positions, and that calls `functions`.
pub(super) fn problem_parameters(
    problem: &Problem<'_>,
    passed: &[(&'static str, usize)],
    packs: bool,
    functions: BTreeSet<&'static str>,
) -> ProblemParameters {
    let AttentionShape { heads, queries, keys, depth, width, .. } = problem.shape;
    let statistics = problem.op.statistics;
    ProblemParameters {
        index_type: index_type(problem),
        sum: if problem.is_double() { "f64" } else { "float" },
        heads: heads.max(1),
        group: problem.shape.group(),
        packs,
        queries,
        keys,
        depth,
        width,
        tensors: passed.iter().map(|(slot, at)| tensor(problem, slot, *at)).collect(),
        scratch: Vec::new(),
        fp8: ["q", "k", "v"].iter().any(|slot| problem.tensor(slot).dtype.is_f8()),
        lse_type: statistics.then(|| ctype(problem.tensor("lse").dtype)),
        functions,
        reductions: ["Add", "Max"],
        reduces_across: false,
        takes_turns: false,
        sequence: sequence(problem, !passed.iter().any(|(slot, _)| *slot == "q")),
    }
}

/// Parameters of an attention kernel, with the functions that its score program calls; `packs` as
/// for [`problem_parameters`].
pub(super) fn attention_parameters(
    problem: &Problem<'_>,
    target: &Target,
    packs: bool,
) -> (AttentionParameters, BTreeSet<&'static str>) {
    let op = problem.op;
    let (score, functions) = score_parameters(problem, listing(problem, forward_lines(problem)));
    let parameters = AttentionParameters {
        score,
        reads: problem.score.reads_tensors(),
        descending: op.band.right.is_some(),
        raster_pairs: raster_pairs(problem, target, packs),
        o_type: ctype(problem.tensor("o").dtype),
        sinks: op.sinks.then(|| element(problem, "sinks")),
        descale_v: op.descale_v.then(|| element(problem, "descale_v")),
    };
    (parameters, functions)
}

/// Parameters of a kernel that computes scores, with the functions that the score program calls.
pub(super) fn score_parameters(
    problem: &Problem<'_>,
    listing: Vec<String>,
) -> (ScoreParameters, BTreeSet<&'static str>) {
    let (op, score) = (problem.op, &problem.score);
    let Band { diagonal, left, right } = op.band;
    // A window larger than all keys has no effect.
    let reach = problem.shape.queries + problem.shape.keys;
    let bound = |keys: i64| keys.min(reach).to_string();
    let interval = || {
        let at = ["of.batch", "head", "query", "0"];
        let [begin, end] = ["key_begin", "key_end"].map(|slot| element_at(problem, slot, at));
        Interval { begin, end }
    };
    let dropout = || Dropout {
        kept_max: op.kept_max(),
        scale: literal(problem, op.dropout_scale()),
        seed: element(problem, "seed"),
        offset: element(problem, "offset"),
    };
    let (inputs, emitted) = emitted(problem, &score.program, "keep");
    let parameters = ScoreParameters {
        listing,
        left: left.map(bound),
        right: right.map(bound),
        bottom_right: diagonal == Diagonal::BottomRight,
        intervals: op.intervals.then(interval),
        modified: score.is_modified(),
        masked: score.is_masked(),
        long: score.is_long(),
        inputs,
        lines: emitted.lines,
        dropout: op.dropout.is_some().then(dropout),
    };
    (parameters, emitted.functions)
}

/// The lines of a program over scores, and the inputs that they read; a second result, or an input
/// behind those of the score program, has the name `other`.
pub(super) fn emitted(
    problem: &Problem<'_>,
    program: &Program,
    other: &str,
) -> (Vec<Input>, EmittedProgram) {
    let mut names = Identifiers::new();
    let own = ["score", "batch", "head", "query", "key", "result", other, "t"];
    let own = own.map(|name| names.fresh(name));
    let (mut identifiers, mut inputs) = (Vec::new(), Vec::new());
    for (at, input) in program.inputs().iter().enumerate() {
        let ctype = input.dtype().register();
        match problem.score.sources.get(at) {
            None => identifiers.push(own[6].clone()),
            Some(Source::Score) => identifiers.push(own[0].clone()),
            // Coordinates are integers in the kernel.
            Some(Source::Coordinate(axis)) => {
                identifiers.push(format!("{ctype}({})", own[axis + 1]));
            }
            Some(Source::Tensor(slot)) => {
                let name = names.fresh(slot);
                if program.reads(Value::Input(at)) {
                    let value = element(problem, slot);
                    inputs.push(Input { name: name.clone(), ctype, value });
                }
                identifiers.push(name);
            }
        }
    }
    let activations = problem.op.activations(problem.tensor("q").dtype);
    let emission = Emission { activations, shared: &[] };
    let outputs = [own[5].clone(), own[6].clone()];
    (inputs, program.emit_with(&identifiers, &outputs, &mut names, emission))
}

/// The KV head of query head `h`.
fn kv_head(problem: &Problem<'_>) -> String {
    match problem.shape.group() {
        ..=1 => "h".to_owned(),
        group => format!("h / {group}"),
    }
}

/// The scores before they are modified.
pub(super) fn score_line(problem: &Problem<'_>) -> String {
    let (kv, scale) = (kv_head(problem), problem.op.scale_of(problem.shape.depth));
    format!("s[b, h, i, j] = {scale} q[b, h, i] . k[b, {kv}, j]")
}

/// What the forward operation computes.
fn forward_lines(problem: &Problem<'_>) -> Vec<String> {
    let kv = kv_head(problem);
    let result = format!("o[b, h, i] = sum over j of softmax_j(s[b, h, i, j]) v[b, {kv}, j]");
    vec![result, score_line(problem)]
}

/// The operation, after `lines` that say what is computed, and its operands, line by line.
pub(super) fn listing(problem: &Problem<'_>, mut lines: Vec<String>) -> Vec<String> {
    let (op, shape) = (problem.op, &problem.shape);
    let AttentionShape { heads, kv_heads, queries, keys, depth, width, .. } = *shape;
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
        "{heads} heads of q, {kv_heads} of k and v, seqlen_q {queries}, seqlen_k {keys}, head_dim \
         {depth}, of v {width}; batch size B and rows T of all sequences at run time"
    ));
    lines.extend(problem.passed().map(|(slot, at)| described(problem, slot, at)));
    lines
}

/// A tensor by its slot, with the extents that a kernel is made for.
fn described(problem: &Problem<'_>, slot: &str, at: usize) -> String {
    let (op, tensor) = (problem.op, &problem.graph.tensors[at]);
    let is_key = matches!(slot, "k" | "v" | "dk" | "dv");
    let ragged = if is_key { op.keys_max } else { op.queries_max }.is_some();
    let extent = |(axis, dim): (usize, &i64)| match axis {
        0 if slot.ends_with("_offsets") => "B + 1".to_owned(),
        0 if *dim > 1 && !(is_key && op.paged) => "B".to_owned(),
        2 if ragged && has_rows(slot) => "T".to_owned(),
        _ => dim.to_string(),
    };
    let dims: Vec<String> = tensor.dims.iter().enumerate().map(extent).collect();
    let by_value = if tensor.by_value { " by value" } else { "" };
    format!("{slot}: {}[{}]{by_value}", tensor.dtype, dims.join(", "))
}

/// Whether a tensor has a row for each query or key.
fn has_rows(slot: &str) -> bool {
    matches!(slot, "q" | "k" | "v" | "o" | "lse" | "do" | "dlse" | "dq" | "dk" | "dv")
}

/// The run-time numbers of a kernel, behind its tensors and workspace.
pub(super) fn numbers(problem: &Problem<'_>) -> Vec<i64> {
    let op = problem.op;
    let total = |slot: &str, ragged: bool| ragged.then(|| problem.tensor(slot).dims[2]);
    let totals = [total("q", op.queries_max.is_some()), total("k", op.keys_max.is_some())];
    std::iter::once(problem.shape.batches.max(1)).chain(totals.into_iter().flatten()).collect()
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

fn tensor(problem: &Problem<'_>, slot: &'static str, at: usize) -> TensorParameters {
    let tensor = &problem.graph.tensors[at];
    let strides: Vec<i64> = match tensor.by_value {
        true => Vec::new(),
        false => tensor.dims.iter().zip(&tensor.strides).map(stride).collect(),
    };
    let terms: Vec<String> = ["batch", "head", "row", "column"]
        .into_iter()
        .zip(AXES)
        .zip(&strides)
        .filter(|(_, stride)| **stride != 0)
        .map(|((coordinate, axis), stride)| match stride {
            1 => coordinate.to_owned(),
            _ => format!("{coordinate} * {axis}"),
        })
        .collect();
    let named = AXES.iter().zip(&strides).map(|(name, value)| Stride { name, value: *value });
    TensorParameters {
        name: slot,
        // `do` is a word of C++.
        declaration: kernel_parameter(problem.graph, at, if slot == "do" { "do_" } else { slot }),
        text: described(problem, slot, at),
        strides: named.collect(),
        offset: if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") },
    }
}

/// Stride of a dimension, 0 where its extent is 1.
fn stride((dim, stride): (&i64, &i64)) -> i64 {
    if *dim == 1 { 0 } else { *stride }
}

/// C++ expression of an operand's element at the coordinates of a score, in its register type;
/// `int` for lengths, offsets and pages.
pub(super) fn element(problem: &Problem<'_>, slot: &str) -> String {
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

fn sequence(problem: &Problem<'_>, mapped: bool) -> SequenceParameters {
    let op = problem.op;
    let ragged = |slot: &str| {
        let at = |batch: &str| element_at(problem, slot, [batch, "0", "0", "0"]);
        Ragged { begin: at("batch"), end: at("batch + 1") }
    };
    let (q_batch, q_row) = match op.queries_max {
        None => ("of.batch", "query"),
        Some(_) => ("0", "of.first_query + query"),
    };
    let (k_batch, k_row) = match (op.keys_max, op.paged) {
        (Some(_), _) => ("0", "of.first_key + key"),
        (None, true) => ("page_of(t, of, key)", "key % PAGE"),
        (None, false) => ("of.batch", "key"),
    };
    let paged = || {
        let k = problem.tensor("k");
        Paged {
            size: k.dims[2].max(1),
            count: k.dims[0],
            each: problem.tensor("page_table").dims[3],
            entry: element_at(problem, "page_table", ["of.batch", "0", "0", "page"]),
        }
    };
    let lengths = op.query_lengths || op.key_lengths || op.paged;
    SequenceParameters {
        limits: lengths || op.queries_max.is_some() || op.keys_max.is_some(),
        query_length: op.query_lengths.then(|| element(problem, "query_lengths")),
        key_length: op.key_lengths.then(|| element(problem, "key_lengths")),
        ragged_queries: op.queries_max.map(|_| ragged("query_offsets")),
        ragged_keys: op.keys_max.map(|_| ragged("key_offsets")),
        paged: op.paged.then(paged),
        mapped,
        key_results: problem.at("dk").is_some(),
        q_batch,
        q_row,
        k_batch,
        k_row,
    }
}
