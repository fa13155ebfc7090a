//! Memory: of the device, of both sides, and of the host; what pointers are to.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::code::{Code, Outcome};
use crate::context::{DEVICE, current};
use crate::driver::*;
use crate::last::runtime;
use crate::layout::{Extent, Pitched, PointerAttributes};
use crate::place::{address, place, put};

/// `cudaMemoryType`.
const UNREGISTERED: c_int = 0;
const DEVICE_MEMORY: c_int = 2;
const MANAGED: c_int = 3;

/// Attributes of pointers (`CUpointer_attribute`).
const MEMORY_TYPE: c_uint = 2;
const DEVICE_POINTER: c_uint = 3;
const HOST_POINTER: c_uint = 4;
const IS_MANAGED: c_uint = 8;

/// Bytes that a row of an allocation with a pitch is a multiple of: what threads load at once.
const ELEMENT_BYTES: c_uint = 16;

/// An attribute of a pointer as a word of its size; none of what nobody allocated.
fn attribute<T: Default>(which: c_uint, of: *const c_void) -> Option<T> {
    let mut value = T::default();
    let found = cuPointerGetAttribute((&raw mut value).cast(), which, address(of));
    found.ok().map(|()| value)
}

/// The kind of memory at an address (`cudaMemoryType`).
pub fn kind(of: *const c_void) -> c_int {
    match attribute::<c_int>(MEMORY_TYPE, of) {
        None => UNREGISTERED,
        Some(_) if attribute::<u8>(IS_MANAGED, of) == Some(1) => MANAGED,
        Some(kind) => kind,
    }
}

/// Whether the device, and whether the host can access an address.
pub fn sides(of: *const c_void) -> (bool, bool) {
    let kind = kind(of);
    (kind != UNREGISTERED, kind != DEVICE_MEMORY)
}

/// An allocation with rows of a pitch, of which none is the pointer null.
fn pitched(width: usize, height: usize) -> Outcome<Pitched> {
    let none = Pitched { start: null_mut(), pitch: 0, width, height };
    if width == 0 || height == 0 {
        return Ok(none);
    }
    let (mut start, mut pitch) = (0, 0);
    cuMemAllocPitch_v2(&mut start, &mut pitch, width, height, ELEMENT_BYTES)?;
    Ok(Pitched { start: pointer(start), pitch, ..none })
}

/// The pointer of an address.
pub fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn pin(to: *mut *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    current()?;
    place(to)?;
    // Nothing is asked for: nothing is given.
    if bytes == 0 { put(to, null_mut()) } else { cuMemHostAlloc(to, bytes, flags) }
}

runtime! {
    fn cudaMalloc(to: *mut u64, bytes: usize) {
        current()?;
        place(to)?;
        if bytes == 0 { put(to, 0) } else { cuMemAlloc_v2(to, bytes) }
    }

    fn cudaMallocPitch(to: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        current()?;
        place(to)?;
        place(pitch)?;
        let made = pitched(width, height)?;
        put(pitch, made.pitch)?;
        put(to, made.start)
    }

    fn cudaMalloc3D(to: *mut Pitched, extent: Extent) {
        current()?;
        place(to)?;
        let rows = extent.height.checked_mul(extent.depth).ok_or(Code::INVALID_VALUE)?;
        put(to, Pitched { height: extent.height, ..pitched(extent.width, rows)? })
    }

    fn cudaFree(from: *mut c_void) {
        current()?;
        cuMemFree_v2(address(from))
    }

    fn cudaMallocManaged(to: *mut u64, bytes: usize, flags: c_uint) {
        current()?;
        cuMemAllocManaged(to, bytes, flags)
    }

    fn cudaMallocHost(to: *mut *mut c_void, bytes: usize) {
        pin(to, bytes, 0)
    }

    fn cudaHostAlloc(to: *mut *mut c_void, bytes: usize, flags: c_uint) {
        pin(to, bytes, flags)
    }

    fn cudaFreeHost(from: *mut c_void) {
        current()?;
        if from.is_null() { Ok(()) } else { cuMemFreeHost(from) }
    }

    fn cudaHostRegister(at: *mut c_void, bytes: usize, flags: c_uint) {
        current()?;
        cuMemHostRegister_v2(at, bytes, flags)
    }

    fn cudaHostUnregister(at: *mut c_void) {
        current()?;
        cuMemHostUnregister(at)
    }

    fn cudaHostGetDevicePointer(to: *mut u64, at: *mut c_void, flags: c_uint) {
        current()?;
        cuMemHostGetDevicePointer_v2(to, at, flags)
    }

    fn cudaHostGetFlags(flags: *mut c_uint, at: *mut c_void) {
        current()?;
        cuMemHostGetFlags(flags, at)
    }

    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        current()?;
        cuMemGetInfo_v2(free, total)
    }

    fn cudaPointerGetAttributes(to: *mut PointerAttributes, of: *const c_void) {
        current()?;
        let kind = kind(of);
        put(to, match kind {
            UNREGISTERED => PointerAttributes {
                kind,
                device: -2,
                device_pointer: 0,
                host_pointer: address(of),
            },
            _ => PointerAttributes {
                kind,
                device: DEVICE,
                device_pointer: attribute(DEVICE_POINTER, of).unwrap_or(0),
                host_pointer: attribute(HOST_POINTER, of).unwrap_or(0),
            },
        })
    }

    fn cudaMemRangeGetAttribute(
        to: *mut c_void,
        size: usize,
        attribute: c_uint,
        of: *const c_void,
        bytes: usize,
    ) {
        current()?;
        cuMemRangeGetAttribute(to, size, attribute, address(of), bytes)
    }
}
