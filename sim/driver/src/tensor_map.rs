//! Tensor maps.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::{Interleave, L2Promotion, OutOfBoundsFill, Swizzle, TensorMap, TensorType, Tiled};

use crate::machine::driver;
use crate::outcome::explain;
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
        // In the order of `cuda.h`.
        use TensorType::*;
        let types = [U8, U16, U32, S32, U64, S64, F16, F32, F64, Bf16];
        let interleaves = [Interleave::None, Interleave::B16, Interleave::B32];
        let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
        let promotions =
            [L2Promotion::None, L2Promotion::B64, L2Promotion::B128, L2Promotion::B256];
        let fills = [OutOfBoundsFill::Zero, OutOfBoundsFill::Nan];
        let known = (
            types.get(data_type as usize),
            interleaves.get(interleave as usize),
            swizzles.get(swizzle as usize),
            promotions.get(l2_promotion as usize),
            fills.get(fill as usize),
        );
        let (
            Some(&data_type),
            Some(&interleave),
            Some(&swizzle),
            Some(&l2_promotion),
            Some(&fill),
        ) = known
        else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        if !(1..=5).contains(&rank) || !map.address().is_multiple_of(64) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let rank = rank as usize;
        let tiled = Tiled {
            data_type,
            address,
            dims: &dims.all(rank)?,
            strides: &strides.all(rank - 1)?,
            box_dims: &box_dims.all(rank)?,
            element_strides: &element_strides.all(rank)?,
            interleave,
            swizzle,
            l2_promotion,
            fill,
        };
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        let words = TensorMap::encode_tiled(&tiled).map_err(invalid)?.words();
        map.write(&words.map(u64::to_le_bytes).concat())
    }
}
