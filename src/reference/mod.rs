//! What every operation means, in plain `f64` loops, and how far an implementation may be off.
//!
//! The reference imports nothing from the engines and shares no code with them: every engine, knob
//! setting and device is tested against it, and `kiln run --check` runs it for a user. Tensors are
//! lists of values in row-major order of their indices, whatever their strides.

mod approx;
mod attention;
mod bound;
mod expected;
mod index;
mod integer;
mod matmul;
mod norm;
mod pointwise;
mod recurrence;
mod reduction;
mod statistics;

use std::collections::HashMap;

pub use approx::ANYTHING;
pub use bound::mode_error;
pub use expected::{Deviation, Expected};

use crate::error::{Error, Result};
use crate::graph::{Op, OperationGraph};
use crate::reference::expected::Operand;

/// Evaluates a graph: every tensor of it, by uid, virtual ones included.
///
/// `inputs` maps the uid of every input to its values in row-major order.
///
/// # Errors
/// `BadParam` when an input is missing or has another number of values than its tensor.
pub fn evaluate(
    graph: &OperationGraph,
    inputs: &HashMap<i64, Vec<f64>>,
) -> Result<HashMap<i64, Expected>> {
    let mut tensors = HashMap::new();
    for tensor in graph.inputs() {
        let name = &tensor.name;
        let values = inputs
            .get(&tensor.uid)
            .ok_or_else(|| Error::bad_param(format!("input `{name}` has no values")))?;
        let (count, given) = (tensor.elements().unwrap_or(0) as usize, values.len());
        if count != given {
            let text = format!("input `{name}` has {given} values, its tensor {count} elements");
            return Err(Error::bad_param(text));
        }
        // What storage can not hold is not an input: too precise values, two at one address.
        let mut values: Vec<f64> = values.iter().map(|value| tensor.dtype.round(*value)).collect();
        tensor.stored(&mut values);
        let bounds = vec![0.0; count];
        tensors.insert(tensor.uid, Expected { values, bounds });
    }
    for operation in graph.operations() {
        let operand =
            |uid: &i64| graph.tensor(*uid).map(|desc| Operand { desc, expected: &tensors[uid] });
        let operands = operation.inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
        let outputs = operation.outputs.iter().map(|uid| graph.tensor(*uid));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        let results = match &operation.op {
            Op::Pointwise(op) => vec![pointwise::evaluate(op, &operands, outputs[0])],
            Op::Matmul(op) => vec![matmul::evaluate(op, &operands, outputs[0])],
            Op::Reduction(op) => vec![reduction::evaluate(op, &operands[0], outputs[0])],
            Op::NormForward(op) => norm::forward(op, &operands, &outputs),
            Op::NormBackward(op) => norm::backward(op, &operands, &outputs),
            Op::GenStats(op) => statistics::generate(op, &operands[0], &outputs),
            Op::BnFinalize(op) => statistics::finalize(op, &operands, &outputs),
            Op::BnBackwardWeights(op) => statistics::backward_weights(op, &operands, &outputs),
            Op::Attention(op) => attention::evaluate(op, &operands, &outputs),
            Op::Recurrence(op) => recurrence::evaluate(op, &operands, &outputs),
        };
        tensors.extend(operation.outputs.iter().copied().zip(results));
    }
    Ok(tensors)
}
