//! Structures as C has them, of the runtime and of the driver.

use std::ffi::{c_int, c_void};

/// `dim3`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// `cudaLaunchConfig_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Config {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared_bytes: usize,
    pub stream: u64,
    pub attributes: *const c_void,
    pub attribute_count: u32,
}

/// `CUlaunchConfig`, whose attributes are the runtime's.
#[repr(C)]
pub struct DriverConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared_bytes: u32,
    pub stream: u64,
    pub attributes: *const c_void,
    pub attribute_count: u32,
}

/// `cudaPitchedPtr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Pitched {
    pub start: *mut c_void,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `cudaPos`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Position {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// `cudaExtent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One side of a copy in three dimensions.
#[repr(C)]
pub struct Side {
    pub array: u64,
    pub position: Position,
    pub pointer: Pitched,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
pub struct Copy3dParams {
    pub from: Side,
    pub to: Side,
    pub extent: Extent,
    pub kind: c_int,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
pub struct Copy3dPeerParams {
    pub from: Side,
    pub from_device: c_int,
    pub to: Side,
    pub to_device: c_int,
    pub extent: Extent,
}

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Side2d {
    pub x_bytes: usize,
    pub y: usize,
    pub memory: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub struct Copy2d {
    pub from: Side2d,
    pub to: Side2d,
    pub width: usize,
    pub height: usize,
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
pub struct Side3d {
    pub x_bytes: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub memory: u32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub reserved: u64,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
pub struct Copy3d {
    pub from: Side3d,
    pub to: Side3d,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `cudaFuncAttributes`.
#[derive(Default)]
#[repr(C)]
pub struct FunctionAttributes {
    pub shared_bytes: usize,
    pub const_bytes: usize,
    pub local_bytes: usize,
    pub threads_max: c_int,
    pub registers: c_int,
    pub ptx_version: c_int,
    pub binary_version: c_int,
    pub cache_mode: c_int,
    pub dynamic_shared_bytes_max: c_int,
    pub carveout: c_int,
    pub cluster_must_be_set: c_int,
    pub cluster: [c_int; 3],
    pub cluster_policy: c_int,
    pub wide_clusters: c_int,
    pub reserved: [c_int; 16],
}

/// `cudaPointerAttributes`, as CUDA 12 has it: what CUDA 13 added to it is reserved.
#[repr(C)]
pub struct PointerAttributes {
    pub kind: c_int,
    pub device: c_int,
    pub device_pointer: u64,
    pub host_pointer: u64,
}

/// `cudaChannelFormatDesc`.
#[repr(C)]
pub struct ChannelFormat {
    pub bits: [c_int; 4],
    pub kind: c_int,
}
