//! Conversion between row-major positions and indices.

use crate::tensor::packed_strides;

/// Converts a row-major position to an index.
pub(super) fn unravel(linear: i64, dims: &[i64]) -> Vec<i64> {
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

/// Row-major position of `index` in a tensor whose dimensions of extent 1 are broadcast.
pub(super) fn broadcast_position(index: &[i64], dims: &[i64]) -> usize {
    let strides = packed_strides(dims);
    let position: i64 = index
        .iter()
        .zip(dims.iter().zip(&strides))
        .map(|(at, (dim, stride))| if *dim == 1 { 0 } else { at * stride })
        .sum();
    position as usize
}

/// Number of elements.
pub(super) fn count(dims: &[i64]) -> usize {
    dims.iter().product::<i64>() as usize
}
