//! What every operation means, in plain `f64` loops, and how far an implementation may be off.
//!
//! The reference imports nothing from the engines and shares no code with them: every engine, knob
//! setting and device is tested against it, and `kiln run --check` runs it for a user. Tensors are
//! lists of values in row-major order of their indices, whatever their strides.

mod approx;
mod attention;
mod bound;
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

use crate::error::{Error, Result};
use crate::graph::{Op, OperationGraph};
use crate::reference::approx::{Approx, Arithmetic};
use crate::tensor::TensorDesc;

/// Values in row-major index order, and for each the largest error an implementation that computes
/// in the stated math precision may show (0 where only the exact bits will do).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expected {
    /// What the result should be.
    pub values: Vec<f64>,
    /// How far off it may be; where infinite it may be any number, and anything, NaN included, only
    /// where it is [`ANYTHING`].
    pub bounds: Vec<f64>,
}

/// A tensor that an operation reads.
#[derive(Debug, Clone, Copy)]
struct Operand<'a> {
    desc: &'a TensorDesc,
    expected: &'a Expected,
}

impl Operand<'_> {
    /// An element, rounded to the precision that is computed in.
    fn at(&self, arithmetic: Arithmetic, position: usize) -> Approx {
        arithmetic.operand(self.expected.values[position], self.expected.bounds[position])
    }

    /// An element as it is.
    fn approx(&self, position: usize) -> Approx {
        let (values, bounds) = (&self.expected.values, &self.expected.bounds);
        Approx { value: values[position], error: bounds[position] }
    }
}

impl Expected {
    /// Results as they are stored.
    fn stored(results: impl IntoIterator<Item = Approx>, tensor: &TensorDesc) -> Expected {
        let stored = results.into_iter().map(|result| result.stored(tensor.dtype));
        let (values, bounds) = stored.map(|result| (result.value, result.error)).unzip();
        Expected { values, bounds }
    }
}

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

/// The worst element of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Row-major position.
    pub index: usize,
    /// The value that came out.
    pub actual: f64,
    /// The value that should have.
    pub expected: f64,
    /// How far off it may be.
    pub bound: f64,
    /// The error as a multiple of the bound; above 1 the comparison fails.
    pub ratio: f64,
}

impl Expected {
    /// The element that is furthest off in terms of its bound; `None` when all are exact.
    ///
    /// NaN matches NaN and what may be [`ANYTHING`], an infinity the same infinity.
    ///
    /// # Panics
    /// When `actual` has another length.
    pub fn worst(&self, actual: &[f64]) -> Option<Deviation> {
        assert_eq!(actual.len(), self.values.len(), "compared tensors have equal length");
        let deviation = |index: usize| {
            let (actual, expected, bound) = (actual[index], self.values[index], self.bounds[index]);
            let same = actual == expected || (actual.is_nan() && expected.is_nan());
            if same {
                return None;
            }
            let ratio = match bound {
                bound if bound.is_nan() => 0.0,
                _ if actual.is_nan() || expected.is_nan() => f64::INFINITY,
                f64::INFINITY => 0.0,
                bound => (actual - expected).abs() / bound,
            };
            Some(Deviation { index, actual, expected, bound, ratio })
        };
        (0..actual.len()).filter_map(deviation).max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }
}
