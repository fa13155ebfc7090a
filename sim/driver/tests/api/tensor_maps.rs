//! Tensor maps, as the machine encodes them.

use kiln_sim::{Interleave, L2Promotion, OutOfBoundsFill, Swizzle, TensorMap, TensorType, Tiled};

use crate::code::*;
use crate::driver::{Driver, call};

#[repr(align(64))]
struct Map([u64; 16]);

/// Both encoders of tensor maps give the machine's bytes, and refuse what it refuses.
#[test]
fn tensor_maps_are_encoded() {
    let driver = Driver::open();
    let (dims, strides, steps) = ([64_u64, 5, 4, 2], [128_u64, 640, 2560], [1_u32, 2, 1, 1]);
    let (lower, upper) = ([-1_i32, -2], [0_i32, -1]);
    let (address, bf16, swizzle) = (1_u64 << 30, 9_u32, 3_u32);
    let box_dims = [64_u32, 2, 1, 1];
    let tensor = Tiled {
        data_type: TensorType::Bf16,
        address,
        dims: &dims,
        strides: &strides,
        box_dims: &box_dims,
        element_strides: &steps,
        interleave: Interleave::None,
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::B256,
        fill: OutOfBoundsFill::Zero,
    };
    let tiled = TensorMap::encode_tiled(&tensor);
    let mut map = Map([0; 16]);
    let code = call!(
        driver,
        cuTensorMapEncodeTiled(
            &mut map, bf16, 4_u32, address, &dims, &strides, &box_dims, &steps, 0_u32, swizzle,
            3_u32, 0_u32
        )
    );
    assert_eq!((code, map.0), (SUCCESS, tiled.unwrap().words()));
    let images = Tiled { box_dims: &[64, 128], ..tensor };
    let im2col = TensorMap::encode_im2col(&images, [&lower, &upper]);
    let mut encode = |rank: u32, pixels: u32| {
        call!(
            driver,
            cuTensorMapEncodeIm2col(
                &mut map, bf16, rank, address, &dims, &strides, &lower, &upper, 64_u32, pixels,
                &steps, 0_u32, swizzle, 3_u32, 0_u32
            )
        )
    };
    assert_eq!(encode(4, 1025), INVALID_VALUE);
    assert_eq!(encode(2, 128), INVALID_VALUE);
    assert_eq!(encode(4, 128), SUCCESS);
    assert_eq!(map.0, im2col.unwrap().words());
}
