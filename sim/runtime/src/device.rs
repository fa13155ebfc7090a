//! The device: that there is one, what is set of it, and waiting for it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::code::{Code, Outcome};
use crate::context::{DEVICE, current, initialised, known, make_current};
use crate::driver::*;
use crate::last::runtime;
use crate::place::{given, put};
use crate::registry::forget;

/// Flags of a device beside how it waits: that it maps memory of the host, which it always does.
const SCHEDULE_FLAGS: c_uint = 7;
const MAP_HOST: c_uint = 8;

fn synchronize() -> Outcome {
    current()?;
    cuCtxSynchronize()
}

fn reset() -> Outcome {
    known(DEVICE)?;
    cuDevicePrimaryCtxReset_v2(DEVICE)?;
    forget();
    Ok(())
}

runtime! {
    fn cudaGetDeviceCount(count: *mut c_int) {
        initialised()?;
        cuDeviceGetCount(count)
    }

    fn cudaGetDevice(device: *mut c_int) {
        initialised()?;
        put(device, DEVICE)
    }

    fn cudaSetDevice(device: c_int) {
        known(device)?;
        make_current()
    }

    fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) {
        known(device)?;
        current()
    }

    fn cudaChooseDevice(device: *mut c_int, _properties: *const c_void) {
        initialised()?;
        put(device, DEVICE)
    }

    fn cudaSetValidDevices(devices: *const c_int, count: c_int) {
        for index in 0..usize::try_from(count).unwrap_or(0) {
            known(*given(devices.wrapping_add(index))?)?;
        }
        Ok(())
    }

    fn cudaSetDeviceFlags(flags: c_uint) {
        initialised()?;
        cuDevicePrimaryCtxSetFlags_v2(DEVICE, flags & !MAP_HOST)
    }

    fn cudaGetDeviceFlags(flags: *mut c_uint) {
        initialised()?;
        let (mut set, mut active) = (0, 0);
        cuDevicePrimaryCtxGetState(DEVICE, &mut set, &mut active)?;
        put(flags, set & SCHEDULE_FLAGS | MAP_HOST)
    }

    fn cudaDeviceSynchronize() {
        synchronize()
    }

    // What is named after threads is what libcudart.so.12 has from before there were contexts of
    // devices.
    fn cudaThreadSynchronize() {
        synchronize()
    }

    fn cudaDeviceReset() {
        reset()
    }

    fn cudaThreadExit() {
        reset()
    }

    fn cudaDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) {
        known(device)?;
        cuDeviceGetAttribute(value, attribute, device)
    }

    fn cudaDeviceGetPCIBusId(id: *mut c_char, room: c_int, device: c_int) {
        known(device)?;
        cuDeviceGetPCIBusId(id, room, device)
    }

    fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) {
        initialised()?;
        cuDeviceGetByPCIBusId(device, id)
    }

    fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        known(device)?;
        known(peer)?;
        cuDeviceCanAccessPeer(can, device, peer)
    }

    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, from: c_int, to: c_int) {
        known(from)?;
        known(to)?;
        cuDeviceGetP2PAttribute(value, attribute, from, to)
    }

    // A device is not its own peer, and there is no other.
    fn cudaDeviceEnablePeerAccess(_peer: c_int, _flags: c_uint) {
        Err(Code::INVALID_DEVICE)
    }

    fn cudaDeviceDisablePeerAccess(_peer: c_int) {
        Err(Code::INVALID_DEVICE)
    }

    fn cudaDeviceGetLimit(value: *mut usize, limit: c_uint) {
        current()?;
        cuCtxGetLimit(value, limit)
    }

    fn cudaThreadGetLimit(value: *mut usize, limit: c_uint) {
        current()?;
        cuCtxGetLimit(value, limit)
    }

    fn cudaDeviceSetLimit(limit: c_uint, value: usize) {
        current()?;
        cuCtxSetLimit(limit, value)
    }

    fn cudaThreadSetLimit(limit: c_uint, value: usize) {
        current()?;
        cuCtxSetLimit(limit, value)
    }

    fn cudaDeviceGetCacheConfig(config: *mut c_uint) {
        current()?;
        cuCtxGetCacheConfig(config)
    }

    fn cudaThreadGetCacheConfig(config: *mut c_uint) {
        current()?;
        cuCtxGetCacheConfig(config)
    }

    fn cudaDeviceSetCacheConfig(config: c_uint) {
        current()?;
        cuCtxSetCacheConfig(config)
    }

    fn cudaThreadSetCacheConfig(config: c_uint) {
        current()?;
        cuCtxSetCacheConfig(config)
    }

    fn cudaDeviceGetSharedMemConfig(config: *mut c_uint) {
        current()?;
        cuCtxGetSharedMemConfig(config)
    }

    fn cudaDeviceSetSharedMemConfig(config: c_uint) {
        current()?;
        cuCtxSetSharedMemConfig(config)
    }

    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?;
        cuCtxGetStreamPriorityRange(least, greatest)
    }

    fn cudaCtxResetPersistingL2Cache() {
        current()?;
        cuCtxResetPersistingL2Cache()
    }

    fn cudaProfilerStart() {
        current()?;
        cuProfilerStart()
    }

    fn cudaProfilerStop() {
        current()?;
        cuProfilerStop()
    }

    fn cudaDriverGetVersion(version: *mut c_int) {
        // Asked to learn whether there is a driver: without one it is version 0.
        cuDriverGetVersion(version).or_else(|_| put(version, 0))
    }
}
