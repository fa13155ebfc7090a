//! Pointwise operations: one loop over the elements of the result.

use crate::expr::{ModeClass, Pointwise};
use crate::reference::{Expected, bound};
use crate::tensor::{TensorDesc, packed_strides};

pub(super) fn evaluate(
    op: &Pointwise,
    operands: &[(&TensorDesc, &Expected)],
    output: &TensorDesc,
) -> Expected {
    let math = op.compute(operands.iter().map(|(tensor, _)| tensor.dtype));
    let count = output.elements().unwrap_or(0);
    let mut result = Expected::default();
    for linear in 0..count {
        let index = unravel(linear, &output.dims);
        let mut values = [0.0; 3];
        let mut errors = [0.0; 3];
        if op.mode.class() == ModeClass::Index {
            // An index is exact in any precision the index fits in: see `Input::dtype`.
            let position = index[op.axis as usize] as f64;
            result.values.push(output.dtype.round(position));
            result.bounds.push(0.0);
            continue;
        }
        for (slot, (tensor, expected)) in operands.iter().enumerate() {
            let at = broadcast_position(&index, &tensor.dims);
            values[slot] = expected.values[at];
            errors[slot] = expected.bounds[at];
        }
        let arity = operands.len();
        let exact = op.eval(math, &values[..arity]);
        let value = output.dtype.round(math.dtype().round(exact));
        let bound = bound::propagated(op, math, &values[..arity], &errors[..arity], output.dtype);
        result.values.push(value);
        result.bounds.push(bound);
    }
    result
}

fn unravel(linear: i64, dims: &[i64]) -> Vec<i64> {
    let mut rest = linear;
    let mut index: Vec<i64> = dims
        .iter()
        .rev()
        .map(|dim| {
            let position = rest % dim;
            rest /= dim;
            position
        })
        .collect();
    index.reverse();
    index
}

/// The row-major position of `index` in a tensor whose dimensions of 1 are broadcast.
fn broadcast_position(index: &[i64], dims: &[i64]) -> usize {
    let strides = packed_strides(dims);
    let position: i64 = index
        .iter()
        .zip(dims.iter().zip(&strides))
        .map(|(at, (dim, stride))| if *dim == 1 { 0 } else { at * stride })
        .sum();
    position as usize
}
