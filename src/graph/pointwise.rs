//! Pointwise operations as operations of a graph: types, shapes and broadcasting.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{ModeClass, Pointwise};
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

impl Semantics for Pointwise {
    fn name(&self) -> &'static str {
        self.mode.name()
    }

    fn slots(&self) -> Slots {
        Slots::new(&["x", "b", "t"][..self.mode.arity()], &["y"])
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(Some(vec![infer(self, inputs)?]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.validate()?;
        let (dims, output) = (infer(self, inputs)?, outputs[0]);
        match dims == output.dims {
            true => Ok(()),
            false => Err(Error::bad_param(format!(
                "{}: output `{}` is {:?}, expected {dims:?}",
                self.mode, output.name, output.dims
            ))),
        }
    }

    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        let operand = |of: &&TensorDesc| (of.name.clone(), of.dtype);
        self.check_operands(&inputs.iter().map(operand).collect::<Vec<_>>())
    }

    fn resolve(&mut self, operands: &[DType]) {
        *self = self.resolved(operands);
    }

    fn normalise(&mut self) {
        *self = self.normalised();
    }
}

/// Infers the dimensions of the result.
///
/// Operands have the same number of dimensions. Binary operations broadcast extents of 1; select
/// does not broadcast (section 8.2.2.19).
fn infer(op: &Pointwise, operands: &[&TensorDesc]) -> Result<Vec<i64>> {
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
