//! Everything that modifies or masks a score, as one program.

use crate::expr::{Math, Mode, Pointwise, Program, Value};
use crate::graph::{Attention, AttentionShape, ScoreInput, Slots, Softcap, score_inputs};
use crate::tensor::TensorDesc;

/// Operands with one element per head.
const UNIFORM: [&str; 3] = ["descale_q", "descale_k", "slopes"];

/// Maximum [`length`] of a program that is unrolled over the scores of a thread.
const LENGTH_UNROLLED_MAX: usize = 16;

/// The first input of every score program: an element of Q K^T.
const PRODUCT: Value = Value::Input(0);

/// Source of a program input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// The element of Q K^T.
    Score,
    /// A coordinate: index into [batch, head, query, key].
    Coordinate(usize),
    /// An element of the tensor in this slot.
    Tensor(&'static str),
}

/// The score program: its first output is the modified score, a second one is 0 where the key is
/// masked. If the first output is the input itself, the score is the scaled element of Q K^T.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Score {
    pub(super) program: Program,
    pub(super) sources: Vec<Source>,
}

impl Score {
    /// Whether the score is modified beyond scaling.
    pub(super) fn is_modified(&self) -> bool {
        self.program.outputs() != [PRODUCT]
    }

    /// Whether tensor elements are read per score.
    pub(super) fn reads_tensors(&self) -> bool {
        self.sources
            .iter()
            .any(|source| matches!(source, Source::Tensor(slot) if !UNIFORM.contains(slot)))
    }

    /// Whether the program is too long to be unrolled in acceptable compile time.
    pub(super) fn is_long(&self) -> bool {
        let Score { program, .. } = self;
        let lines = program.instructions().iter();
        let lengths = lines.map(|line| length(line.op.mode, program.compute(line)));
        lengths.sum::<usize>() > LENGTH_UNROLLED_MAX
    }

    /// Whether the program masks keys.
    pub(super) fn is_masked(&self) -> bool {
        self.program.outputs().len() > 1
    }
}

/// Approximate code size of a mode, relative to an addition.
fn length(mode: Mode, math: Math) -> usize {
    use Mode::*;
    let single = match mode {
        Sin | Cos | Tan | Pow | Mod => 20,
        Log | Erf | GeluFwd | GeluBwd | SoftplusFwd | SoftplusBwd | EluFwd | EluBwd => 10,
        Exp | Sqrt | Rsqrt | Div | TanhFwd | TanhBwd | SigmoidFwd | SigmoidBwd => 5,
        SwishFwd | SwishBwd | GeluApproxTanhFwd | GeluApproxTanhBwd => 5,
        _ => 1,
    };
    // f64 has no approximate instructions.
    if math == Math::F64 && single > 1 { 4 * single } else { single }
}

/// The score program of a validated operation.
pub(super) fn score(
    op: &Attention,
    shape: &AttentionShape,
    slots: &Slots,
    inputs: &[&TensorDesc],
) -> Score {
    let math = Math::of(op.score_dtype());
    let mut builder =
        Builder { program: Program::new(), sources: Vec::new(), math, shape, slots, inputs };
    builder.input(Source::Score);
    let mut score = Factored { value: PRODUCT, factor: op.scale_of(shape.depth) };
    for (given, slot) in [(op.descale_q, "descale_q"), (op.descale_k, "descale_k")] {
        if given {
            let descale = builder.input(Source::Tensor(slot));
            score = builder.with("descaled", Mode::Mul, score, descale);
        }
    }
    let capped = |last: bool| op.softcap.filter(|softcap| softcap.last == last);
    score = builder.capped(score, capped(false));
    if op.bias {
        let bias = builder.input(Source::Tensor("bias"));
        score = builder.with("biased", Mode::Add, score, bias);
    }
    if op.slopes {
        let [query, key] = [2, 3].map(|axis| builder.input(Source::Coordinate(axis)));
        let slope = builder.input(Source::Tensor("slopes"));
        let distance = builder.push("distance", Mode::Sub, &[key, query]);
        let penalty = builder.push("penalty", Mode::Mul, &[slope, distance]);
        score = builder.with("sloped", Mode::Add, score, penalty);
    }
    score = builder.capped(score, capped(true));
    // Engines fold the scale into exp2 where nothing else is to be done and scaling preserves the
    // order of scores.
    let is_plain = score.value == PRODUCT && !op.mask && op.score.is_none() && op.keep.is_none();
    let mut score =
        if is_plain && score.factor > 0.0 { PRODUCT } else { builder.multiplied(score) };
    if let Some(program) = &op.score {
        score = builder.append(program, "score", score);
    }
    let mask = op.mask.then(|| builder.input(Source::Tensor("mask")));
    let keep = op.keep.as_deref().map(|program| builder.append(program, "keep", score));
    let keep = match (mask, keep) {
        (Some(mask), Some(keep)) => Some(builder.push("both", Mode::LogicalAnd, &[mask, keep])),
        (mask, keep) => mask.or(keep),
    };
    let Builder { mut program, sources, .. } = builder;
    program.output(score);
    if let Some(keep) = keep {
        program.output(keep);
    }
    Score { program: program.simplified(), sources }
}

/// A value with a pending factor, which the next operation can fold into an FMA.
#[derive(Clone, Copy)]
struct Factored {
    value: Value,
    factor: f64,
}

struct Builder<'a> {
    program: Program,
    sources: Vec<Source>,
    math: Math,
    shape: &'a AttentionShape,
    slots: &'a Slots,
    inputs: &'a [&'a TensorDesc],
}

impl Builder<'_> {
    /// The program input with this source.
    fn input(&mut self, source: Source) -> Value {
        if let Some(at) = self.sources.iter().position(|known| *known == source) {
            return Value::Input(at);
        }
        self.sources.push(source);
        match source {
            Source::Score => self.program.input("score", self.math.dtype()),
            Source::Coordinate(axis) => {
                let name = ["batch", "head", "query", "key"][axis];
                self.program.index(name, axis, self.shape.scores()[axis])
            }
            Source::Tensor(slot) => {
                let at = self.slots.inputs.iter().position(|name| *name == slot);
                let tensor = self.inputs[at.expect("the operation has the slot")];
                self.program.input(slot, tensor.dtype)
            }
        }
    }

    fn push(&mut self, name: &str, mode: Mode, operands: &[Value]) -> Value {
        self.line(name, Pointwise::new(mode), operands)
    }

    fn line(&mut self, name: &str, op: Pointwise, operands: &[Value]) -> Value {
        let (op, dtype) = (op.math(self.math), self.math.dtype());
        self.program.push(name, op, operands, dtype).expect("operands and arity are right")
    }

    /// A binary operation that folds the pending factor.
    fn with(&mut self, name: &str, mode: Mode, of: Factored, other: Value) -> Factored {
        let op = Pointwise::new(mode).alphas(of.factor, 1.0);
        Factored { value: self.line(name, op, &[of.value, other]), factor: 1.0 }
    }

    /// The value times its factor, for operations that cannot fold it.
    fn multiplied(&mut self, Factored { value, factor }: Factored) -> Value {
        match factor == 1.0 {
            true => value,
            false => {
                self.line("scaled", Pointwise::new(Mode::Identity).alphas(factor, 1.0), &[value])
            }
        }
    }

    fn capped(&mut self, score: Factored, softcap: Option<Softcap>) -> Factored {
        let Some(Softcap { cap, .. }) = softcap else { return score };
        let cap = cap.get();
        let tanh = Pointwise::new(Mode::TanhFwd).alphas(score.factor / cap, 1.0);
        Factored { value: self.line("tanh_of_score", tanh, &[score.value]), factor: cap }
    }

    /// Appends a user's program, whose first input is the score, and returns its output.
    fn append(&mut self, program: &Program, name: &str, score: Value) -> Value {
        let captured: Vec<&'static str> = self
            .slots
            .inputs
            .iter()
            .copied()
            .filter(|slot| slot.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')))
            .collect();
        let mut inputs = Vec::new();
        for input in score_inputs(program) {
            inputs.push(match input {
                ScoreInput::Score => score,
                ScoreInput::Coordinate(axis) => self.input(Source::Coordinate(axis)),
                ScoreInput::Captured(at) => self.input(Source::Tensor(captured[at])),
            });
        }
        let mut results: Vec<Value> = Vec::new();
        let moved = |results: &[Value], value: &Value| match value {
            Value::Input(at) => inputs[*at],
            Value::Result(at) => results[*at],
        };
        for line in program.instructions() {
            let operands: Vec<Value> =
                line.operands.iter().map(|value| moved(&results, value)).collect();
            let value = self.program.push(line.name.as_str(), line.op, &operands, line.dtype);
            results.push(value.expect("the program was checked"));
        }
        moved(&results, &program.outputs()[0])
    }
}
