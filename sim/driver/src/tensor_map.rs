//! Tensor maps.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;
use cudarc::driver::sys::{CUresult, CUtensorMap};
use kiln_sim::{Interleave, L2Promotion, OutOfBoundsFill, Swizzle, TensorMap, TensorType, Tiled};

use crate::launch::explain;
use crate::machine::give;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut CUtensorMap,
    data_type: c_uint,
    rank: u32,
    address: u64,
    dims: *const u64,
    strides: *const u64,
    box_dims: *const u32,
    element_strides: *const u32,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    fill: c_uint,
) -> CUresult {
    // In the order of `cuda.h`.
    use TensorType::*;
    let types = [U8, U16, U32, S32, U64, S64, F16, F32, F64, Bf16];
    let interleaves = [Interleave::None, Interleave::B16, Interleave::B32];
    let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
    let promotions = [L2Promotion::None, L2Promotion::B64, L2Promotion::B128, L2Promotion::B256];
    let fills = [OutOfBoundsFill::Zero, OutOfBoundsFill::Nan];
    let known = (
        types.get(data_type as usize),
        interleaves.get(interleave as usize),
        swizzles.get(swizzle as usize),
        promotions.get(l2_promotion as usize),
        fills.get(fill as usize),
    );
    let (Some(&data_type), Some(&interleave), Some(&swizzle), Some(&l2_promotion), Some(&fill)) =
        known
    else {
        return CUDA_ERROR_INVALID_VALUE;
    };
    if !(1..=5).contains(&rank) || !map.addr().is_multiple_of(64) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    let rank = rank as usize;
    // SAFETY: the caller gives arrays of `rank` elements each, as the API asks.
    let encode = || unsafe {
        let tiled = Tiled {
            data_type,
            address,
            dims: std::slice::from_raw_parts(dims, rank),
            strides: std::slice::from_raw_parts(strides, rank - 1),
            box_dims: std::slice::from_raw_parts(box_dims, rank),
            element_strides: std::slice::from_raw_parts(element_strides, rank),
            interleave,
            swizzle,
            l2_promotion,
            fill,
        };
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        let encoded = TensorMap::encode_tiled(&tiled).map_err(invalid)?;
        Ok(CUtensorMap { opaque: encoded.words() })
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(map, encode()) }
}
