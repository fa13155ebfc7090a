//! Gradients of CTC losses, which the operation computes beside the losses.

use crate::error::Result;
use crate::expr::{Mode, Pointwise};
use crate::graph::gradient::kept::Kept;
use crate::graph::gradient::sum::gradient;
use crate::graph::gradient::tape::{Contribution, Tape};
use crate::graph::operation::{Op, Operation};
use crate::graph::{CtcInput, CtcLoss};
use crate::tensor::TensorDesc;

/// The loss with its gradient, which is not rounded before it is multiplied.
pub(super) fn keeping(op: &CtcLoss, x: &TensorDesc) -> Option<Kept> {
    let with = || Kept {
        op: Op::CtcLoss(CtcLoss { gradient: true, ..op.clone() }),
        name: format!("d_loss_{}", x.name),
        dims: x.dims.clone(),
        dtype: op.math.dtype(),
    };
    (!op.gradient).then(with)
}

/// Contributes the gradient of a loss's `x`: that of each sequence times the gradient of its loss.
///
/// # Errors
/// `NotSupported` where `dx` is not the derivative by `x`: of probabilities it is that by
/// activations in front of them, and of infinite losses that are kept what was in its memory.
pub(super) fn ctc_loss(tape: &mut Tape<'_>, op: &CtcLoss, of: &Operation) -> Result<()> {
    let [loss, dx] = of.outputs[..] else { return tape.refuse(of) };
    if op.input != CtcInput::Logits || op.reads_result() || tape.has_gradient(dx) {
        return tape.refuse(of);
    }
    let Some(dy) = gradient(tape, loss)? else { return Ok(()) };
    let dy = tape.filled(dy, loss)?;
    let sequences = tape.desc(loss).dims[0];
    let dy = tape.builder.reshape(dy, &[1, sequences, 1])?;
    let own = Pointwise::new(Mode::Mul).math(op.math);
    let own = tape.builder.pointwise(own, &[dx, dy])?;
    tape.contribute(of.inputs[0], Contribution::Whole(own));
    Ok(())
}
