//! Tensor descriptors: name, shape, memory layout.

use std::collections::HashMap;
use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::escape::escaped;
use crate::lattice::Equation;
use crate::progression::Progression;

/// Maximum number of dimensions (`MCDNN_MAX_DIMS`).
pub const DIMS_MAX: usize = 8;

/// Largest alignment in bytes that affects kernels; device allocations guarantee more.
pub const ALIGNMENT_MAX: usize = 256;

/// A tensor of an operation graph (`MCDNN_BACKEND_TENSOR_DESCRIPTOR`, section 8.2.2.30).
///
/// Strides and offsets count elements. The element at index `i` is stored at offset `sum(i[k] *
/// strides[k])` from the pointer in the variant pack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    /// Identifies the tensor within its graph and in a variant pack.
    pub uid: i64,
    /// Name in messages, problem files and generated code.
    pub name: String,
    /// Extent of each dimension; 0 makes the tensor empty.
    pub dims: Vec<i64>,
    /// Distance in elements between neighbours along each dimension, all positive.
    pub strides: Vec<i64>,
    /// Type of the elements in storage.
    pub dtype: DType,
    /// Guaranteed alignment of the pointer in bytes.
    pub alignment: usize,
    /// Whether the tensor is an intermediate without storage. Its values are rounded to `dtype`
    /// nevertheless, so that results do not depend on this flag.
    pub is_virtual: bool,
    /// Whether the tensor is a single element passed by value in the variant pack.
    pub by_value: bool,
}

impl TensorDesc {
    /// A packed, row-major tensor with 16-byte alignment.
    pub fn packed(uid: i64, name: impl Into<String>, dims: &[i64], dtype: DType) -> Self {
        TensorDesc {
            uid,
            name: name.into(),
            dims: dims.to_vec(),
            strides: packed_strides(dims),
            dtype,
            alignment: 16,
            is_virtual: false,
            by_value: false,
        }
    }

    /// Number of elements; `None` if it exceeds `i64`.
    pub fn elements(&self) -> Option<i64> {
        if self.dims.contains(&0) {
            return Some(0);
        }
        self.dims.iter().try_fold(1i64, |product, dim| product.checked_mul(*dim))
    }

    /// Whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.dims.contains(&0)
    }

    /// Bytes from the pointer to the end of the last element.
    ///
    /// # Errors
    /// `BadParam` when the span exceeds 2^62 bytes.
    pub fn span_bytes(&self) -> Result<u64> {
        if self.is_empty() {
            return Ok(0);
        }
        let last = self.dims.iter().zip(&self.strides).try_fold(0i64, |last, (dim, stride)| {
            (dim - 1).checked_mul(*stride).and_then(|span| last.checked_add(span))
        });
        last.and_then(|last| last.checked_add(1))
            .and_then(|elements| elements.checked_mul(self.dtype.bytes() as i64))
            .filter(|bytes| *bytes <= 1 << 62)
            .map(|bytes| bytes as u64)
            .ok_or_else(|| Error::bad_param(format!("{self}: spans more than 2^62 bytes")))
    }

    /// Checks the descriptor by itself, as the backend document's finalisation does.
    ///
    /// # Errors
    /// `BadParam` for a negative dimension, a stride below 1, different numbers of dimensions and
    /// strides, more than [`DIMS_MAX`] dimensions, an alignment that is not a power of two or not a
    /// multiple of the element size, or a by-value tensor that is virtual or has more than one
    /// element.
    pub fn validate(&self) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("tensor `{}`: {rule}", self.name)));
        if self.dims.is_empty() || self.dims.len() > DIMS_MAX {
            let count = self.dims.len();
            return fail(format!("has {count} dimensions, expected 1 to {DIMS_MAX}"));
        }
        if self.dims.len() != self.strides.len() {
            let (dims, strides) = (self.dims.len(), self.strides.len());
            return fail(format!("has {dims} dimensions but {strides} strides"));
        }
        if let Some(dim) = self.dims.iter().find(|dim| **dim < 0) {
            return fail(format!("dimension {dim} is negative in {:?}", self.dims));
        }
        if let Some(stride) = self.strides.iter().find(|stride| **stride < 1) {
            return fail(format!("stride {stride} is not positive in {:?}", self.strides));
        }
        let size = self.dtype.bytes();
        if !self.alignment.is_power_of_two() || !self.alignment.is_multiple_of(size) {
            let (alignment, dtype) = (self.alignment, self.dtype);
            return fail(format!(
                "byte alignment {alignment} is not a power of two divisible by \
                 the {size} bytes of {dtype}"
            ));
        }
        if self.by_value && self.is_virtual {
            return fail("is both virtual and by value".to_owned());
        }
        if self.by_value && self.elements() != Some(1) {
            return fail(format!("is by value but has dimensions {:?}", self.dims));
        }
        self.span_bytes().map(drop)
    }

    /// Whether two elements may share an address; where that takes too long to decide, they may.
    pub fn may_overlap(&self) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut axes: Vec<(i64, i64)> = std::iter::zip(&self.strides, &self.dims)
            .filter(|(_, dim)| **dim > 1)
            .map(|(stride, dim)| (*stride, *dim))
            .collect();
        axes.sort_unstable();
        let mut span = 0i64;
        let nests = axes.iter().all(|(stride, dim)| {
            let above = *stride > span;
            span = span.saturating_add(stride.saturating_mul(dim - 1));
            above
        });
        // Two elements differ along some axis first, and share an address if the axes behind it
        // make up for that.
        let coincides = |axis: usize| {
            let mut equation = Equation::default();
            for (at, (stride, dim)) in axes.iter().enumerate().skip(axis) {
                let most = i128::from(*dim) - 1;
                let least = if at == axis { 1 } else { -most };
                equation.add(i128::from(*stride), [least, most]);
            }
            equation.is_solvable(0) != Some(false)
        };
        !nests && (0..axes.len()).any(coincides)
    }

    /// Applies storage in row-major order to `values`: elements that share an address get the value
    /// of the last one.
    pub fn stored(&self, values: &mut [f64]) {
        if !self.may_overlap() {
            return;
        }
        let stored: HashMap<usize, f64> = self.offsets().zip(values.iter().copied()).collect();
        for (offset, value) in self.offsets().zip(values) {
            *value = stored[&offset];
        }
    }

    /// Offsets of all elements, in row-major index order.
    pub fn offsets(&self) -> impl Iterator<Item = usize> + '_ {
        let count = self.elements().unwrap_or(0).max(0);
        (0..count).map(|linear| self.offset_of(linear))
    }

    /// Offset of the `linear`-th element in row-major index order.
    pub fn offset_of(&self, linear: i64) -> usize {
        let mut rest = linear;
        let mut offset = 0;
        for (dim, stride) in self.dims.iter().zip(&self.strides).rev() {
            offset += (rest % dim) * stride;
            rest /= dim;
        }
        offset as usize
    }
}

/// Row-major strides of a packed tensor.
pub fn packed_strides(dims: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = i64::saturating_mul(strides[axis], dims[axis].max(1));
    }
    strides
}

/// Extents and strides grow.
impl Progression for TensorDesc {
    fn term(first: &TensorDesc, second: &TensorDesc, at: i64) -> Option<TensorDesc> {
        let dims = Vec::term(&first.dims, &second.dims, at)?;
        let strides = Vec::term(&first.strides, &second.strides, at)?;
        let TensorDesc { uid, dtype, alignment, is_virtual, by_value, .. } = *first;
        let name = first.name.clone();
        Some(TensorDesc { uid, name, dims, strides, dtype, alignment, is_virtual, by_value })
    }
}

impl fmt::Display for TensorDesc {
    /// Formats as `name: bf16[64, 768]`, followed by strides if not packed, and flags.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{:?}", escaped(&self.name), self.dtype, self.dims)?;
        if self.strides != packed_strides(&self.dims) {
            write!(f, " strides {:?}", self.strides)?;
        }
        if self.alignment != 16 {
            write!(f, " align {}", self.alignment)?;
        }
        if self.is_virtual {
            f.write_str(" virtual")?;
        }
        if self.by_value {
            f.write_str(" by value")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_offsets_follow_strides() {
        let mut tensor = TensorDesc::packed(1, "x", &[2, 3], DType::F32);
        assert_eq!(tensor.span_bytes().ok(), Some(24));
        tensor.strides = vec![10, 2];
        assert_eq!(tensor.span_bytes().ok(), Some((10 + 4 + 1) * 4));
        assert_eq!(tensor.offsets().collect::<Vec<_>>(), [0, 2, 4, 10, 12, 14]);
        assert_eq!(tensor.to_string(), "x: f32[2, 3] strides [10, 2]");
    }

    #[test]
    fn overlap_is_seen() {
        let mut tensor = TensorDesc::packed(1, "y", &[4, 4], DType::F32);
        assert!(!tensor.may_overlap());
        tensor.strides = vec![3, 1];
        assert!(tensor.may_overlap());
        tensor.strides = vec![1, 4];
        assert!(!tensor.may_overlap());
        let [strides, dims] = [vec![3, 2], vec![2, 3]];
        let woven = TensorDesc { strides, dims, ..tensor.clone() };
        assert!(!woven.may_overlap(), "0, 2, 4, 3, 5, 7");
        let empty = TensorDesc { dims: vec![4, 0, 4], strides: vec![1; 3], ..tensor };
        assert!(!empty.may_overlap());
    }

    #[test]
    fn overlap_agrees_with_all_offsets() {
        let mut state = 7u64;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((state >> 33) % count) as i64
        };
        let mut overlapping = 0;
        for _ in 0..3000 {
            let rank = 1 + below(4) as usize;
            let dims: Vec<i64> = (0..rank).map(|_| below(5)).collect();
            let strides: Vec<i64> = (0..rank).map(|_| 1 + below(16)).collect();
            let tensor = TensorDesc { strides, ..TensorDesc::packed(1, "x", &dims, DType::F32) };
            let mut offsets = std::collections::HashSet::new();
            let repeated = tensor.offsets().any(|offset| !offsets.insert(offset));
            assert_eq!(tensor.may_overlap(), repeated, "{tensor}");
            overlapping += usize::from(repeated);
        }
        assert!((300..2700).contains(&overlapping), "{overlapping}");
    }

    #[test]
    fn validation_names_the_rule() {
        let check = |change: fn(&mut TensorDesc)| {
            let mut tensor = TensorDesc::packed(1, "x", &[2, 3], DType::F32);
            change(&mut tensor);
            tensor.validate().expect_err("invalid").to_string()
        };
        assert_eq!(check(|t| t.dims = vec![]), "tensor `x`: has 0 dimensions, expected 1 to 8");
        assert_eq!(check(|t| t.strides = vec![1]), "tensor `x`: has 2 dimensions but 1 strides");
        assert_eq!(check(|t| t.dims[1] = -2), "tensor `x`: dimension -2 is negative in [2, -2]");
        assert_eq!(check(|t| t.strides[0] = 0), "tensor `x`: stride 0 is not positive in [0, 1]");
        assert_eq!(
            check(|t| t.alignment = 2),
            "tensor `x`: byte alignment 2 is not a power of two divisible by the 4 bytes of f32"
        );
        assert_eq!(
            check(|t| t.by_value = true),
            "tensor `x`: is by value but has dimensions [2, 3]"
        );
        assert_eq!(
            check(|t| t.strides[0] = i64::MAX),
            "x: f32[2, 3] strides [9223372036854775807, 1]: spans more than 2^62 bytes"
        );
    }
}
