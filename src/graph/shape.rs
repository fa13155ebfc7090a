//! Shape rules of pointwise operations: the document's broadcasting.

use crate::error::{Error, Result};
use crate::expr::{ModeClass, Pointwise};
use crate::tensor::TensorDesc;

/// The dimensions of the result of `op` over operands of these dimensions.
///
/// A dimension of 1 is broadcast against any other in operations with two operands; select does
/// not broadcast; the number of dimensions must agree (section 8.2.2.19).
pub(crate) fn infer(op: &Pointwise, operands: &[&TensorDesc]) -> Result<Vec<i64>> {
    let mode = op.mode;
    let first = &operands[0];
    let mut dims = first.dims.clone();
    for operand in &operands[1..] {
        let fail = |rule: &str| {
            Err(Error::bad_param(format!(
                "{mode}: {rule}: `{}` is {:?}, `{}` is {:?}",
                first.name, first.dims, operand.name, operand.dims
            )))
        };
        if operand.dims.len() != dims.len() {
            return fail("operands differ in the number of dimensions");
        }
        if mode.class() == ModeClass::Select && operand.dims != dims {
            return fail("three operands are not broadcast");
        }
        for (dim, other) in dims.iter_mut().zip(&operand.dims) {
            match (*dim, *other) {
                (a, b) if a == b || b == 1 => {}
                (1, b) => *dim = b,
                _ => return fail("dimensions can not be broadcast"),
            }
        }
    }
    let rank = dims.len() as i64;
    if mode.class() == ModeClass::Index && !(0..rank).contains(&op.axis) {
        let axis = op.axis;
        return Err(Error::bad_param(format!("{mode}: axis {axis} is not in [0, {}]", rank - 1)));
    }
    Ok(dims)
}

/// Checks that `output` has the dimensions that `op` gives.
pub(crate) fn check(op: &Pointwise, operands: &[&TensorDesc], output: &TensorDesc) -> Result<()> {
    let dims = infer(op, operands)?;
    match dims == output.dims {
        true => Ok(()),
        false => Err(Error::bad_param(format!(
            "{}: output `{}` is {:?}, the operands give {dims:?}",
            op.mode, output.name, output.dims
        ))),
    }
}
