//! Shape inference and broadcasting of pointwise operations.

use crate::error::{Error, Result};
use crate::expr::{ModeClass, Pointwise};
use crate::tensor::TensorDesc;

/// Infers the dimensions of the result.
///
/// Operands have the same number of dimensions. Binary operations broadcast extents of 1; select
/// does not broadcast (section 8.2.2.19).
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
            return fail("operands differ in rank");
        }
        if mode.class() == ModeClass::Select && operand.dims != dims {
            return fail("ternary operations do not broadcast");
        }
        for (dim, other) in dims.iter_mut().zip(&operand.dims) {
            match (*dim, *other) {
                (a, b) if a == b || b == 1 => {}
                (1, b) => *dim = b,
                _ => return fail("dimensions cannot be broadcast"),
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

/// Checks that `output` has the inferred dimensions.
pub(crate) fn check(op: &Pointwise, operands: &[&TensorDesc], output: &TensorDesc) -> Result<()> {
    let dims = infer(op, operands)?;
    match dims == output.dims {
        true => Ok(()),
        false => Err(Error::bad_param(format!(
            "{}: output `{}` is {:?}, expected {dims:?}",
            op.mode, output.name, output.dims
        ))),
    }
}
