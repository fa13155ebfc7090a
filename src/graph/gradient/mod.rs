//! Gradients of graphs: the vector-Jacobian product as a graph of its own.
//!
//! [`OperationGraph::vjp`] differentiates in reverse: the gradient of each tensor is the sum of
//! what the operations that read it contribute, rounded to the tensor's type. Values of the forward
//! graph that the backward graph needs are saved by the one and read by the other, or computed
//! again from what is: which of them is chosen by a minimum cut on bytes (`saved`).

mod attention;
mod cell;
mod cone;
mod ctc;
mod keeping;
mod kept;
mod lengths;
mod min_cut;
mod pieces;
mod recurrence;
mod reverse;
mod rules;
mod saved;
mod staged;
mod sum;
mod tape;

use crate::error::{Error, Result};
use crate::graph::OperationGraph;
pub(crate) use crate::graph::gradient::cone::cone;
use crate::graph::gradient::keeping::keeping;
pub(crate) use crate::graph::gradient::lengths::zero_beyond_lengths;
pub(crate) use crate::graph::gradient::recurrence::slot;
use crate::graph::gradient::reverse::reversed;
pub use crate::graph::gradient::saved::{Saved, Vjp};
pub use crate::graph::gradient::staged::Staged;
use crate::tensor::TensorDesc;

impl OperationGraph {
    /// The vector-Jacobian product: a graph that computes the gradients of `inputs`, given those of
    /// `outputs`, both by uid. Gradients have the dimensions, strides and types of their tensors,
    /// and their names behind `d_`. In between they are of their values' types; where a GEMM or
    /// convolution has both operands in one 16-bit type, gradients of its result are rounded to
    /// that before they are multiplied, as in torch: f16 may need a scaled loss.
    ///
    /// Non-smooth operations have the gradients that cuDNN and PyTorch give: ReLU 0 at and
    /// beyond its clips where the slope is 0, `max` and `min` half each for equal operands, maxima
    /// of rows equal shares for all that are largest. The forward graph of an attention has its
    /// log-sum-exp as an output, that of a CTC loss of logits its gradient.
    ///
    /// # Errors
    /// `BadParam` for a tensor that is no output or input of floating-point type, or an input that
    /// no output depends on; `NotSupported` naming an operation that has no gradient as operations
    /// of a graph.
    pub fn vjp(&self, outputs: &[i64], inputs: &[i64]) -> Result<Vjp> {
        for (kind, uids) in [("output", outputs), ("input", inputs)] {
            if uids.is_empty() {
                return Err(Error::bad_param(format!("vjp: no {kind} is given")));
            }
            for uid in uids {
                let known = |mut all: Box<dyn Iterator<Item = &TensorDesc> + '_>| {
                    all.any(|tensor| tensor.uid == *uid)
                };
                let is_one = match kind {
                    "output" => known(Box::new(self.outputs())),
                    _ => known(Box::new(self.inputs())),
                };
                let tensor = self.tensor(*uid)?;
                let (name, dtype) = (&tensor.name, tensor.dtype);
                if !is_one || uids.iter().filter(|other| *other == uid).count() > 1 {
                    let text = format!("vjp: `{name}` is no {kind} of the graph, or given twice");
                    return Err(Error::bad_param(text));
                }
                if !dtype.is_float() {
                    let text = format!("vjp: `{name}` is {dtype}, which has no gradient");
                    return Err(Error::bad_param(text));
                }
            }
        }
        let forward = keeping(self, outputs, inputs)?;
        let mut tape = reversed(&forward, outputs, inputs)?;
        let own = |tensor: &&TensorDesc| self.tensor(tensor.uid).is_err();
        tape.added = forward.tensors().iter().filter(own).map(|tensor| tensor.uid).collect();
        tape.split()
    }
}
