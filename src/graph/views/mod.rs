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

use crate::error::{Error, Result};
use crate::graph::semantics::Semantics;
use crate::tensor::TensorDesc;

/// Checks that the result has the operand's type and these dimensions.
///
/// # Errors
/// `BadParam` naming the result.
fn check_moved(of: &dyn Semantics, x: &TensorDesc, y: &TensorDesc, dims: &[i64]) -> Result<()> {
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
