//! Attention as two products with a softmax between them, for what no engine takes whole: its
//! scores are stored.
//!
//! Heads of queries become two dimensions, those of keys and the queries of each: `[B, Hkv, G, Sq,
//! ..]`. Keys are seen transposed.

use crate::dtype::DType;
use crate::engine::attention::{Score, Source, score};
use crate::engine::expand::calculus::Calculus;
use crate::engine::expand::named::Named;
use crate::error::{Error, Result};
use crate::expr::{Math, Mode, NanPropagation, Pointwise, Value};
use crate::graph::{
    Attention, AttentionShape, Band, CanonicalGraph, Diagonal, Matmul, Op, Operation, ReductionOp,
};
use crate::tensor::TensorDesc;

/// Positions are numbers in the precision that is computed in: f32 holds so many.
const POSITIONS_MAX: i64 = 1 << 24;

/// Which axes count queries and keys.
const QUERY: i64 = 3;
const KEY: i64 = 4;

fn refuse<T>(rule: String) -> Result<T> {
    Err(Error::not_supported(format!("attention as products: {rule}")))
}

/// Tensors and operations of a graph of one attention.
///
/// # Errors
/// `NotSupported` for other operations beside it, keys in pages, sequences one behind the other,
/// dropout, operands of 8 bits or by value, one tensor as two operands, extents of 0 or too many
/// positions.
pub(super) fn expanded(
    graph: CanonicalGraph<'_>,
    op: &Attention,
) -> Result<(Vec<TensorDesc>, Vec<Operation>)> {
    let [operation] = graph.operations else {
        return refuse(
            "there are other operations, which may see its tensors otherwise".to_owned(),
        );
    };
    let inputs: Vec<&TensorDesc> =
        operation.inputs.iter().map(|at| &graph.tensors[*at as usize]).collect();
    let shape = op.shape(&inputs)?;
    check(op, &shape, operation, &inputs)?;
    let named = Named { slots: operation.op.slots(), operation };
    let mut calculus = Calculus::new(graph.tensors.to_vec());
    calculus.math = Math::of(operation.op.math());
    for (slot, uid) in named.slots.inputs.iter().zip(&operation.inputs) {
        view(slot, &shape, &mut calculus.tensors[*uid as usize]);
    }
    for (slot, uid) in named.slots.outputs.iter().zip(&operation.outputs) {
        view(slot, &shape, &mut calculus.tensors[*uid as usize]);
    }
    let score = score(op, &shape, &named.slots, &inputs);
    Expansion { op, shape, named: &named, calculus: &mut calculus }.write(&score);
    let operations = needed(&calculus);
    Ok((calculus.tensors, operations))
}

/// The operations whose results are read or stored.
fn needed(calculus: &Calculus) -> Vec<Operation> {
    let mut kept: Vec<Operation> = Vec::new();
    for operation in calculus.operations.iter().rev() {
        let is_read = |uid: &i64| kept.iter().any(|later| later.inputs.contains(uid));
        let is_needed = |uid: &i64| !calculus.tensors[*uid as usize].is_virtual || is_read(uid);
        if operation.outputs.iter().any(is_needed) {
            kept.push(operation.clone());
        }
    }
    kept.reverse();
    kept
}

fn check(
    op: &Attention,
    shape: &AttentionShape,
    operation: &Operation,
    inputs: &[&TensorDesc],
) -> Result<()> {
    let given = [
        (op.paged, "keys in pages"),
        (op.queries_max.is_some(), "queries of sequences one behind the other"),
        (op.keys_max.is_some(), "keys of sequences one behind the other"),
        (op.dropout.is_some(), "dropout"),
    ];
    if let Some((_, name)) = given.into_iter().find(|(given, _)| *given) {
        return refuse(name.to_owned());
    }
    let storage = |tensor: &&&TensorDesc| tensor.dtype.is_f8() || tensor.by_value;
    if let Some(TensorDesc { name, dtype, .. }) = inputs[..3].iter().find(storage) {
        return refuse(format!("`{name}` is {dtype} or by value"));
    }
    for (at, uid) in operation.inputs.iter().enumerate() {
        if operation.inputs[..at].contains(uid) {
            return refuse(format!("`{}` is two operands", inputs[at].name));
        }
    }
    let scores = shape.scores();
    if scores.contains(&0) {
        return refuse(format!("there are no scores: {scores:?}"));
    }
    match scores[2].max(scores[3]) {
        most if most > POSITIONS_MAX => refuse(format!("{most} positions, more than 2^24")),
        _ => Ok(()),
    }
}

/// A tensor as products and pointwise operations see it.
fn view(slot: &str, shape: &AttentionShape, tensor: &mut TensorDesc) {
    let group = shape.group();
    let ([heads, of_head], [outer, inner]) = match (slot, tensor.dims[1], tensor.strides[1]) {
        (_, 1, stride) => ([1, 1], [stride, stride]),
        ("k" | "v" | "descale_k" | "descale_v", heads, stride) => ([heads, 1], [stride, stride]),
        (_, heads, stride) => ([heads / group, group], [stride.saturating_mul(group), stride]),
    };
    tensor.dims.splice(1..2, [heads, of_head]);
    tensor.strides.splice(1..2, [outer, inner]);
    if slot == "k" {
        tensor.dims.swap(3, 4);
        tensor.strides.swap(3, 4);
    }
}

struct Expansion<'a> {
    op: &'a Attention,
    shape: AttentionShape,
    named: &'a Named<'a>,
    calculus: &'a mut Calculus,
}

impl Expansion<'_> {
    fn write(mut self, score: &Score) {
        let Expansion { op, shape, named, .. } = self;
        let AttentionShape { kv_heads, queries, keys, width, batches, .. } = shape;
        let rows = [batches, kv_heads, shape.group(), queries];
        let of_row = |elements: i64| [&rows[..], &[elements]].concat();
        let product = self.product("product", ["q", "k"].map(|slot| named.operand(slot)), keys);
        let (result, kept) = match score.is_modified() {
            true => self.modified(score, product),
            false => (self.calculus.scaled("scaled", product, op.scale_of(shape.depth)), None),
        };
        let result = self.whole(result, product);
        let scores = self.masked(result, kept);
        let mut most = self.calculus.reduce_named("most", ReductionOp::Max, scores, &of_row(1));
        if let Some(sinks) = named.given("sinks") {
            most = self.calculus.binary("most", Mode::Max, most, sinks);
        }
        // Of a row with nothing to attend to all weights are 0.
        let (zero, never) = (self.constant(most, 0.0), self.constant(most, f64::NEG_INFINITY));
        let some = self.calculus.binary("some", Mode::CmpGt, most, never);
        let base = self.select("base", most, zero, some);
        let relative = self.calculus.binary("relative", Mode::Sub, scores, base);
        let weights = self.calculus.unary("weights", Mode::Exp, relative);
        let mut sum = self.calculus.reduce_named("sum", ReductionOp::Add, weights, &of_row(1));
        if let Some(sinks) = named.given("sinks") {
            let relative = self.calculus.binary("relative_sink", Mode::Sub, sinks, base);
            let weight = self.calculus.unary("sink", Mode::Exp, relative);
            sum = self.calculus.binary("sum", Mode::Add, sum, weight);
        }
        let values = named.operand("v");
        let weights = self.rounded(weights, self.calculus.tensors[values as usize].dtype);
        let total = self.product("total", [weights, values], width);
        let is_empty = self.calculus.unary("is_empty", Mode::LogicalNot, sum);
        let divisor = self.calculus.binary("divisor", Mode::Add, sum, is_empty);
        match named.given("descale_v") {
            None => {
                let divide = Pointwise::new(Mode::Div);
                self.calculus.apply_into(divide, &[total, divisor], named.result("o"));
            }
            Some(descale) => {
                let mean = self.calculus.binary("mean", Mode::Div, total, divisor);
                let scale = Pointwise::new(Mode::Mul);
                self.calculus.apply_into(scale, &[mean, descale], named.result("o"));
            }
        }
        if let Some(lse) = named.wanted("lse") {
            let log = self.calculus.unary("log", Mode::Log, sum);
            self.calculus.apply_into(Pointwise::new(Mode::Add), &[base, log], lse);
        }
    }

    /// A product of matrices in the precision that is computed in, with so many columns.
    fn product(&mut self, name: &str, operands: [i64; 2], columns: i64) -> i64 {
        let mut dims = self.calculus.dims(operands[0]).to_vec();
        dims[4] = columns;
        let dtype = self.op.score_dtype();
        let result = self.calculus.intermediate(name, &dims, dtype);
        let op = Op::Matmul(Matmul::new(self.op.math));
        let (inputs, outputs) = (operands.to_vec(), vec![result]);
        self.calculus.operations.push(Operation { op, inputs, outputs });
        result
    }

    /// Weights of 16-bit values may be rounded to their type: tensor cores take both.
    fn rounded(&mut self, weights: i64, dtype: DType) -> i64 {
        if dtype.bytes() != 2 || self.op.score_dtype() == DType::F64 {
            return weights;
        }
        let dims = self.calculus.dims(weights).to_vec();
        let rounded = self.calculus.intermediate("rounded", &dims, dtype);
        self.calculus.store(weights, rounded);
        rounded
    }

    /// A number for every element of a tensor: clipping to it makes it of anything.
    fn constant(&mut self, like: i64, value: f64) -> i64 {
        let clip = Pointwise::new(Mode::ReluFwd).relu(value, value, 0.0);
        let clip = clip.nan(NanPropagation::NotPropagate);
        self.calculus.apply("constant", clip, &[like])
    }

    fn select(&mut self, name: &str, then: i64, otherwise: i64, test: i64) -> i64 {
        let select = Pointwise::new(Mode::BinarySelect);
        self.calculus.apply(name, select, &[then, otherwise, test])
    }

    fn index(&mut self, name: &str, like: i64, axis: i64) -> i64 {
        self.calculus.apply(name, Pointwise::new(Mode::GenIndex).axis(axis), &[like])
    }

    /// The scores of products, and what is 0 where the key takes no part.
    fn modified(&mut self, score: &Score, product: i64) -> (i64, Option<i64>) {
        let inputs: Vec<i64> =
            score.sources.iter().map(|source| self.input(*source, product)).collect();
        let mut results: Vec<i64> = Vec::new();
        for line in score.program.instructions() {
            let operand = |value: &Value| match value {
                Value::Input(at) => inputs[*at],
                Value::Result(at) => results[*at],
            };
            let mut operands: Vec<i64> = line.operands.iter().map(operand).collect();
            let mut op = line.op;
            if op.mode == Mode::BinarySelect {
                operands.iter_mut().for_each(|operand| *operand = self.whole(*operand, product));
                op = op.math(Math::Default);
            }
            results.push(self.calculus.apply(&line.name, op, &operands));
        }
        let mut outputs = score.program.outputs().iter().map(|value| match value {
            Value::Input(at) => inputs[*at],
            Value::Result(at) => results[*at],
        });
        (outputs.next().expect("a score has an output"), outputs.next())
    }

    fn input(&mut self, source: Source, product: i64) -> i64 {
        match source {
            Source::Score => product,
            Source::Coordinate(0) => self.index("batch", product, 0),
            Source::Coordinate(1) => {
                let [outer, inner] = [1, 2].map(|axis| self.index("head", product, axis));
                let first = self.calculus.scaled("first", outer, self.shape.group() as f64);
                self.calculus.binary("head", Mode::Add, first, inner)
            }
            Source::Coordinate(2) => self.index("query", product, QUERY),
            Source::Coordinate(_) => self.index("key", product, KEY),
            Source::Tensor(slot) => self.named.operand(slot),
        }
    }

    /// A tensor with an element for every score: selections do not broadcast.
    fn whole(&mut self, tensor: i64, product: i64) -> i64 {
        if self.calculus.dims(tensor) == self.calculus.dims(product) {
            return tensor;
        }
        let one = self.constant(product, 1.0);
        self.calculus.binary("whole", Mode::Mul, one, tensor)
    }

    /// Scores, minus infinity where bounds or masks leave out the key.
    fn masked(&mut self, scores: i64, kept: Option<i64>) -> i64 {
        let mut conditions = self.bounds(scores).into_iter().chain(kept);
        let Some(first) = conditions.next() else { return scores };
        let keep = conditions
            .fold(first, |all, one| self.calculus.binary("kept", Mode::LogicalAnd, all, one));
        let keep = self.whole(keep, scores);
        let never = self.constant(scores, f64::NEG_INFINITY);
        self.select("masked", scores, never, keep)
    }

    /// An operand of integers, those of 64 bits limited to what 32 hold.
    fn integers(&mut self, slot: &str) -> Option<i64> {
        let given = self.named.given(slot)?;
        if self.calculus.tensors[given as usize].dtype != DType::I64 {
            return Some(given);
        }
        let dims = self.calculus.dims(given).to_vec();
        let limited = self.calculus.intermediate(slot, &dims, DType::I32);
        self.calculus.store(given, limited);
        Some(limited)
    }

    /// What is 0 where lengths, the band or intervals leave out a key.
    fn bounds(&mut self, scores: i64) -> Vec<i64> {
        let AttentionShape { queries, keys, .. } = self.shape;
        let [query, key] =
            [("query", QUERY), ("key", KEY)].map(|(name, axis)| self.index(name, scores, axis));
        let lengths = [("query_lengths", queries), ("key_lengths", keys)];
        let [query_length, key_length] = lengths.map(|(slot, most)| {
            let limit = Pointwise::new(Mode::ReluFwd).relu(0.0, most as f64, 0.0);
            {
                let length = self.integers(slot)?;
                Some(self.calculus.apply(slot, limit, &[length]))
            }
        });
        let mut found = Vec::new();
        let less = |calculus: &mut Calculus, a, b| calculus.binary("within", Mode::CmpLt, a, b);
        found.extend(query_length.map(|length| less(self.calculus, query, length)));
        found.extend(key_length.map(|length| less(self.calculus, key, length)));
        let begin = self.integers("key_begin");
        found.extend(begin.map(|from| self.calculus.binary("behind", Mode::CmpGe, key, from)));
        let end = self.integers("key_end");
        found.extend(end.map(|end| less(self.calculus, key, end)));
        let Band { diagonal, left, right } = self.op.band;
        if left.is_none() && right.is_none() {
            return found;
        }
        // The distance of a key from the diagonal.
        let mut distance = self.calculus.binary("distance", Mode::Sub, key, query);
        if diagonal == Diagonal::BottomRight {
            for (name, length, most, mode) in [
                ("from_end", key_length, keys, Mode::Sub),
                ("from_diagonal", query_length, queries, Mode::Add),
            ] {
                let length = length.unwrap_or_else(|| self.constant(scores, most as f64));
                distance = self.calculus.binary(name, mode, distance, length);
            }
        }
        // A window beyond all keys is as good as none.
        let reach = queries + keys;
        for (most, sign, mode) in [(left, -1.0, Mode::CmpGe), (right, 1.0, Mode::CmpLe)] {
            let Some(most) = most else { continue };
            let most = self.constant(scores, sign * most.min(reach) as f64);
            found.push(self.calculus.binary("in_band", mode, distance, most));
        }
        found
    }
}
