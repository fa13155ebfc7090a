//! Stream-ordered memory and its pools. Memory is the device's as soon as it is freed, so that a
//! pool only counts.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::cudaError_enum::*;

use crate::allocation::Kind;
use crate::machine::{MACHINE, driver};
use crate::memory::{allocate, free};
use crate::objects::Pool;
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out};

/// The pool that a device has from the start.
const DEFAULT: u64 = 0xd0;

/// `CUmemPoolProps`, up to what is read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    allocation_type: c_uint,
    handle_types: c_uint,
    location_type: c_uint,
    location: c_int,
}

const PINNED: c_uint = 1;
const LOCATION_DEVICE: c_uint = 1;

fn device(of: c_int) -> Outcome {
    let _state = MACHINE.ready()?;
    if of == 0 { Ok(()) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
}

/// Calls `f` with a pool.
fn with<T>(handle: u64, f: impl FnOnce(&mut Pool) -> Outcome<T>) -> Outcome<T> {
    let mut state = MACHINE.ready()?;
    match handle {
        DEFAULT => f(state.pools.entry(DEFAULT).or_default()),
        _ => f(state.pools.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)?),
    }
}

fn used(pool: u64) -> u64 {
    MACHINE.state().allocations.bytes_of_pool(pool)
}

fn from_pool(address: Out<u64>, bytes: usize, pool: u64, stream: u64) -> Outcome {
    if address.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    with(pool, |_| Ok(()))?;
    let mut state = MACHINE.current()?;
    state.streams.uncaptured(stream)?;
    drop(state);
    let made = allocate(Kind::Pool(pool), bytes as u64)?;
    let used = used(pool);
    with(pool, |pool| {
        pool.used_high = pool.used_high.max(used);
        Ok(())
    })?;
    address.put(made)
}

driver! {
    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, of: c_int) {
        device(of)?;
        pool.put(DEFAULT)
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, of: c_int) {
        device(of)?;
        let set = with(DEFAULT, |pool| Ok(pool.attributes.get(&0).copied()))?;
        pool.put(set.unwrap_or(DEFAULT))
    }

    fn cuDeviceSetMemPool(of: c_int, pool: u64) {
        device(of)?;
        with(pool, |_| Ok(()))?;
        with(DEFAULT, |default| {
            default.attributes.insert(0, pool);
            Ok(())
        })
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<Properties>) {
        let wanted = properties.get()?;
        if wanted.allocation_type != PINNED || pool.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let on_device = wanted.location_type == LOCATION_DEVICE && wanted.location == 0;
        if !on_device || wanted.handle_types != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut state = MACHINE.ready()?;
        let handle = state.handle();
        state.pools.insert(handle, Pool::default());
        pool.put(handle)
    }

    fn cuMemPoolDestroy(pool: u64) {
        if pool == DEFAULT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = MACHINE.ready()?;
        state.pools.remove(&pool).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state.allocations.free_of_pool(&MACHINE.device, pool);
        if let Some(default) = state.pools.get_mut(&DEFAULT) {
            default.attributes.retain(|&which, &mut set| which != 0 || set != pool);
        }
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: u64, _bytes: usize) {
        with(pool, |_| Ok(()))
    }

    fn cuMemPoolGetAttribute(pool: u64, which: c_uint, value: Out<u64>) {
        let used = used(pool);
        let read = with(pool, |pool| match which {
            // Reuse is allowed in every way unless it was forbidden.
            1..=3 => Ok((pool.attributes.get(&which).copied().unwrap_or(1), 4)),
            4 => Ok((pool.attributes.get(&which).copied().unwrap_or(0), 8)),
            5 | 7 => Ok((used, 8)),
            6 | 8 => Ok((pool.used_high, 8)),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })?;
        value.bytes().write(&read.0.to_le_bytes()[..read.1])
    }

    fn cuMemPoolSetAttribute(pool: u64, which: c_uint, value: Host) {
        let bytes = if which <= 3 { 4 } else { 8 };
        let mut all = [0; 8];
        all[..bytes].copy_from_slice(&value.read(bytes as u64)?);
        let value = u64::from_le_bytes(all);
        let used = used(pool);
        with(pool, |pool| match which {
            1..=4 => {
                pool.attributes.insert(which, value);
                Ok(())
            }
            // The high watermarks can be reset, and nothing else.
            6 | 8 if value == 0 => {
                pool.used_high = used;
                Ok(())
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn cuMemPoolGetAccess(flags: Out<c_uint>, pool: u64, location: In<[c_int; 2]>) {
        with(pool, |_| Ok(()))?;
        let here = location.get()? == [LOCATION_DEVICE as c_int, 0];
        flags.put(if here { 3 } else { 0 })
    }

    fn cuMemPoolSetAccess(pool: u64, access: In<[c_int; 3]>, count: usize) {
        with(pool, |_| Ok(()))?;
        let all = access.all(count)?;
        let own = |of: &[c_int; 3]| *of == [LOCATION_DEVICE as c_int, 0, 3];
        if all.iter().all(own) { Ok(()) } else { Err(CUDA_ERROR_INVALID_DEVICE) }
    }

    fn cuMemAllocAsync(address: Out<u64>, bytes: usize, stream: u64) {
        let set = with(DEFAULT, |pool| Ok(pool.attributes.get(&0).copied()))?;
        from_pool(address, bytes, set.unwrap_or(DEFAULT), stream)
    }

    fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: usize, pool: u64, stream: u64) {
        from_pool(address, bytes, pool, stream)
    }

    fn cuMemFreeAsync(address: u64, stream: u64) {
        let mut state = MACHINE.current()?;
        state.streams.uncaptured(stream)?;
        drop(state);
        if address == 0 {
            return Ok(());
        }
        free(address, |kind| matches!(kind, Kind::Device | Kind::Pool(_)))
    }
}
