//! What operations of the forward graph compute for their gradients alone.

use crate::error::Result;
use crate::graph::OperationGraph;
use crate::graph::gradient::cone::cone;
use crate::graph::gradient::kept::Kept;
use crate::graph::gradient::tape::active;
use crate::graph::gradient::{attention, ctc, recurrence};
use crate::graph::operation::{Op, Operation};
use crate::tensor::TensorDesc;

/// The graph with what the gradients of `outputs` by `inputs` need of its operations as further
/// outputs.
///
/// # Errors
/// As [`OperationGraph::new`], and those of an operation that cannot keep what is needed.
pub(super) fn keeping(
    graph: &OperationGraph,
    outputs: &[i64],
    inputs: &[i64],
) -> Result<OperationGraph> {
    let active = active(graph, inputs);
    let of_outputs = cone(graph, outputs, |_| false);
    let (mut tensors, mut operations) = (graph.tensors().to_vec(), graph.operations().to_vec());
    let differentiated = |(at, of): &(usize, &mut Operation)| {
        of.inputs.iter().any(|uid| active.contains(uid)) && of_outputs.contains(at)
    };
    for (_, operation) in operations.iter_mut().enumerate().filter(differentiated) {
        let uid = tensors.iter().map(|tensor| tensor.uid).max().unwrap_or(0) + 1;
        let first = graph.tensor(operation.outputs[0])?;
        let kept = match &operation.op {
            Op::Attention(op) => attention::keeping(op, first),
            Op::Recurrence(op) => Some(recurrence::keeping(op, first, uid)?),
            Op::CtcLoss(op) => ctc::keeping(op, graph.tensor(operation.inputs[0])?),
            _ => None,
        };
        let Some(Kept { op, mut name, dims, dtype }) = kept else { continue };
        while tensors.iter().any(|tensor| tensor.name == name) {
            name.push('_');
        }
        tensors.push(TensorDesc::packed(uid, name, &dims, dtype));
        operation.outputs.push(uid);
        operation.op = op;
    }
    OperationGraph::new(tensors, operations)
}
