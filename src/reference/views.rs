//! Operations that move elements: where each element of the result comes from.

use crate::graph::{Concatenate, Slice, Transpose};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, unravel};
use crate::tensor::TensorDesc;

pub(super) fn slice(op: &Slice, x: &Operand<'_>, y: &TensorDesc) -> Expected {
    let from = |index: Vec<i64>| {
        let along = |axis: usize| op.begin[axis] + index[axis] * op.stride[axis];
        broadcast_position(&(0..index.len()).map(along).collect::<Vec<_>>(), &x.desc.dims)
    };
    picked(y, |index| (x, from(index)))
}

pub(super) fn transpose(op: &Transpose, x: &Operand<'_>, y: &TensorDesc) -> Expected {
    picked(y, |index| {
        let mut from = vec![0; index.len()];
        op.permutation.iter().zip(&index).for_each(|(axis, at)| from[*axis] = *at);
        (x, broadcast_position(&from, &x.desc.dims))
    })
}

pub(super) fn reshape(x: &Operand<'_>) -> Expected {
    x.expected.clone()
}

pub(super) fn concatenate(op: &Concatenate, xs: &[Operand<'_>], y: &TensorDesc) -> Expected {
    let axis = op.axis as usize;
    picked(y, |mut index| {
        let mut operands = xs.iter();
        let mut x = operands.next().expect("one operand at least");
        while index[axis] >= x.desc.dims[axis] {
            index[axis] -= x.desc.dims[axis];
            x = operands.next().expect("the extents add up");
        }
        (x, broadcast_position(&index, &x.desc.dims))
    })
}

/// Each element of `y` from an operand's, by its index.
fn picked<'a>(y: &TensorDesc, from: impl Fn(Vec<i64>) -> (&'a Operand<'a>, usize)) -> Expected {
    let count = y.elements().unwrap_or(0).max(0);
    let picked = (0..count).map(|at| {
        let (operand, at) = from(unravel(at, &y.dims));
        (operand.expected.values[at], operand.expected.bounds[at])
    });
    let (values, bounds) = picked.unzip();
    Expected { values, bounds }
}
