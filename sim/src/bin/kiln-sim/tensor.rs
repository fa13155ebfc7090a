//! Arguments that refer to the job's other buffers: tensor maps, and arrays of addresses.

use crate::job::{Buffer, Dtype, Result};
use kiln_sim::{
    Device, Interleave, L2Promotion, OutOfBoundsFill, Swizzle, TensorMap, TensorType, Tiled,
};
use serde::Deserialize;

/// A buffer with its address.
type Other<'a> = (u64, &'a Buffer);

/// A tensor map, as `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col` makes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorMapOf {
    /// Index of the buffer that holds the tensor.
    pub tensor: usize,
    /// Extents in elements, the contiguous dimension first.
    pub dims: Vec<u64>,
    /// Strides in bytes of all dimensions but the first; without them, those of a packed tensor.
    pub strides: Option<Vec<u64>>,
    #[serde(rename = "box")]
    pub box_dims: Vec<u32>,
    /// Element strides; without them, 1.
    pub steps: Option<Vec<u32>>,
    /// Bytes of the swizzle: 0, 32, 64 or 128.
    #[serde(default)]
    pub swizzle: u32,
    /// Whether elements outside the tensor are NaN instead of zero.
    #[serde(default)]
    pub nan: bool,
    /// Lower and upper corners of a map of im2col mode, whose box is of channels and pixels.
    pub im2col: Option<[Vec<i32>; 2]>,
}

/// A buffer in global memory that holds addresses of buffers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addresses {
    /// Indices of the buffers.
    pub addresses: Vec<usize>,
}

fn find<'a>(others: &[Other<'a>], index: usize) -> Result<Other<'a>> {
    let count = others.len();
    others.get(index).copied().ok_or_else(|| format!("buffer {index} of {count}"))
}

fn element(dtype: Dtype) -> TensorType {
    match dtype {
        Dtype::U8 | Dtype::I8 => TensorType::U8,
        Dtype::U16 | Dtype::I16 => TensorType::U16,
        Dtype::U32 => TensorType::U32,
        Dtype::I32 => TensorType::S32,
        Dtype::U64 => TensorType::U64,
        Dtype::I64 => TensorType::S64,
        Dtype::F16 => TensorType::F16,
        Dtype::Bf16 => TensorType::Bf16,
        Dtype::F32 => TensorType::F32,
        Dtype::F64 => TensorType::F64,
    }
}

impl TensorMapOf {
    /// The 128 bytes of the map.
    pub fn encode(&self, others: &[Other<'_>]) -> Result<Vec<u8>> {
        let (address, buffer) = find(others, self.tensor)?;
        let bytes = buffer.dtype.bytes() as u64;
        let packed = self.dims.iter().scan(bytes, |stride, dim| {
            *stride = stride.saturating_mul(*dim);
            Some(*stride)
        });
        let packed = packed.take(self.dims.len().saturating_sub(1)).collect();
        let ones = vec![1; self.dims.len()];
        let swizzle = match self.swizzle {
            0 => Swizzle::None,
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            other => return Err(format!("a swizzle of {other} bytes, not 0, 32, 64 or 128")),
        };
        let tiled = Tiled {
            data_type: element(buffer.dtype),
            address,
            dims: &self.dims,
            strides: self.strides.as_ref().unwrap_or(&packed),
            box_dims: &self.box_dims,
            element_strides: self.steps.as_ref().unwrap_or(&ones),
            interleave: Interleave::None,
            swizzle,
            l2_promotion: L2Promotion::None,
            fill: if self.nan { OutOfBoundsFill::Nan } else { OutOfBoundsFill::Zero },
        };
        let map = match &self.im2col {
            None => TensorMap::encode_tiled(&tiled),
            Some([lower, upper]) => TensorMap::encode_im2col(&tiled, [lower, upper]),
        };
        Ok(map.map_err(|error| error.to_string())?.bytes().to_vec())
    }
}

impl Addresses {
    /// Writes the addresses to the device; returns where.
    pub fn place(&self, device: &Device, others: &[Other<'_>]) -> Result<u64> {
        let mut bytes = Vec::new();
        for &index in &self.addresses {
            bytes.extend(find(others, index)?.0.to_le_bytes());
        }
        let fail = |error: kiln_sim::Error| error.to_string();
        let address = device.alloc(bytes.len() as u64).map_err(fail)?;
        device.write(address, &bytes).map_err(fail)?;
        Ok(address)
    }
}
