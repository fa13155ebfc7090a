//! Shapes of what crosses the boundary of a loop: the element of a tensor along an axis, and the
//! tensor that elements make up.

use crate::error::{Error, Result};
use crate::loops::layer::LoopOutput;
use crate::tensor::{DIMS_MAX, TensorDesc};

/// Dimensions of a tensor's elements along an axis. Graphs have no tensors without dimensions: of
/// one dimension the elements are `[1]`.
///
/// # Errors
/// `BadParam` when the tensor has no such axis.
pub(super) fn element(x: &TensorDesc, axis: usize) -> Result<Vec<i64>> {
    let mut dims = x.dims.clone();
    if axis >= dims.len() {
        let (name, last) = (&x.name, dims.len() as i64 - 1);
        let text = format!("iterator over `{name}`: axis {axis} is not in [0, {last}]");
        return Err(Error::bad_param(text));
    }
    if dims.len() == 1 {
        return Ok(vec![1]);
    }
    dims.remove(axis);
    Ok(dims)
}

/// Dimensions of a loop output.
///
/// # Errors
/// `BadParam` when the new axis or its length is impossible.
pub(super) fn whole(x: &TensorDesc, output: LoopOutput) -> Result<Vec<i64>> {
    let mut dims = x.dims.clone();
    let Some((axis, length)) = output.concatenated() else { return Ok(dims) };
    let fail = |rule: String| Err(Error::bad_param(format!("{output} of `{}`: {rule}", x.name)));
    if axis > dims.len() {
        return fail(format!("axis {axis} is not in [0, {}]", dims.len()));
    }
    if dims.len() == DIMS_MAX {
        return fail(format!("has {DIMS_MAX} dimensions already"));
    }
    if length < 0 {
        return fail(format!("length {length} is negative"));
    }
    dims.insert(axis, length);
    Ok(dims)
}

/// The element of a tensor along an axis as a tensor in its memory; its uid and name are the
/// caller's.
pub(super) fn view(whole: &TensorDesc, axis: usize, uid: i64, name: &str) -> TensorDesc {
    let (mut dims, mut strides) = (whole.dims.clone(), whole.strides.clone());
    strides.remove(axis);
    dims.remove(axis);
    if dims.is_empty() {
        (dims, strides) = (vec![1], vec![1]);
    }
    // The largest power of two that divides the distance of neighbours.
    let multiple = 1usize << step(whole, axis).trailing_zeros().min(30);
    TensorDesc {
        uid,
        name: name.to_owned(),
        dims,
        strides,
        dtype: whole.dtype,
        alignment: whole.alignment.min(multiple),
        is_virtual: false,
        by_value: false,
    }
}

/// Distance in bytes of neighbours along an axis.
pub(super) fn step(whole: &TensorDesc, axis: usize) -> u64 {
    whole.strides[axis].unsigned_abs().saturating_mul(whole.dtype.bytes() as u64)
}
