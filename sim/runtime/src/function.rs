//! Kernels: their attributes, names, parameters, and how many blocks of them an SM holds.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::code::Outcome;
use crate::context::known;
use crate::driver::*;
use crate::last::runtime;
use crate::launch::driver_config;
use crate::layout::{Config, FunctionAttributes};
use crate::place::{given, put};
use crate::registry::kernel;

/// Attributes of a function (`CUfunction_attribute`), in the order of the driver's numbers.
fn attributes(function: u64) -> Outcome<FunctionAttributes> {
    let attribute = |which: c_uint| {
        let mut value = 0;
        cuFuncGetAttribute(&mut value, which, function).map(|()| value)
    };
    Ok(FunctionAttributes {
        threads_max: attribute(0)?,
        shared_bytes: attribute(1)? as usize,
        const_bytes: attribute(2)? as usize,
        local_bytes: attribute(3)? as usize,
        registers: attribute(4)?,
        ptx_version: attribute(5)?,
        binary_version: attribute(6)?,
        cache_mode: attribute(7)?,
        dynamic_shared_bytes_max: attribute(8)?,
        carveout: attribute(9)?,
        cluster_must_be_set: attribute(10)?,
        cluster: [attribute(11)?, attribute(12)?, attribute(13)?],
        wide_clusters: attribute(14)?,
        cluster_policy: attribute(15)?,
        ..FunctionAttributes::default()
    })
}

runtime! {
    fn cudaFuncGetAttributes(to: *mut FunctionAttributes, of: *const c_void) {
        put(to, attributes(kernel(of)?)?)
    }

    fn cudaFuncSetAttribute(of: *const c_void, attribute: c_uint, value: c_int) {
        cuFuncSetAttribute(kernel(of)?, attribute, value)
    }

    fn cudaFuncSetCacheConfig(of: *const c_void, config: c_uint) {
        cuFuncSetCacheConfig(kernel(of)?, config)
    }

    fn cudaFuncSetSharedMemConfig(of: *const c_void, config: c_uint) {
        cuFuncSetSharedMemConfig(kernel(of)?, config)
    }

    fn cudaFuncGetName(name: *mut *const c_char, of: *const c_void) {
        cuFuncGetName(name, kernel(of)?)
    }

    fn cudaFuncGetParamInfo(
        of: *const c_void,
        index: usize,
        offset: *mut usize,
        bytes: *mut usize,
    ) {
        cuFuncGetParamInfo(kernel(of)?, index, offset, bytes)
    }

    fn cudaGetFuncBySymbol(function: *mut u64, of: *const c_void) {
        put(function, kernel(of)?)
    }

    fn cudaGetKernel(to: *mut u64, of: *const c_void) {
        put(to, kernel(of)?)
    }

    fn cudaKernelSetAttributeForDevice(
        kernel: u64,
        attribute: c_uint,
        value: c_int,
        device: c_int,
    ) {
        known(device)?;
        cuKernelSetAttribute(attribute, value, kernel, device)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        count: *mut c_int,
        of: *const c_void,
        threads: c_int,
        shared: usize,
    ) {
        let function = kernel(of)?;
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(count, function, threads, shared, 0)
    }

    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: *mut c_int,
        of: *const c_void,
        threads: c_int,
        shared: usize,
        flags: c_uint,
    ) {
        let function = kernel(of)?;
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            count, function, threads, shared, flags,
        )
    }

    fn cudaOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize,
        of: *const c_void,
        blocks: c_int,
        threads: c_int,
    ) {
        cuOccupancyAvailableDynamicSMemPerBlock(bytes, kernel(of)?, blocks, threads)
    }

    fn cudaOccupancyMaxPotentialClusterSize(
        size: *mut c_int,
        of: *const c_void,
        config: *const Config,
    ) {
        let config = driver_config(given(config)?)?;
        cuOccupancyMaxPotentialClusterSize(size, kernel(of)?, &config)
    }

    fn cudaOccupancyMaxActiveClusters(
        count: *mut c_int,
        of: *const c_void,
        config: *const Config,
    ) {
        let config = driver_config(given(config)?)?;
        cuOccupancyMaxActiveClusters(count, kernel(of)?, &config)
    }
}
