//! Scaled dot-product attention, query by query.

use crate::expr::{Activations, Mode, Pointwise, Program};
use crate::graph::{
    Attention, AttentionShape, Band, Diagonal, MatmulMath, Op, ScoreInput, Slots, score_inputs,
};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::index::{broadcast_position, count, unravel};
use crate::reference::{Expected, Operand, bound, matmul};
use crate::tensor::TensorDesc;

/// Minimum number of keys that an implementation processes per online-softmax step, that is per
/// rescale of its accumulators.
const KEYS_MIN: f64 = 8.0;

pub(super) fn evaluate(
    op: &Attention,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let of = Evaluation::of(op, operands);
    let shape = of.shape;
    // Rows outside every sequence are not written.
    let open = Approx::anything(0.0);
    let rows = &operands[0].desc.dims[..3];
    let mut values = vec![open; count(rows) * shape.width as usize];
    let mut sums = vec![open; count(rows)];
    for row in 0..count(&shape.rows()) as i64 {
        let index = unravel(row, &shape.rows());
        let row = [index[0], index[1], index[2]];
        let Some(query) = of.query(row) else { continue };
        let (result, sum) = of.row(row, &of.scores(row));
        values.splice(query * result.len()..(query + 1) * result.len(), result);
        sums[query] = sum;
    }
    let results = [values, sums].into_iter().zip(outputs);
    results.map(|(values, tensor)| Expected::stored(values, tensor)).collect()
}

/// An attention and its operands, which others may follow.
pub(super) struct Evaluation<'a> {
    op: &'a Attention,
    pub shape: AttentionShape,
    slots: Slots,
    pub operands: &'a [Operand<'a>],
    arithmetic: Arithmetic,
}

/// Distance below row_max at which exponentials underflow f32.
const NEGLIGIBLE: f64 = 110.0;

/// The score of an unmasked key.
pub(super) struct Score {
    pub key: i64,
    pub score: Approx,
    /// Whether a program may or may not mask the key, within its error.
    pub undecided: bool,
}

/// A score on its way through its modifications.
pub(super) struct Stages {
    /// Before the first soft cap.
    pub scaled: Approx,
    /// Before the last one.
    pub biased: Approx,
    /// Before the program.
    pub modified: Approx,
}

/// Exponential of a score relative to row_max.
struct Weight {
    value: f64,
    /// Error bound.
    error: f64,
}

impl<'a> Evaluation<'a> {
    pub fn of(op: &'a Attention, operands: &'a [Operand<'a>]) -> Evaluation<'a> {
        let descs: Vec<&TensorDesc> = operands.iter().map(|operand| operand.desc).collect();
        let shape = op.shape(&descs).expect("the operation was checked");
        let slots = Op::Attention(op.clone()).slots();
        let arithmetic = Arithmetic::new(op.score_dtype());
        Evaluation { op, shape, slots, operands, arithmetic }
    }

    fn operand(&self, slot: &str) -> Option<&Operand<'_>> {
        let at = self.slots.inputs.iter().position(|name| *name == slot)?;
        Some(&self.operands[at])
    }

    /// Element of an operand at an index, with dimensions of extent 1 broadcast.
    pub fn element(&self, slot: &str, index: &[i64]) -> Option<Approx> {
        let operand = self.operand(slot)?;
        let at = broadcast_position(index, &operand.desc.dims);
        Some(operand.at(self.arithmetic, at))
    }

    /// Integer element of an operand.
    fn integer(&self, slot: &str, index: &[i64]) -> Option<i64> {
        let operand = self.operand(slot)?;
        Some(operand.expected.values[broadcast_position(index, &operand.desc.dims)] as i64)
    }

    /// First and end row of a sequence in a concatenation of `all` rows.
    fn sequence(&self, offsets: &str, batch: i64, all: i64) -> Option<[i64; 2]> {
        let at = |batch: i64| self.integer(offsets, &[batch, 0, 0, 0]);
        let begin = at(batch)?.clamp(0, all);
        Some([begin, at(batch + 1)?.clamp(begin, all)])
    }

    /// Row of a query in `q`, if the sequence has it.
    pub fn query(&self, [batch, head, query]: [i64; 3]) -> Option<usize> {
        let AttentionShape { heads, .. } = self.shape;
        let all = self.operands[0].desc.dims[2];
        let row = match self.sequence("query_offsets", batch, all) {
            None => (batch * heads + head) * all + query,
            Some([begin, end]) if query < end - begin => head * all + begin + query,
            Some(_) => return None,
        };
        Some(row as usize)
    }

    /// Row of a key in `k` and `v`.
    pub fn key(&self, [batch, head, key]: [i64; 3]) -> i64 {
        let AttentionShape { kv_heads, .. } = self.shape;
        // Keys need no head of queries to have gradients.
        let head = head / self.shape.group().max(1);
        let [outer, all] = [0, 2].map(|axis| self.operands[1].desc.dims[axis]);
        if let Some([begin, _]) = self.sequence("key_offsets", batch, all) {
            return head * all + begin + key;
        }
        match self.integer("page_table", &[batch, 0, 0, key / all.max(1)]) {
            None => (batch * kv_heads + head) * all + key,
            Some(page) => (page.clamp(0, outer - 1) * kv_heads + head) * all + key % all,
        }
    }

    /// Row of a key in `k` and `v`, if the sequence has it.
    pub fn key_row(&self, at: [i64; 3]) -> Option<usize> {
        let all = self.operands[1].desc.dims[2];
        match self.sequence("key_offsets", at[0], all) {
            Some([begin, end]) if at[2] >= end - begin => None,
            _ => Some(self.key(at) as usize),
        }
    }

    /// Queries and keys of a sequence.
    fn lengths(&self, batch: i64) -> [i64; 2] {
        let AttentionShape { queries, keys, .. } = self.shape;
        let own = |slot: &str, offsets: &str, operand: usize, extent: i64| {
            let sequence = self.sequence(offsets, batch, self.operands[operand].desc.dims[2]);
            let extent = sequence.map_or(extent, |[begin, end]| (end - begin).min(extent));
            self.integer(slot, &[batch, 0, 0, 0]).map_or(extent, |own| own.clamp(0, extent))
        };
        let queries = own("query_lengths", "query_offsets", 0, queries);
        [queries, own("key_lengths", "key_offsets", 1, keys)]
    }

    /// Whether a query lies beyond the length of its sequence.
    pub fn is_behind(&self, [batch, _, query]: [i64; 3]) -> bool {
        query >= self.lengths(batch)[0]
    }

    /// Range of keys `[begin, end)` left by lengths, window and intervals.
    fn bounds(&self, [batch, head, query]: [i64; 3]) -> [i64; 2] {
        let [queries, keys] = self.lengths(batch);
        if query >= queries {
            return [0, 0];
        }
        let Band { diagonal, left, right } = self.op.band;
        let offset = match diagonal {
            Diagonal::TopLeft => 0,
            Diagonal::BottomRight => keys - queries,
        };
        let at = query + offset;
        let index = [batch, head, query, 0];
        let begin = self.integer("key_begin", &index).unwrap_or(0);
        let end = self.integer("key_end", &index).unwrap_or(keys);
        [
            begin.max(0).max(left.map_or(0, |left| at.saturating_sub(left))),
            end.min(keys)
                .min(right.map_or(keys, |right| at.saturating_add(right).saturating_add(1))),
        ]
    }

    /// Scores of the unmasked keys of a query.
    pub fn scores(&self, row: [i64; 3]) -> Vec<Score> {
        let [begin, end] = self.bounds(row);
        let [batch, head, query] = row;
        let score = |key: i64| {
            let index = [batch, head, query, key];
            let score = self.score(index);
            let masked = self.element("mask", &index).is_some_and(|mask| mask.value == 0.0);
            let keep = self.op.keep.as_deref().map(|keep| self.run(keep, "keep", index, score));
            let dropped = keep.is_some_and(|keep| keep.value == 0.0);
            let undecided = keep.is_some_and(|keep| keep.error != 0.0);
            let out = masked || (dropped && !undecided) || score.value == f64::NEG_INFINITY;
            (!out).then_some(Score { key, score, undecided })
        };
        (begin..end).filter_map(score).collect()
    }

    /// A modified score, before masking.
    fn score(&self, index: [i64; 4]) -> Approx {
        let score = self.stages(index).modified;
        match self.op.score.as_deref() {
            None => score,
            Some(program) => self.run(program, "score", index, score),
        }
    }

    /// A score until its program.
    pub fn stages(&self, index: [i64; 4]) -> Stages {
        let [batch, head, query, key] = index;
        let depth = self.shape.depth;
        let query_row = self.query([batch, head, query]).expect("the sequence has the query");
        let q = query_row as i64 * depth;
        let k = self.key([batch, head, key]) * depth;
        let terms = (0..depth).map(|at| ((q + at) as usize, (k + at) as usize));
        let product = matmul::dot(self.op.math, &self.operands[0], &self.operands[1], terms);
        let arithmetic = self.arithmetic;
        let scale = arithmetic.operand(self.op.scale_of(depth), 0.0);
        // An implementation may multiply the factors in another order, with one more rounding.
        let mut score = arithmetic.mul(arithmetic.mul(product, scale), Approx::exact(1.0));
        let kv_head = head / self.shape.group();
        if let Some(descale) = self.element("descale_q", &[batch, head, 0, 0]) {
            score = arithmetic.mul(score, descale);
        }
        if let Some(descale) = self.element("descale_k", &[batch, kv_head, 0, 0]) {
            score = arithmetic.mul(score, descale);
        }
        let capped = |score: Approx, last: bool| match self.op.softcap {
            Some(softcap) if softcap.last == last => self.capped(score, softcap.cap.get()),
            _ => score,
        };
        let scaled = score;
        score = capped(score, false);
        if let Some(bias) = self.element("bias", &index) {
            score = add(arithmetic, score, bias);
        }
        if let Some(slope) = self.element("slopes", &[0, head, 0, 0]) {
            let distance = Approx::exact((key - query) as f64);
            score = add(arithmetic, score, arithmetic.mul(slope, distance));
        }
        Stages { scaled, biased: score, modified: capped(score, true) }
    }

    /// Soft cap `cap * tanh(score / cap)`, whose slope is at most 1.
    fn capped(&self, score: Approx, cap: f64) -> Approx {
        let tanh = self.tanh_of(score, cap);
        self.arithmetic.mul(tanh, self.arithmetic.operand(cap, 0.0))
    }

    /// `tanh(score / cap)`.
    pub fn tanh_of(&self, score: Approx, cap: f64) -> Approx {
        let quotient = self.arithmetic.div(score, self.arithmetic.operand(cap, 0.0));
        let tanh = quotient.value.tanh();
        // Device functions are within 4 ulp of 1.
        let precise = 4.0 * self.epsilon();
        let own = match self.activations() {
            Activations::Precise => precise,
            activations => {
                let op = Pointwise::new(Mode::TanhFwd);
                let own = bound::approximate_error(activations, &op, quotient.value, tanh);
                own.map_or(precise, |own| own.max(precise))
            }
        };
        // The error is at most the range of tanh, but NaN may propagate.
        let moved = if quotient.error > 2.0 { 2.0 } else { quotient.error };
        Approx { value: tanh, error: moved + own }
    }

    pub fn activations(&self) -> Activations {
        self.op.activations(self.operands[0].desc.dtype)
    }

    /// Evaluates a program over scores.
    fn run(&self, program: &Program, name: &str, index: [i64; 4], score: Approx) -> Approx {
        let input = |input: ScoreInput| self.program_input(name, input, index, score);
        let inputs: Vec<Approx> = score_inputs(program).into_iter().map(input).collect();
        bound::program(program, &inputs, self.activations())[0]
    }

    /// An input of the program of this name.
    pub fn program_input(
        &self,
        name: &str,
        input: ScoreInput,
        index: [i64; 4],
        score: Approx,
    ) -> Approx {
        match input {
            ScoreInput::Score => score,
            ScoreInput::Coordinate(axis) => Approx::exact(index[axis] as f64),
            ScoreInput::Captured(at) => {
                let operand = self.operand(&format!("{name}_{at}"));
                let operand = operand.expect("the operation was checked");
                let position = broadcast_position(&index, &operand.desc.dims);
                let value = operand.expected.values[position];
                Approx { value, error: operand.expected.bounds[position] }
            }
        }
    }

    /// Result and log-sum-exp of a query.
    fn row(&self, row: [i64; 3], scores: &[Score]) -> (Vec<Approx>, Approx) {
        let width = self.shape.width as usize;
        let sink = self.element("sinks", &[0, row[1], 0, 0]);
        let all = || scores.iter().map(|score| score.score).chain(sink);
        let row_max = all().map(|score| score.value).fold(f64::NEG_INFINITY, f64::max);
        if row_max == f64::NEG_INFINITY && !all().any(|score| score.value.is_nan()) {
            return (vec![Approx::exact(0.0); width], Approx::exact(f64::NEG_INFINITY));
        }
        // An infinite score yields inf - inf.
        let infinite = |score: Approx| score.value > 0.0 && self.arithmetic.may_be_infinite(score);
        let certain = |score: Approx| score.value == f64::INFINITY && score.error.is_finite();
        if all().any(|score| score.is_certainly_nan() || certain(score)) {
            return (vec![Approx::exact(f64::NAN); width], Approx::exact(f64::NAN));
        }
        if all().any(|score| score.error.is_nan() || infinite(score)) {
            return (vec![Approx::anything(0.0); width], Approx::anything(0.0));
        }
        let weight = |score: Approx| self.weight(score, row_max, scores.len() as f64);
        let weights: Vec<Weight> = scores.iter().map(|score| weight(score.score)).collect();
        let sum = self.sum(&weights, sink.map(weight));
        // If a mask is undecided within the error, the row may hold any numbers.
        let undecided = scores.iter().any(|score| score.undecided);
        let open = |of: Approx| match undecided && !of.error.is_nan() {
            true => Approx { error: f64::INFINITY, ..of },
            false => of,
        };
        let kept = scores.iter().zip(&weights).filter(|(score, _)| self.kept(row, score.key));
        let placed = |(score, weight): (&Score, _)| (self.key([row[0], row[1], score.key]), weight);
        let terms: Vec<(i64, &Weight)> = kept.map(placed).collect();
        let result = |column: usize| open(self.result(row, column as i64, &terms, sum));
        // Scores far below row_max have negligible exponentials, whatever their error.
        let near = |score: &Approx| score.value + score.error >= row_max - NEGLIGIBLE;
        let reach = all().filter(near).map(|score| self.reach(score, row_max)).fold(0.0, f64::max);
        let epsilon = self.epsilon();
        let log = sum.value.ln();
        let error = sum.error / (sum.value - sum.error).max(0.0)
            + 4.0 * epsilon * (reach + log.abs() + 1.0);
        ((0..width).map(result).collect(), open(Approx { value: row_max + log, error }))
    }

    fn epsilon(&self) -> f64 {
        self.op.score_dtype().epsilon()
    }

    /// Largest magnitude in the subtraction of a score and any intermediate row_max.
    fn reach(&self, score: Approx, row_max: f64) -> f64 {
        let own = if score.value == f64::NEG_INFINITY { 0.0 } else { score.value.abs() };
        (own + score.error).max(row_max.abs())
    }

    /// Exponential of a score. The exponent is a difference of scores, converted to base 2; each
    /// update of row_max rescales by another such exponential.
    fn weight(&self, score: Approx, row_max: f64, keys: f64) -> Weight {
        let epsilon = self.epsilon();
        let scalings = 1.0 + keys / KEYS_MIN;
        let reach = self.reach(score, row_max);
        let moved = score.error + 8.0 * epsilon * reach * (1.0 + scalings);
        let exponent = score.value - row_max;
        let value = exponent.exp();
        let error = match moved.exp_m1() {
            relative if relative.is_finite() => {
                value * (relative + 4.0 * epsilon * (1.0 + scalings))
            }
            // A masked score remains negligible.
            _ => (exponent + moved).exp(),
        };
        Weight { value, error }
    }

    /// row_sum, including the sink.
    fn sum(&self, weights: &[Weight], sink: Option<Weight>) -> Approx {
        let all = || weights.iter().chain(&sink);
        let value = all().map(|of| of.value).sum::<f64>();
        let error = all().map(|of| of.error).sum::<f64>();
        let steps = weights.len() as f64 + 2.0;
        Approx { value, error: error + steps * self.epsilon() * value }
    }

    /// Sum of P times V, whose rows stand with their terms, divided by row_sum.
    fn result(&self, row: [i64; 3], column: i64, terms: &[(i64, &Weight)], sum: Approx) -> Approx {
        let [batch, head, _] = row;
        let width = self.shape.width;
        let (relative, least) = self.weight_rounding();
        let (mut value, mut error, mut magnitude, mut steps) = (0.0, 0.0, 0.0, 0.0);
        let mut open = false;
        for (key_row, weight) in terms {
            let v = self.value((key_row * width + column) as usize);
            let own = weight.error + (weight.value + weight.error) * relative + least;
            let vanishes = weight.value <= own + f64::from(f32::MIN_POSITIVE);
            value += weight.value * v.value;
            magnitude += weight.value * v.value.abs();
            steps += 1.0;
            open |= v.error.is_nan();
            if v.value.is_nan() {
                continue;
            }
            // An infinite value times a probability of 0 is NaN.
            open |= self.arithmetic.may_be_infinite(v) && (vanishes || !v.error.is_finite());
            error += match own.is_finite() && v.value.is_finite() {
                true => own * (v.value.abs() + v.error) + weight.value * v.error,
                false if own.is_finite() => 0.0,
                false => f64::INFINITY,
            };
        }
        let dtype = self.op.score_dtype();
        let own = (steps + 2.0) * (dtype.epsilon() * (magnitude + error) + dtype.smallest());
        let scale = self.arithmetic.operand(self.op.dropout_scale(), 0.0);
        let quotient = match value {
            // Infinities of both signs, or of one known sign.
            value if value.is_nan() && !open => Approx::exact(f64::NAN),
            value if open || error.is_nan() => Approx::anything(value),
            value if value.is_infinite() => Approx::exact(value),
            // Exponentials are positive, so the quotient is a number whatever its error.
            value if sum.error >= sum.value => {
                Approx { value: value / sum.value, error: f64::INFINITY }
            }
            value => self.arithmetic.div(Approx { value, error: error + own }, sum),
        };
        let result = self.arithmetic.mul(quotient, scale);
        match self.element("descale_v", &[batch, head / self.shape.group(), 0, 0]) {
            None => result,
            Some(descale) => self.arithmetic.mul(result, descale),
        }
    }

    /// Relative and minimum absolute error of rounding P to the MMA operand type.
    fn weight_rounding(&self) -> (f64, f64) {
        let types = [0, 1, 2].map(|at| self.operands[at].desc.dtype);
        let dtype = if types[2].is_f8() { Attention::product_dtype(types) } else { types[2] };
        match self.op.math {
            MatmulMath::F64 => (0.0, 0.0),
            _ if dtype.bytes() == 2 => (dtype.epsilon(), dtype.smallest()),
            MatmulMath::Tf32 => (matmul::TF32_EPSILON, 0.0),
            _ => (0.0, 0.0),
        }
    }

    /// Element of the values.
    fn value(&self, at: usize) -> Approx {
        let value = self.operands[2].at(self.arithmetic, at);
        if self.op.math == MatmulMath::Tf32 { matmul::tf32(value) } else { value }
    }

    pub fn kept(&self, [batch, head, query]: [i64; 3], key: i64) -> bool {
        let number = |slot: &str| self.integer(slot, &[0, 0, 0, 0]);
        let (Some(seed), Some(offset)) = (number("seed"), number("offset")) else { return true };
        self.op.kept(seed, offset, &self.shape, [batch, head, query, key])
    }
}

/// Addition in which minus infinity absorbs.
fn add(arithmetic: Arithmetic, a: Approx, b: Approx) -> Approx {
    match (a.value + b.value) == f64::NEG_INFINITY {
        true => Approx::exact(f64::NEG_INFINITY),
        false => arithmetic.add(a, b),
    }
}
