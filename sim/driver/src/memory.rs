//! Memory: of the device, of both sides, and of the host.

use std::ffi::{c_int, c_uint};
use std::ptr::NonNull;

use cudarc::driver::sys::cudaError_enum::*;

use crate::allocation::Kind;
use crate::machine::{MACHINE, current_context, driver};
use crate::outcome::{Outcome, explain};
use crate::pointer::{Host, Out};
use crate::settings::tell;

/// Registers an allocation that the device has made.
pub fn allocate(kind: Kind, bytes: u64) -> Outcome<u64> {
    let mut state = MACHINE.current()?;
    state.streams.unsafe_call()?;
    if bytes == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let made = match kind {
        Kind::Device | Kind::Pool(_) => MACHINE.device.alloc(bytes),
        _ => MACHINE.device.alloc_host(bytes),
    };
    let address = made.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    state.allocations.insert(address, kind, current_context(), bytes);
    Ok(address)
}

/// Frees an allocation of one of the kinds.
pub fn free(address: u64, of: impl Fn(Kind) -> bool) -> Outcome {
    let mut state = MACHINE.current()?;
    state.streams.unsafe_call()?;
    let known = state.allocations.at(address).filter(|known| of(known.kind));
    if known.is_none() {
        eprintln!("kiln-sim-driver: failed to free {address:#x}: no such allocation begins there");
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
    MACHINE.device.free(address).map_err(invalid)?;
    state.allocations.remove(address);
    Ok(())
}

/// Flags of `cuMemHostAlloc` and `cuMemHostRegister` that exist.
const HOST_ALLOC_FLAGS: u32 = 7;
const HOST_REGISTER_FLAGS: u32 = 15;
const HOST_DEVICE_MAP: u32 = 2;

driver! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let _state = MACHINE.current()?;
        let all = MACHINE.device.config().memory_bytes;
        free.put((all - MACHINE.device.used_bytes()) as usize)?;
        total.put(all as usize)
    }

    fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        if address.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        address.put(allocate(Kind::Device, bytes as u64)?)
    }

    fn cuMemAllocPitch_v2(
        address: Out<u64>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        element_bytes: c_uint,
    ) {
        if address.is_null() || pitch.is_null() || !matches!(element_bytes, 4 | 8 | 16) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(512).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        address.put(allocate(Kind::Device, bytes as u64)?)?;
        pitch.put(row)
    }

    fn cuMemFree_v2(address: u64) {
        if address == 0 {
            return MACHINE.current().map(drop);
        }
        free(address, |kind| matches!(kind, Kind::Device | Kind::Pool(_) | Kind::Managed))
    }

    fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: c_uint) {
        if address.is_null() || !matches!(flags, 1 | 2) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        address.put(allocate(Kind::Managed, bytes as u64)?)
    }

    fn cuMemAllocHost_v2(place: Out<Host>, bytes: usize) {
        if place.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        place.put(Host::of(allocate(Kind::Host(0), bytes as u64)?))
    }

    fn cuMemHostAlloc(place: Out<Host>, bytes: usize, flags: c_uint) {
        if place.is_null() || flags & !HOST_ALLOC_FLAGS != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        place.put(Host::of(allocate(Kind::Host(flags), bytes as u64)?))
    }

    fn cuMemFreeHost(place: Host) {
        free(place.address(), |kind| matches!(kind, Kind::Host(_)))
    }

    fn cuMemHostRegister_v2(place: Host, bytes: usize, flags: c_uint) {
        let mut state = MACHINE.current()?;
        state.streams.unsafe_call()?;
        let start = NonNull::new(place.pointer().cast::<u8>()).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let ends = place.address().checked_add(bytes as u64).is_some();
        if bytes == 0 || flags & !HOST_REGISTER_FLAGS != 0 || !ends {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !place.address().is_multiple_of(4) {
            tell(|| format!("memory at {:#x} is registered: not aligned to 4", place.address()));
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if state.allocations.registered(place.address()).is_some() {
            return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        // SAFETY: the caller keeps the memory until it is no longer registered, and orders its own
        // accesses with kernels, as the interface asks. The last word is within a page of it.
        let mapped = unsafe { MACHINE.device.map_host(start, bytes as u64) };
        let already = |error| explain(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, &error);
        let address = mapped.map_err(already)?;
        let kind = Kind::Registered(place.address(), flags);
        state.allocations.insert(address, kind, current_context(), bytes as u64);
        Ok(())
    }

    fn cuMemHostUnregister(place: Host) {
        let mut state = MACHINE.current()?;
        state.streams.unsafe_call()?;
        let known = state.allocations.registered(place.address());
        let address = known.ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        MACHINE.device.free(address).map_err(invalid)?;
        state.allocations.remove(address);
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(address: Out<u64>, place: Host, flags: c_uint) {
        let state = MACHINE.current()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let host = place.address();
        let found = state.allocations.find(host).filter(|(_, of)| of.kind != Kind::Device);
        let found = found.map(|_| host).or_else(|| state.allocations.registered(host));
        address.put(found.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, place: Host) {
        let state = MACHINE.current()?;
        match state.allocations.find(place.address()).map(|(_, of)| of.kind) {
            // Every allocation is mapped where there is one address space.
            Some(Kind::Host(given)) => flags.put(given | HOST_DEVICE_MAP),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<usize>, address: u64) {
        let state = MACHINE.current()?;
        let (start, size) = match state.allocations.find(address) {
            Some((start, of)) => (start, of.bytes),
            // Variables of modules are allocations of the device alone.
            None => MACHINE.device.allocation(address).ok_or(CUDA_ERROR_NOT_FOUND)?,
        };
        base.offer(start);
        bytes.offer(size as usize);
        Ok(())
    }

    // Memory is one: advice changes nothing, and what is prefetched is there already.
    fn cuMemAdvise(address: u64, bytes: usize, advice: c_uint, device: c_int) {
        let _ = (bytes, device);
        managed(address)?;
        if matches!(advice, 1..=8) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    fn cuMemAdvise_v2(address: u64, bytes: usize, advice: c_uint, location: u64) {
        let _ = (bytes, location);
        managed(address)?;
        if matches!(advice, 1..=8) { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    fn cuMemPrefetchAsync_v2(
        address: u64,
        bytes: usize,
        location: u64,
        flags: c_uint,
        stream: u64,
    ) {
        let _ = (bytes, location);
        managed(address)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        MACHINE.current()?.streams.uncaptured(stream)
    }

    fn cuMemPrefetchAsync(address: u64, bytes: usize, device: c_int, stream: u64) {
        if !matches!(device, -1 | 0) {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let _ = bytes;
        managed(address)?;
        MACHINE.current()?.streams.uncaptured(stream)
    }
}

fn managed(address: u64) -> Outcome {
    let state = MACHINE.current()?;
    let found = state.allocations.find(address).filter(|(_, of)| of.kind == Kind::Managed);
    found.map(drop).ok_or(CUDA_ERROR_INVALID_VALUE)
}
