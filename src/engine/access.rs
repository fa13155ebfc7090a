//! How threads reach memory: sizes and alignments of accesses, limits of a launch.

use crate::error::Error;
use crate::graph::{CanonicalGraph, Op};
use crate::tensor::TensorDesc;

/// Bytes of the widest memory access of one thread.
pub(super) const ACCESS_BYTES_MAX: i64 = 16;

/// Bytes that memory moves at least for an access of any size.
pub(super) const SECTOR_BYTES: i64 = 32;

/// Kernel parameters fit in 4 KiB on every architecture; each takes 8 bytes.
pub(super) const PARAMETERS_MAX: usize = 4096 / 8;

/// Registers of an SM, on every architecture so far.
pub(super) const REGISTERS_SM: i64 = 65536;

/// The most registers of one thread.
pub(super) const REGISTERS_THREAD_MAX: i64 = 255;

/// The most blocks of a grid.
pub(super) const GRID_MAX: i64 = i32::MAX as i64;

/// The product of extents, `i64::MAX` where it is larger: where one extent is 0, the others may be
/// of any size.
pub(super) fn volume(extents: &[i64]) -> i64 {
    match extents.contains(&0) {
        true => 0,
        false => extents.iter().copied().fold(1, i64::saturating_mul),
    }
}

/// Elements from a tensor's first to its last in memory; `i64::MAX` where it spans more.
pub(super) fn span_elements(tensor: &TensorDesc) -> i64 {
    let elements = tensor.span_bytes().unwrap_or(u64::MAX) / tensor.dtype.bytes() as u64;
    i64::try_from(elements).unwrap_or(i64::MAX)
}

/// What copies, and what is read of them at once, begin at multiples of: the widest access.
pub(super) const VECTOR_BYTES: i64 = 16;

pub(super) fn ceil_div(count: i64, size: i64) -> i64 {
    count / size + i64::from(count % size != 0)
}

/// Why a tensor with elements is not written by a kernel whose iteration space has none.
pub(super) fn beside_nothing(tensor: &TensorDesc) -> Error {
    let TensorDesc { name, dims, .. } = tensor;
    Error::not_supported(format!("`{name}` is {dims:?}, next to a tensor without elements"))
}

/// The tensors in memory.
pub(super) fn stored(graph: CanonicalGraph<'_>) -> impl Iterator<Item = (usize, &TensorDesc)> {
    let memory = |(_, tensor): &(usize, &TensorDesc)| !tensor.is_virtual && !tensor.by_value;
    graph.tensors.iter().enumerate().filter(memory)
}

/// Bytes of a tensor's elements; those that patches of an image share count once.
pub(super) fn tensor_bytes(tensor: &TensorDesc) -> f64 {
    let elements = tensor.elements().unwrap_or(0).min(span_elements(tensor));
    elements as f64 * tensor.dtype.bytes() as f64
}

/// Bytes of all tensors in memory.
pub(super) fn stored_bytes(graph: CanonicalGraph<'_>) -> f64 {
    stored(graph).map(|(_, tensor)| tensor_bytes(tensor)).sum()
}

/// The tensors of random numbers, whose strides count their positions.
pub(super) fn drawn(graph: CanonicalGraph<'_>) -> impl Iterator<Item = usize> {
    let draws = graph.operations.iter().filter(|operation| matches!(operation.op, Op::Rng(_)));
    draws.map(|operation| operation.outputs[0] as usize)
}

/// Bytes per access for `vector` contiguous elements of a tensor.
pub(super) fn access_bytes(
    tensor: &TensorDesc,
    row_strides: &[i64],
    extents: &[i64],
    vector: i64,
) -> i64 {
    let size = tensor.dtype.bytes() as i64;
    let fits = |bytes: i64| {
        let aligned = |count: i64| count % bytes * size % bytes == 0;
        let rows = row_strides.iter().zip(extents).filter(|(_, extent)| **extent > 1);
        tensor.alignment as i64 % bytes == 0
            && aligned(vector)
            && rows.into_iter().all(|(stride, _)| aligned(*stride))
    };
    [16, 8, 4, 2, 1].into_iter().find(|bytes| *bytes >= size && fits(*bytes)).unwrap_or(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    /// Tensors without elements may have strides that overflow as bytes.
    #[test]
    fn accesses_of_strides_that_no_memory_has() {
        let tensor = TensorDesc::packed(0, "x", &[0, 2, 4], DType::F32);
        for (stride, bytes) in [(i64::MAX, 4), (i64::MAX - 1, 8), (i64::MAX - 3, 16)] {
            assert_eq!(access_bytes(&tensor, &[stride], &[2], 4), bytes, "{stride}");
        }
    }
}
