//! Attributes of the device (`CUdevice_attribute`).

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::CUdevice_attribute_enum::*;
use cudarc::driver::sys::cudaError_enum::*;

use crate::launch::SHARED_BYTES_DEFAULT;
use crate::occupancy::{gpu, shared_bytes_reserved};
use crate::outcome::Outcome;

/// Attributes that are 1: what the device can do.
const ABLE: [u32; 18] = [
    CU_DEVICE_ATTRIBUTE_GPU_OVERLAP as u32,
    CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY as u32,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS as u32,
    CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT as u32,
    CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING as u32,
    CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY as u32,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS as u32,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST as u32,
    CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM as u32,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH as u32,
    CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as u32,
    CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID as u32,
];

/// Attributes that every GPU of these has alike.
const ALIKE: [(u32, c_int); 14] = [
    (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK as u32, 1024),
    (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X as u32, 1024),
    (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y as u32, 1024),
    (CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z as u32, 64),
    (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X as u32, i32::MAX),
    (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y as u32, 65535),
    (CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z as u32, 65535),
    (CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY as u32, 65536),
    (CU_DEVICE_ATTRIBUTE_WARP_SIZE as u32, 32),
    (CU_DEVICE_ATTRIBUTE_MAX_PITCH as u32, i32::MAX),
    (CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK as u32, 65536),
    (CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR as u32, 65536),
    (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT as u32, 512),
    (CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT as u32, 32),
];

pub fn attribute(which: c_uint) -> Outcome<c_int> {
    let gpu = gpu();
    let hopper = gpu.capability >= (9, 0);
    let own = [
        (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.capability.0),
        (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu.capability.1),
        (CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu.sm_count),
        (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_BYTES_DEFAULT),
        (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, gpu.shared_bytes_max),
        (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, gpu.shared_bytes_sm),
        (CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, shared_bytes_reserved(gpu)),
        (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, gpu.threads_sm),
        (CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, gpu.blocks_sm),
        (CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, gpu.l2_bytes),
        (CU_DEVICE_ATTRIBUTE_CLOCK_RATE, gpu.clock_khz),
        (CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, gpu.memory_clock_khz),
        (CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, gpu.memory_bus_bits),
        (CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, hopper.into()),
        (CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, hopper.into()),
        // Of data sheets: 1 to 2 where double precision is for computing, else 1 to 64 or 32.
        (
            CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
            match gpu.capability {
                (8..=10, 0) => 2,
                (7, 5) => 32,
                _ => 64,
            },
        ),
    ];
    let own = own.iter().find(|(known, _)| *known as c_uint == which);
    let alike = ALIKE.iter().find(|(known, _)| *known == which);
    match (own, alike) {
        (Some((_, value)), _) => Ok(*value as c_int),
        (_, Some((_, value))) => Ok(*value),
        _ if ABLE.contains(&which) => Ok(1),
        // There are no textures, no arrays, no pages of memory to map, and no second device.
        _ if (1..CU_DEVICE_ATTRIBUTE_MAX as c_uint).contains(&which) => Ok(0),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}
