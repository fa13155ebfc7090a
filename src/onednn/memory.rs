//! Memory descriptors: dimensions, type, and where elements lie.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{TensorDesc, packed_strides};

/// The order of a tensor's dimensions in memory (`dnnl::memory::format_tag`), by letters: layers
/// `l`, directions `d`, steps `t`, sequences `n`, channels `c`, gates `g`, input channels `i`,
/// output channels `o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FormatTag {
    /// What the primitive prefers.
    Any,
    /// Inputs and outputs step by step.
    Tnc,
    /// Inputs and outputs sequence by sequence; their dimensions are `t n c` nevertheless.
    Ntc,
    /// States.
    Ldnc,
    /// Weights, row by row of the input.
    Ldigo,
    /// Weights, row by row of the output; their dimensions are `l d i g o` nevertheless.
    Ldgoi,
    /// Projections, row by row of the input.
    Ldio,
    /// Projections, row by row of the output; their dimensions are `l d i o` nevertheless.
    Ldoi,
    /// Biases and peepholes.
    Ldgo,
}

impl FormatTag {
    /// All tags.
    pub const ALL: [FormatTag; 9] = [
        FormatTag::Any,
        FormatTag::Tnc,
        FormatTag::Ntc,
        FormatTag::Ldnc,
        FormatTag::Ldigo,
        FormatTag::Ldgoi,
        FormatTag::Ldio,
        FormatTag::Ldoi,
        FormatTag::Ldgo,
    ];

    /// Name in messages.
    pub fn name(self) -> &'static str {
        match self {
            FormatTag::Any => "any",
            FormatTag::Tnc => "tnc",
            FormatTag::Ntc => "ntc",
            FormatTag::Ldnc => "ldnc",
            FormatTag::Ldigo => "ldigo",
            FormatTag::Ldgoi => "ldgoi",
            FormatTag::Ldio => "ldio",
            FormatTag::Ldoi => "ldoi",
            FormatTag::Ldgo => "ldgo",
        }
    }

    /// The dimensions from the outermost one in memory on; none for `any`.
    fn order(self) -> &'static [usize] {
        match self {
            FormatTag::Any => &[],
            FormatTag::Tnc => &[0, 1, 2],
            FormatTag::Ntc => &[1, 0, 2],
            FormatTag::Ldnc | FormatTag::Ldio | FormatTag::Ldgo => &[0, 1, 2, 3],
            FormatTag::Ldoi => &[0, 1, 3, 2],
            FormatTag::Ldigo => &[0, 1, 2, 3, 4],
            FormatTag::Ldgoi => &[0, 1, 3, 4, 2],
        }
    }
}

/// A memory descriptor (`dnnl::memory::desc`). Without strides, its format is `any`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemoryDesc {
    dims: Vec<i64>,
    dtype: DType,
    strides: Option<Vec<i64>>,
}

impl MemoryDesc {
    /// A packed tensor, or one of format `any`.
    ///
    /// # Errors
    /// `BadParam` for a dimension below 1, more than 2^62 bytes, and dimensions that are not as
    /// many as the tag has letters.
    pub fn new(dims: &[i64], dtype: DType, tag: FormatTag) -> Result<MemoryDesc> {
        if tag == FormatTag::Any {
            return MemoryDesc { dims: dims.to_vec(), dtype, strides: None }.valid();
        }
        let order = tag.order();
        if dims.len() != order.len() {
            let name = tag.name();
            return Err(Error::bad_param(format!("memory {dims:?} of format {name}")));
        }
        let physical: Vec<i64> = order.iter().map(|axis| dims[*axis]).collect();
        let packed = packed_strides(&physical);
        let stride = |axis: usize| {
            let at = order.iter().position(|own| *own == axis);
            packed[at.expect("the order has every axis")]
        };
        MemoryDesc::strided(dims, dtype, &(0..dims.len()).map(stride).collect::<Vec<_>>())
    }

    /// A tensor whose neighbours along each dimension are so many elements apart.
    ///
    /// # Errors
    /// As [`MemoryDesc::new`]; `BadParam` for a stride below 1, and another number of strides than
    /// of dimensions.
    pub fn strided(dims: &[i64], dtype: DType, strides: &[i64]) -> Result<MemoryDesc> {
        MemoryDesc { dims: dims.to_vec(), dtype, strides: Some(strides.to_vec()) }.valid()
    }

    fn valid(self) -> Result<MemoryDesc> {
        if let Some(dim) = self.dims.iter().find(|dim| **dim < 1) {
            let dims = &self.dims;
            return Err(Error::bad_param(format!(
                "memory {dims:?}: dimension {dim}, expected at least 1"
            )));
        }
        self.tensor(1, "memory", 0).validate()?;
        Ok(self)
    }

    /// Dimensions.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Distances in elements between neighbours along each dimension; none of format `any`.
    pub fn strides(&self) -> Option<&[i64]> {
        self.strides.as_deref()
    }

    /// Whether the format is `any`.
    pub fn is_any(&self) -> bool {
        self.strides.is_none()
    }

    /// Bytes from the first element to the end of the last one; 0 of format `any`.
    pub fn bytes(&self) -> u64 {
        match self.strides {
            Some(_) => self.tensor(1, "memory", 0).span_bytes().expect("it was checked"),
            None => 0,
        }
    }

    /// The tensor of a graph that the memory is, of so many dimensions at least.
    pub(super) fn tensor(&self, uid: i64, name: &str, rank: usize) -> TensorDesc {
        let packed = TensorDesc::packed(uid, name, &self.dims, self.dtype);
        let strides = self.strides.clone().unwrap_or_else(|| packed.strides.clone());
        let missing = vec![1; rank.saturating_sub(self.dims.len())];
        let dims = [&missing[..], &self.dims].concat();
        TensorDesc { dims, strides: [missing, strides].concat(), ..packed }
    }
}

impl fmt::Display for MemoryDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.dims)?;
        match &self.strides {
            None => f.write_str(" any"),
            Some(strides) if *strides != packed_strides(&self.dims) => {
                write!(f, " strides {strides:?}")
            }
            Some(_) => Ok(()),
        }
    }
}
