//! Stream-ordered memory and its pools.

use std::ffi::{c_int, c_uint, c_void};

use crate::code::Outcome;
use crate::context::{current, known};
use crate::driver::*;
use crate::last::runtime;
use crate::place::{address, place, put};

/// Nothing is asked for: nothing is given.
fn unless_empty(to: *mut u64, bytes: usize, made: impl FnOnce() -> Outcome) -> Outcome {
    current()?;
    place(to)?;
    if bytes == 0 { put(to, 0) } else { made() }
}

runtime! {
    fn cudaMallocAsync(to: *mut u64, bytes: usize, stream: u64) {
        unless_empty(to, bytes, || cuMemAllocAsync(to, bytes, stream))
    }

    fn cudaMallocFromPoolAsync(to: *mut u64, bytes: usize, pool: u64, stream: u64) {
        unless_empty(to, bytes, || cuMemAllocFromPoolAsync(to, bytes, pool, stream))
    }

    fn cudaFreeAsync(from: *mut c_void, stream: u64) {
        current()?;
        cuMemFreeAsync(address(from), stream)
    }

    fn cudaDeviceGetDefaultMemPool(pool: *mut u64, device: c_int) {
        known(device)?;
        cuDeviceGetDefaultMemPool(pool, device)
    }

    fn cudaDeviceGetMemPool(pool: *mut u64, device: c_int) {
        known(device)?;
        cuDeviceGetMemPool(pool, device)
    }

    fn cudaDeviceSetMemPool(device: c_int, pool: u64) {
        known(device)?;
        cuDeviceSetMemPool(device, pool)
    }

    // Structures and attributes of pools are the driver's.
    fn cudaMemPoolCreate(pool: *mut u64, properties: *const c_void) {
        current()?;
        cuMemPoolCreate(pool, properties)
    }

    fn cudaMemPoolDestroy(pool: u64) {
        current()?;
        cuMemPoolDestroy(pool)
    }

    fn cudaMemPoolTrimTo(pool: u64, bytes: usize) {
        current()?;
        cuMemPoolTrimTo(pool, bytes)
    }

    fn cudaMemPoolGetAttribute(pool: u64, attribute: c_uint, value: *mut c_void) {
        current()?;
        cuMemPoolGetAttribute(pool, attribute, value)
    }

    fn cudaMemPoolSetAttribute(pool: u64, attribute: c_uint, value: *mut c_void) {
        current()?;
        cuMemPoolSetAttribute(pool, attribute, value)
    }

    fn cudaMemPoolGetAccess(flags: *mut c_uint, pool: u64, location: *const c_void) {
        current()?;
        cuMemPoolGetAccess(flags, pool, location)
    }

    fn cudaMemPoolSetAccess(pool: u64, access: *const c_void, count: usize) {
        current()?;
        cuMemPoolSetAccess(pool, access, count)
    }
}
