//! Operations that move elements and compute nothing: slice, transpose, reshape, concatenate.
//!
//! Engines do not know them. The [canonical form](crate::graph::CanonicalGraph) of a graph has
//! none wherever strides can express what they mean (`resolve`): an operand is read, and a result
//! written, through a tensor with strides of its own in the memory of another.

mod concatenate;
mod reshape;
mod resolve;
mod rewrite;
mod slice;
mod transpose;
mod view;

pub use concatenate::{CONCATENATED_MAX, Concatenate};
pub use reshape::Reshape;
pub(super) use resolve::{Place, Resolved, resolve};
pub use slice::Slice;
pub use transpose::Transpose;

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::semantics::Semantics;
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// The rules of an operation that moves elements of any type and computes nothing.
trait Moving: fmt::Display {
    /// See [`Semantics::name`].
    fn name(&self) -> &'static str;

    /// See [`Semantics::slots`].
    fn slots(&self) -> Slots {
        Slots::new(&["x"], &["y"])
    }

    /// See [`Semantics::infer`].
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>>;

    /// See [`Semantics::check`].
    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()>;

    /// See [`Semantics::normalise`].
    fn normalise(&mut self) {}
}

impl<T: Moving> Semantics for T {
    fn name(&self) -> &'static str {
        Moving::name(self)
    }

    fn slots(&self) -> Slots {
        Moving::slots(self)
    }

    fn math(&self) -> DType {
        DType::F32
    }

    fn result_type(&self, operands: &[DType]) -> DType {
        operands[0]
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Moving::infer(self, inputs)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        Moving::check(self, inputs, outputs)
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        Ok(())
    }

    fn resolve(&mut self, _operands: &[DType]) {}

    fn normalise(&mut self) {
        Moving::normalise(self);
    }
}

/// Checks that the result has the operand's type and these dimensions.
///
/// # Errors
/// `BadParam` naming the result.
pub(in crate::graph) fn check_moved(
    of: &dyn fmt::Display,
    x: &TensorDesc,
    y: &TensorDesc,
    dims: &[i64],
) -> Result<()> {
    let (name, own) = (&y.name, &y.dims);
    if y.dims != dims {
        let text = format!("{of}: output `{name}` is {own:?}, expected {dims:?}");
        return Err(Error::bad_param(text));
    }
    match y.dtype == x.dtype {
        true => Ok(()),
        false => Err(Error::bad_param(format!(
            "{of}: output `{name}` is {}, expected {} as of `{}`",
            y.dtype, x.dtype, x.name
        ))),
    }
}
