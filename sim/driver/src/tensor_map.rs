//! Tensor maps.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::{
    Error, Interleave, L2Promotion, OutOfBoundsFill, Swizzle, TensorMap, TensorType, Tiled,
};

use crate::machine::driver;
use crate::outcome::{Outcome, explain};
use crate::pointer::{Host, In};

driver! {
    fn cuTensorMapEncodeTiled(
        map: Host,
        data_type: c_uint,
        rank: u32,
        address: u64,
        dims: In<u64>,
        strides: In<u64>,
        box_dims: In<u32>,
        element_strides: In<u32>,
        interleave: c_uint,
        swizzle: c_uint,
        l2_promotion: c_uint,
        fill: c_uint,
    ) {
        let options = Options::of(data_type, interleave, swizzle, l2_promotion, fill)?;
        let tensor = Tensor { rank, address, dims, strides, element_strides };
        encode(map, &tensor, &options, &box_dims.all(tensor.rank(1)?)?, TensorMap::encode_tiled)
    }

    fn cuTensorMapEncodeIm2col(
        map: Host,
        data_type: c_uint,
        rank: u32,
        address: u64,
        dims: In<u64>,
        strides: In<u64>,
        lower_corner: In<i32>,
        upper_corner: In<i32>,
        channels: u32,
        pixels_per_column: u32,
        element_strides: In<u32>,
        interleave: c_uint,
        swizzle: c_uint,
        l2_promotion: c_uint,
        fill: c_uint,
    ) {
        let options = Options::of(data_type, interleave, swizzle, l2_promotion, fill)?;
        let tensor = Tensor { rank, address, dims, strides, element_strides };
        let spatial = tensor.rank(3)? - 2;
        let corners = [lower_corner.all(spatial)?, upper_corner.all(spatial)?];
        let pixels = |tiled: &Tiled<'_>| {
            TensorMap::encode_im2col(tiled, corners.each_ref().map(Vec::as_slice))
        };
        encode(map, &tensor, &options, &[channels, pixels_per_column], pixels)
    }
}

/// A tensor in the caller's words.
struct Tensor {
    rank: u32,
    address: u64,
    dims: In<u64>,
    strides: In<u64>,
    element_strides: In<u32>,
}

impl Tensor {
    /// The rank, if it is at least this and at most 5.
    fn rank(&self, least: u32) -> Outcome<usize> {
        match (least..=5).contains(&self.rank) {
            true => Ok(self.rank as usize),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// Writes a tensor map to where the caller wants it.
fn encode(
    to: Host,
    tensor: &Tensor,
    options: &Options,
    box_dims: &[u32],
    encode: impl Fn(&Tiled<'_>) -> Result<TensorMap, Error>,
) -> Outcome {
    if !to.address().is_multiple_of(64) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let rank = tensor.rank(1)?;
    let Options { data_type, interleave, swizzle, l2_promotion, fill } = *options;
    let tiled = Tiled {
        data_type,
        address: tensor.address,
        dims: &tensor.dims.all(rank)?,
        strides: &tensor.strides.all(rank - 1)?,
        box_dims,
        element_strides: &tensor.element_strides.all(rank)?,
        interleave,
        swizzle,
        l2_promotion,
        fill,
    };
    let map = encode(&tiled).map_err(|error| explain(CUDA_ERROR_INVALID_VALUE, &error))?;
    to.write(&map.words().map(u64::to_le_bytes).concat())
}

/// What maps of both modes have.
struct Options {
    data_type: TensorType,
    interleave: Interleave,
    swizzle: Swizzle,
    l2_promotion: L2Promotion,
    fill: OutOfBoundsFill,
}

impl Options {
    /// The options that numbers of `cuda.h` name.
    fn of(
        data_type: c_uint,
        interleave: c_uint,
        swizzle: c_uint,
        l2_promotion: c_uint,
        fill: c_uint,
    ) -> Outcome<Options> {
        use TensorType::*;
        let types = [U8, U16, U32, S32, U64, S64, F16, F32, F64, Bf16];
        let interleaves = [Interleave::None, Interleave::B16, Interleave::B32];
        let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
        let promotions =
            [L2Promotion::None, L2Promotion::B64, L2Promotion::B128, L2Promotion::B256];
        let fills = [OutOfBoundsFill::Zero, OutOfBoundsFill::Nan];
        fn named<T: Copy>(names: &[T], number: c_uint) -> Outcome<T> {
            names.get(number as usize).copied().ok_or(CUDA_ERROR_INVALID_VALUE)
        }
        Ok(Options {
            data_type: named(&types, data_type)?,
            interleave: named(&interleaves, interleave)?,
            swizzle: named(&swizzles, swizzle)?,
            l2_promotion: named(&promotions, l2_promotion)?,
            fill: named(&fills, fill)?,
        })
    }
}
