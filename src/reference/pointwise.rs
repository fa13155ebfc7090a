//! Pointwise operations.

use crate::expr::{Math, Mode, ModeClass, Pointwise};
use crate::reference::index::{broadcast_position, unravel};
use crate::reference::{Expected, Operand, bound};
use crate::tensor::TensorDesc;

pub(super) fn evaluate(op: &Pointwise, operands: &[Operand<'_>], output: &TensorDesc) -> Expected {
    let math = op.compute(operands.iter().map(|operand| operand.desc.dtype));
    let count = output.elements().unwrap_or(0);
    let is_shared = |divisor: &Operand<'_>| divisor.desc.elements().unwrap_or(0) < count;
    let divides_by_shared =
        op.mode == Mode::Div && math == Math::F32 && operands.get(1).is_some_and(is_shared);
    let mut result = Expected::default();
    for linear in 0..count {
        let index = unravel(linear, &output.dims);
        let mut values = [0.0; 3];
        let mut errors = [0.0; 3];
        if op.mode.class() == ModeClass::Index {
            // An index is exact in its type: see `Input::dtype`.
            let position = index[op.axis as usize] as f64;
            result.values.push(output.dtype.round(position));
            result.bounds.push(0.0);
            continue;
        }
        for (slot, Operand { desc, expected }) in operands.iter().enumerate() {
            let at = broadcast_position(&index, &desc.dims);
            values[slot] = expected.values[at];
            errors[slot] = expected.bounds[at];
        }
        let arity = operands.len();
        let exact = op.eval(math, &values[..arity]);
        let value = output.dtype.round(math.dtype().round(exact));
        let (given, errors) = (&values[..arity], &errors[..arity]);
        let bound = match divides_by_shared {
            true => bound::propagated_by_reciprocal(op, given, errors, output.dtype),
            false => bound::propagated(op, math, given, errors, output.dtype),
        };
        result.values.push(value);
        result.bounds.push(bound);
    }
    result
}
