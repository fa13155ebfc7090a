//! Loops whose bodies are small: they become one operation, whose kernel makes all trips.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::expr::{Math, Mode, ModeClass, Pointwise, Program, Real};
use crate::graph::{Matmul, MatmulMath, Op, Operation, Reduction, ReductionOp, ResidentLoop};
use crate::loops::body::{Refused, desc, operations};
use crate::loops::framed::Framed;
use crate::loops::layer::Loop;
use crate::loops::loop_operation::{LoopOperation, RESIDENT};
use crate::loops::network::Network;
use crate::loops::resident_body::{Seen, Stages, Terms};
use crate::loops::rewrite::Rewrite;

/// Terms of a trip above which kernels for its operations, with tensor cores and all SMs, are worth
/// their launches.
const TERMS_MAX: i64 = 1 << 23;

/// Rewrites a loop to a resident loop.
pub(super) fn resident(network: &Network, of: Loop) -> Refused<(Rewrite<'_>, LoopOperation)> {
    let framed = Framed::of(network, of)?;
    let mut body = Body { network, captured: Vec::new(), seen: HashMap::new() };
    let states = framed.states.iter().map(|state| state.y);
    let given: Vec<i64> = states.chain(framed.iterated.iter().map(|of| of.y)).collect();
    for (value, uid) in given.iter().enumerate() {
        body.give(*uid, value)?;
    }
    let mut stages = Stages::default();
    for operation in operations(network, of)? {
        body.capture(operation, given.len())?;
        let seen = body.operation(operation, &mut stages)?;
        body.seen.insert(operation.outputs[0], seen);
    }
    let next = framed.states.iter().map(|state| state.next);
    let yielded: Vec<i64> =
        next.chain(framed.stacked.iter().map(|of| of.x)).chain(framed.condition).collect();
    let mut yields = Vec::new();
    for uid in yielded {
        body.captured_one(uid, given.len())?;
        yields.push(stages.computed(&body.seen[&uid]));
    }
    let frame = framed.frame(body.captured.len())?;
    let finished = stages.finished(frame.given(), &yields)?;
    let op = ResidentLoop { stages: finished.stages, yields: finished.yields, frame };
    match op.terms() {
        terms if terms > TERMS_MAX => Err(format!(
            "a trip has {terms} terms, more than the {TERMS_MAX} that are faster than launches"
        )),
        _ => framed.rewritten(Op::ResidentLoop(op), &body.captured, <[i64]>::to_vec, RESIDENT),
    }
}

/// The tensors of a body.
struct Body<'a> {
    network: &'a Network,
    /// What is the same in all trips.
    captured: Vec<i64>,
    seen: HashMap<i64, Seen>,
}

impl Body<'_> {
    fn give(&mut self, uid: i64, value: usize) -> Refused<()> {
        let desc = desc(self.network, uid)?;
        if desc.is_empty() {
            return Err(format!("`{}` has no elements", self.network.reference(uid)));
        }
        self.seen.insert(uid, Seen::given(value, &desc.dims, desc.dtype));
        Ok(())
    }

    /// Finds what an operation reads that is no tensor of the body.
    fn capture(&mut self, operation: &Operation, given: usize) -> Refused<()> {
        operation.inputs.iter().try_for_each(|uid| self.captured_one(*uid, given))
    }

    fn captured_one(&mut self, uid: i64, given: usize) -> Refused<()> {
        if self.seen.contains_key(&uid) {
            return Ok(());
        }
        self.captured.push(uid);
        self.give(uid, given + self.captured.len() - 1)
    }

    fn operation(&self, operation: &Operation, stages: &mut Stages) -> Refused<Seen> {
        let y = desc(self.network, operation.outputs[0])?;
        if y.is_empty() {
            return Err(format!("`{}` has no elements", self.network.reference(y.uid)));
        }
        let operands: Vec<Seen> =
            operation.inputs.iter().map(|uid| self.seen[uid].clone()).collect();
        match &operation.op {
            Op::Pointwise(op) if op.mode.class() != ModeClass::Index => {
                Ok(stages.pointwise(*op, &operands, &y.dims, y.dtype))
            }
            Op::Pointwise(op) => Err(format!("its body has {}", op.mode)),
            Op::Matmul(op) => matmul(op, &operands, &y.dims, y.dtype, stages),
            Op::Reduction(op) => reduction(*op, &operands[0], &y.dims, y.dtype, stages),
            Op::Reshape(_) => operands[0].reshaped(&y.dims),
            Op::Transpose(op) => Ok(operands[0].transposed(&op.permutation)),
            Op::Slice(op) => Ok(operands[0].sliced(&op.begin, &op.stride, &y.dims)),
            op => Err(format!("its body has {}", op.name())),
        }
    }
}

/// The sum of products along the inner extent.
fn matmul(
    op: &Matmul,
    operands: &[Seen],
    dims: &[i64],
    dtype: DType,
    stages: &mut Stages,
) -> Refused<Seen> {
    if op.overrides.contains(&true) || op.math == MatmulMath::Tf32 {
        return Err(format!("its body has {op}"));
    }
    let ([a, b], rank) = ([&operands[0], &operands[1]], dims.len());
    let math = Math::of(op.math.dtype());
    let mut term = Program::new();
    let factors = [("a", a), ("b", b)].map(|(name, of)| term.input(name, of.dtype()));
    let product = Pointwise { math, ..Pointwise::new(Mode::Mul) };
    let product = term.push("product", product, &factors, op.math.dtype());
    term.output(product.map_err(|error| error.to_string())?);
    // Of A the last dimension is that of the terms, of B the last but one.
    let [mut of_a, mut of_b] = [a, b].map(Seen::broadcast);
    to_terms(&mut of_a, rank - 1);
    to_terms(&mut of_b, rank - 2);
    let terms = Terms { op: ReductionOp::Add, extents: vec![a.dims[rank - 1]], term };
    let sum = stages.fold(terms, &[(a, of_a), (b, of_b)], dims);
    Ok(stages.pointwise(Pointwise { math, ..identity() }, &[sum], dims, dtype))
}

/// Makes the stride along a dimension one along a further dimension, of terms.
fn to_terms(strides: &mut Vec<i64>, axis: usize) {
    let stride = std::mem::take(&mut strides[axis]);
    strides.push(stride);
}

fn identity() -> Pointwise {
    Pointwise::new(Mode::Identity)
}

/// A fold along the dimensions whose extent in the result is 1.
fn reduction(
    op: Reduction,
    x: &Seen,
    dims: &[i64],
    dtype: DType,
    stages: &mut Stages,
) -> Refused<Seen> {
    let math = op.resolved(x.dtype()).math;
    let mut term = Program::new();
    let element = term.input("x", x.dtype());
    let (mode, operands, fold) = match op.op {
        ReductionOp::Add | ReductionOp::Avg => (Mode::Identity, vec![element], ReductionOp::Add),
        ReductionOp::Mul | ReductionOp::Min | ReductionOp::Max => {
            (Mode::Identity, vec![element], op.op)
        }
        ReductionOp::Amax => (Mode::Abs, vec![element], ReductionOp::Max),
        ReductionOp::Norm1 => (Mode::Abs, vec![element], ReductionOp::Add),
        ReductionOp::Norm2 => (Mode::Mul, vec![element; 2], ReductionOp::Add),
        ReductionOp::MulNoZeros => return Err("its body has mul_no_zeros".to_owned()),
    };
    let pushed =
        term.push("term", Pointwise { math, ..Pointwise::new(mode) }, &operands, math.dtype());
    term.output(pushed.map_err(|error| error.to_string())?);
    let folded = |axis: &usize| dims[*axis] == 1 && x.dims[*axis] != 1;
    let axes: Vec<usize> = (0..dims.len()).filter(folded).collect();
    let mut strides = x.broadcast();
    let extents: Vec<i64> = axes.iter().map(|axis| x.dims[*axis]).collect();
    axes.into_iter().for_each(|axis| to_terms(&mut strides, axis));
    let count: i64 = extents.iter().product();
    let terms = Terms { op: fold, extents, term };
    let folded = stages.fold(terms, &[(x, strides)], dims);
    let last = match op.op {
        ReductionOp::Avg => Pointwise { alpha1: Real::new(1.0 / count as f64), ..identity() },
        ReductionOp::Norm2 => Pointwise::new(Mode::Sqrt),
        _ => identity(),
    };
    Ok(stages.pointwise(Pointwise { math, ..last }, &[folded], dims, dtype))
}
