//! What each operation contributes to the gradients of its operands.

use crate::error::Result;
use crate::expr::pullback::Writer;
use crate::expr::{Math, Mode, Pointwise, Real};
use crate::graph::gradient::attention::attention;
use crate::graph::gradient::ctc::ctc_loss;
use crate::graph::gradient::recurrence::recurrence;
use crate::graph::gradient::sum::gradient;
use crate::graph::gradient::tape::{Contribution, Tape};
use crate::graph::operation::{Op, Operation};
use crate::graph::{
    Convolution, ConvolutionPass, GenStats, Matmul, NormBackward, NormForward, Phase, Reduction,
    ReductionOp, Resample, ResampleMode, ResamplePass, Slice, Transpose,
};

/// Contributes the gradients of an operation's operands.
///
/// # Errors
/// `NotSupported` for an operation that has none.
pub(super) fn reverse(tape: &mut Tape<'_>, operation: &Operation) -> Result<()> {
    let (Some(&x), Some(&y)) = (operation.inputs.first(), operation.outputs.first()) else {
        return Ok(());
    };
    if !operation.inputs.iter().any(|uid| tape.is_active(*uid)) {
        return Ok(());
    }
    let dims = |tape: &Tape<'_>, uid: i64| tape.desc(uid).dims.clone();
    match &operation.op {
        Op::NormForward(op) => return norm(tape, op, operation),
        Op::GenStats(op) => return statistics(tape, op, operation),
        Op::Resample(op) => return resample(tape, op, operation),
        Op::Attention(op) => return attention(tape, op, operation),
        Op::Recurrence(op) => return recurrence(tape, op, operation),
        Op::CtcLoss(op) => return ctc_loss(tape, op, operation),
        _ => {}
    }
    let [y_only] = operation.outputs[..] else { return tape.refuse(operation) };
    let Some(dy) = gradient(tape, y_only)? else { return Ok(()) };
    match &operation.op {
        Op::Pointwise(op) => pointwise(tape, op, operation, dy),
        Op::Matmul(op) => matmul(tape, op, operation, dy),
        Op::Reduction(op) => reduction(tape, op, operation, dy),
        Op::Convolution(op) => convolution(tape, op, operation, dy),
        Op::Slice(op) => {
            let dy = tape.filled(dy, y)?;
            tape.contribute(x, Contribution::Piece(op.clone(), dy));
            Ok(())
        }
        Op::Transpose(Transpose { permutation }) => {
            let mut inverse = vec![0; permutation.len()];
            permutation.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
            let dx = tape.apply(Op::Transpose(Transpose { permutation: inverse }), &[dy])?;
            tape.contribute(x, Contribution::Whole(dx));
            Ok(())
        }
        Op::Reshape(_) => {
            let dy = tape.filled(dy, y)?;
            let dims = dims(tape, x);
            let dx = tape.builder.reshape(dy, &dims)?;
            tape.contribute(x, Contribution::Whole(dx));
            Ok(())
        }
        Op::Concatenate(op) => {
            let dy = tape.filled(dy, y)?;
            let (whole, axis, mut first) = (dims(tape, y), op.axis as usize, 0);
            for operand in &operation.inputs {
                let extent = dims(tape, *operand)[axis];
                if tape.is_active(*operand) {
                    let slice = Slice::along(&whole, axis, first, first + extent);
                    let dx = tape.apply(Op::Slice(slice), &[dy])?;
                    tape.contribute(*operand, Contribution::Whole(dx));
                }
                first += extent;
            }
            Ok(())
        }
        _ => tape.refuse(operation),
    }
}

fn pointwise(tape: &mut Tape<'_>, op: &Pointwise, of: &Operation, dy: i64) -> Result<()> {
    if op.math == Math::I32 {
        return tape.refuse(of);
    }
    if is_plain_relu(op) {
        // Where the result is positive its operand is too, and the result may be in memory.
        let factor = op.alpha1.get();
        let own = Pointwise { mode: Mode::ReluBwd, ..*op }.alphas(1.0, factor);
        let own = tape.builder.pointwise(own, &[of.outputs[0], dy])?;
        return tape.contribute_sum(of.inputs[0], own);
    }
    let mut failed = None;
    let mut push = |op: Pointwise, operands: &[i64]| match tape.builder.pointwise(op, operands) {
        Ok(result) => result,
        Err(error) => {
            failed = failed.take().or(Some(error));
            operands[0]
        }
    };
    let gradients = Writer { push: &mut push, of: *op }.pullback(&of.inputs, dy);
    if let Some(error) = failed {
        return Err(error);
    }
    for (uid, own) in of.inputs.iter().zip(gradients) {
        if let Some(own) = own {
            tape.contribute_sum(*uid, own)?;
        }
    }
    Ok(())
}

/// Whether ReLU keeps the sign of its operand, and is 0 where its slope is.
fn is_plain_relu(op: &Pointwise) -> bool {
    let plain = [op.relu_lower_clip, op.relu_lower_clip_slope].iter().all(|of| of.get() == 0.0);
    op.mode == Mode::ReluFwd && plain && op.alpha1.get() > 0.0
}

/// `dA = dC B'` and `dB = A' dC`, summed over batches that are broadcast.
fn matmul(tape: &mut Tape<'_>, op: &Matmul, of: &Operation, dy: i64) -> Result<()> {
    if *op != Matmul::new(op.math) {
        return tape.refuse(of);
    }
    let (a, b, c) = (of.inputs[0], of.inputs[1], of.outputs[0]);
    let dc = tape.filled(dy, c)?;
    let dc = tape.multiplied(dc, [a, b])?;
    let turned = |tape: &mut Tape<'_>, uid: i64| {
        let rank = tape.desc(uid).dims.len();
        let mut permutation: Vec<usize> = (0..rank).collect();
        permutation.swap(rank - 2, rank - 1);
        tape.apply(Op::Transpose(Transpose { permutation }), &[uid])
    };
    if tape.is_active(a) {
        let other = turned(tape, b)?;
        let da = tape.apply(Op::Matmul(*op), &[dc, other])?;
        tape.contribute_sum(a, da)?;
    }
    if tape.is_active(b) {
        let other = turned(tape, a)?;
        let db = tape.apply(Op::Matmul(*op), &[other, dc])?;
        tape.contribute_sum(b, db)?;
    }
    Ok(())
}

fn reduction(tape: &mut Tape<'_>, op: &Reduction, of: &Operation, dy: i64) -> Result<()> {
    let (x, y) = (of.inputs[0], of.outputs[0]);
    if op.math == Math::I32 {
        return tape.refuse(of);
    }
    let pointwise = |mode| Pointwise::new(mode).math(op.math);
    let count = |tape: &Tape<'_>| {
        let [all, kept] = [x, y].map(|uid| tape.desc(uid).elements().unwrap_or(1).max(1));
        (all / kept) as f64
    };
    let dx = match op.op {
        ReductionOp::Add => dy,
        ReductionOp::Avg => {
            let mean = pointwise(Mode::Identity).alphas(1.0 / count(tape), 1.0);
            tape.builder.pointwise(mean, &[dy])?
        }
        ReductionOp::Norm1 => pulled(tape, pointwise(Mode::Abs), x, dy)?,
        ReductionOp::Norm2 => {
            let over = tape.builder.pointwise(pointwise(Mode::Div), &[dy, y])?;
            tape.builder.pointwise(pointwise(Mode::Mul), &[x, over])?
        }
        ReductionOp::Max | ReductionOp::Min | ReductionOp::Amax => {
            let value = match op.op {
                ReductionOp::Amax => tape.builder.pointwise(pointwise(Mode::Abs), &[x])?,
                _ => x,
            };
            let dims = tape.desc(y).dims.clone();
            // A result that was rounded may equal no element.
            let extreme = match tape.desc(y).dtype == op.math.dtype() {
                true => y,
                false => tape.builder.reduction(*op, x, &dims)?,
            };
            let largest = tape.builder.pointwise(pointwise(Mode::CmpEq), &[value, extreme])?;
            let add = Reduction { op: ReductionOp::Add, math: op.math };
            let ties = tape.builder.reduction(add, largest, &dims)?;
            let share = tape.builder.pointwise(pointwise(Mode::Div), &[dy, ties])?;
            let share = tape.builder.pointwise(pointwise(Mode::Mul), &[largest, share])?;
            match op.op {
                ReductionOp::Amax => pulled(tape, pointwise(Mode::Abs), x, share)?,
                _ => share,
            }
        }
        ReductionOp::Mul | ReductionOp::MulNoZeros => return tape.refuse(of),
    };
    tape.contribute(x, Contribution::Whole(dx));
    Ok(())
}

/// The gradient of a unary operation's operand.
fn pulled(tape: &mut Tape<'_>, op: Pointwise, x: i64, dy: i64) -> Result<i64> {
    let mut push = |op: Pointwise, operands: &[i64]| {
        tape.builder.pointwise(op, operands).expect("operands of the forward graph fit")
    };
    let gradients = Writer { push: &mut push, of: op }.pullback(&[x], dy);
    Ok(gradients[0].expect("the mode is differentiable"))
}

/// Of the three tensors of a convolution each is a product of the other two.
fn convolution(tape: &mut Tape<'_>, op: &Convolution, of: &Operation, dy: i64) -> Result<()> {
    let dy = tape.filled(dy, of.outputs[0])?;
    if let Some(before) = of.inputs.get(2) {
        scaled_before(tape, *before, op.beta, dy)?;
    }
    let operands = [of.inputs[0], of.inputs[1]];
    let dy = tape.multiplied(dy, operands)?;
    for (at, operand) in operands.into_iter().enumerate() {
        if !tape.is_active(operand) {
            continue;
        }
        // The tensors by role, the gradient of the result in the place of the result.
        let [x, w, y] = op.pass.roles(operands, dy);
        let [image, filter, _] = op.pass.roles([0, 1], 2);
        let (pass, inputs) = match at {
            at if at == image => (ConvolutionPass::BackwardData, [w, y]),
            at if at == filter => (ConvolutionPass::BackwardFilter, [x, y]),
            _ => (ConvolutionPass::Forward, [x, w]),
        };
        let own = Convolution { pass, beta: Real::new(0.0), ..op.clone() };
        let dims = tape.desc(operand).dims.clone();
        let gradient = tape.builder.with_dims(Op::Convolution(own), &inputs, &dims)?;
        tape.contribute(operand, Contribution::Whole(gradient));
    }
    Ok(())
}

/// Resampling is linear but for the choice of maxima, which its gradient makes again or reads.
fn resample(tape: &mut Tape<'_>, op: &Resample, of: &Operation) -> Result<()> {
    let y = of.outputs[0];
    let Some(dy) = gradient(tape, y)? else { return Ok(()) };
    let dy = tape.filled(dy, y)?;
    let maxima = op.mode == ResampleMode::MaxPool;
    let forward = op.pass == ResamplePass::Forward;
    if maxima && !forward {
        return tape.refuse(of);
    }
    let slots = of.op.slots();
    if let Some(at) = slots.inputs.iter().position(|slot| slot.ends_with("_before")) {
        scaled_before(tape, of.inputs[at], op.beta, dy)?;
    }
    let x = of.inputs[0];
    if !tape.is_active(x) {
        return Ok(());
    }
    let pass = if forward { ResamplePass::Backward } else { ResamplePass::Forward };
    let own = Resample { pass, beta: Real::new(0.0), ..op.clone() };
    let winners = maxima.then(|| if op.index { of.outputs[1] } else { x });
    let inputs: Vec<i64> = std::iter::once(dy).chain(winners).collect();
    let dims = tape.desc(x).dims.clone();
    let dx = tape.builder.with_dims(Op::Resample(own), &inputs, &dims)?;
    tape.contribute(x, Contribution::Whole(dx));
    Ok(())
}

/// The gradient of what a result's memory held before, which the result has times `beta`.
fn scaled_before(tape: &mut Tape<'_>, before: i64, beta: Real, dy: i64) -> Result<()> {
    let math = Math::of(tape.desc(dy).dtype);
    let scaled = Pointwise::new(Mode::Identity).alphas(beta.get(), 1.0).math(math);
    let scaled = tape.builder.pointwise(scaled, &[dy])?;
    tape.contribute_sum(before, scaled)
}

/// `norm_backward` has all gradients; those that are not wanted are outputs too.
fn norm(tape: &mut Tape<'_>, op: &NormForward, of: &Operation) -> Result<()> {
    let y = of.outputs[0];
    let computes = op.phase == Phase::Training || !op.statistics;
    let others = &of.outputs[1..];
    let used = others.iter().any(|uid| tape.has_gradient(*uid));
    if !computes || used {
        return tape.refuse(of);
    }
    let Some(dy) = gradient(tape, y)? else { return Ok(()) };
    let dy = tape.filled(dy, y)?;
    let slots = Op::NormForward(*op).slots();
    let input = |slot: &str| {
        let at = slots.inputs.iter().position(|name| *name == slot);
        at.map(|at| of.inputs[at])
    };
    let output = |slot: &str| {
        let at = slots.outputs.iter().position(|name| *name == slot);
        at.map(|at| of.outputs[at])
    };
    let backward = NormBackward {
        mode: op.mode,
        math: op.math,
        bias: op.bias,
        statistics: op.statistics && op.phase == Phase::Training,
    };
    let own = Op::NormBackward(backward);
    let mut operands = Vec::new();
    for slot in own.slots().inputs {
        let uid = match slot {
            "dy" => Some(dy),
            slot => input(slot).or_else(|| output(slot)),
        };
        operands.extend(uid);
    }
    let names = own.slots().outputs;
    let results = tape.builder.operation(own, &operands)?;
    for (slot, gradient) in names.into_iter().zip(results) {
        let Some(uid) = input(&slot[1..]) else { continue };
        match tape.is_active(uid) {
            true => tape.contribute(uid, Contribution::Whole(gradient)),
            false => tape.keep(gradient, uid)?,
        }
    }
    Ok(())
}

/// The sum of `x` and that of its squares, over all but the channels.
fn statistics(tape: &mut Tape<'_>, op: &GenStats, of: &Operation) -> Result<()> {
    let x = of.inputs[0];
    if let Some(gradient) = gradient(tape, of.outputs[0])? {
        tape.contribute(x, Contribution::Whole(gradient));
    }
    if let Some(gradient) = gradient(tape, of.outputs[1])? {
        let twice = Pointwise::new(Mode::Mul).alphas(2.0, 1.0).math(op.math);
        let gradient = tape.builder.pointwise(twice, &[x, gradient])?;
        tape.contribute(x, Contribution::Whole(gradient));
    }
    Ok(())
}
