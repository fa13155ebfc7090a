//! Reference semantics of every operation in plain `f64` loops, with error bounds for
//! implementations.
//!
//! The reference shares no code with the engines: every engine, knob configuration and device is
//! tested against it, and `kiln run --check` runs it on user problems. Tensors are lists of values
//! in row-major index order, whatever their strides.

mod approx;
mod attention;
mod attention_backward;
mod bound;
mod convolution;
mod ctc;
mod dynamic_slice;
mod expected;
mod index;
mod integer;
mod loops;
mod matmul;
mod norm;
mod pointwise;
mod pointwise_loop;
mod quantized;
mod recurrence;
mod reduction;
mod resample;
mod resident_loop;
mod rng;
mod scaled;
mod signal;
mod statistics;
mod views;

use std::collections::HashMap;

pub use approx::ANYTHING;
pub use bound::mode_error;
pub use expected::{Deviation, Expected};
pub use loops::evaluate_network;

use crate::error::{Error, Result};
use crate::graph::{Op, OperationGraph};
use crate::reference::expected::Operand;
use crate::tensor::TensorDesc;

/// Evaluates a graph and returns all tensors by uid, including virtual ones.
///
/// `inputs` maps the uid of every input to its values in row-major order.
///
/// # Errors
/// `BadParam` when the values of an input are missing or their number is wrong, or an operation
/// waits for a signal that the graph does not give.
pub fn evaluate(
    graph: &OperationGraph,
    inputs: &HashMap<i64, Vec<f64>>,
) -> Result<HashMap<i64, Expected>> {
    let mut tensors = HashMap::new();
    for tensor in graph.inputs() {
        tensors.insert(tensor.uid, given(tensor, inputs)?);
    }
    for operation in graph.operations() {
        let operand =
            |uid: &i64| graph.tensor(*uid).map(|desc| Operand { desc, expected: &tensors[uid] });
        let operands = operation.inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
        let outputs = operation.outputs.iter().map(|uid| graph.tensor(*uid));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let results = results(&operation.op, &operands, &outputs)?;
        tensors.extend(operation.outputs.iter().copied().zip(results));
    }
    Ok(tensors)
}

/// The values of an input as they are stored.
fn given(tensor: &TensorDesc, inputs: &HashMap<i64, Vec<f64>>) -> Result<Expected> {
    let name = &tensor.name;
    let values = inputs
        .get(&tensor.uid)
        .ok_or_else(|| Error::bad_param(format!("input `{name}` has no values")))?;
    let (count, given) = (tensor.elements().unwrap_or(0) as usize, values.len());
    if count != given {
        let text = format!("input `{name}` has {given} values, its tensor {count} elements");
        return Err(Error::bad_param(text));
    }
    // Round inputs to storage: excess precision is lost, and of elements that share an address
    // the last one wins.
    let mut values: Vec<f64> = values.iter().map(|value| tensor.dtype.round(*value)).collect();
    tensor.stored(&mut values);
    let bounds = vec![0.0; count];
    Ok(Expected { values, bounds })
}

/// The results of an operation.
fn results(op: &Op, operands: &[Operand<'_>], outputs: &[&TensorDesc]) -> Result<Vec<Expected>> {
    Ok(match op {
        Op::Pointwise(op) => vec![pointwise::evaluate(op, operands, outputs[0])],
        Op::Matmul(op) => vec![matmul::evaluate(op, operands, outputs[0])],
        Op::Convolution(op) => vec![convolution::evaluate(op, operands, outputs[0])],
        Op::Resample(op) => resample::evaluate(op, operands, outputs),
        Op::Reduction(op) => vec![reduction::evaluate(op, &operands[0], outputs[0])],
        Op::CtcLoss(op) => ctc::evaluate(op, operands, outputs),
        Op::Rng(op) => vec![rng::evaluate(op, operands, outputs[0])],
        Op::NormForward(op) => norm::forward(op, operands, outputs),
        Op::NormBackward(op) => norm::backward(op, operands, outputs),
        Op::GenStats(op) => statistics::generate(op, &operands[0], outputs),
        Op::BnFinalize(op) => statistics::finalize(op, operands, outputs),
        Op::BnBackwardWeights(op) => statistics::backward_weights(op, operands, outputs),
        Op::Attention(op) => attention::evaluate(op, operands, outputs),
        Op::AttentionBackward(op) => attention_backward::evaluate(op, operands, outputs),
        Op::Recurrence(op) => recurrence::evaluate(op, operands, outputs),
        Op::PointwiseLoop(op) => pointwise_loop::evaluate(op, operands, outputs),
        Op::ResidentLoop(op) => resident_loop::evaluate(op, operands, outputs),
        Op::Signal(op) => signal::evaluate(op, operands, outputs)?,
        Op::Slice(op) => vec![views::slice(op, &operands[0], outputs[0])],
        Op::Transpose(op) => vec![views::transpose(op, &operands[0], outputs[0])],
        Op::Reshape(_) => vec![views::reshape(&operands[0])],
        Op::Concatenate(op) => vec![views::concatenate(op, operands, outputs[0])],
        Op::DynamicSlice(op) => dynamic_slice::evaluate(op, operands, outputs),
    })
}
