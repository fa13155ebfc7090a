//! What pointers are: their attributes.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::CUpointer_attribute_enum::*;
use cudarc::driver::sys::cudaError_enum::*;

use crate::allocation::{Allocation, Kind};
use crate::machine::{MACHINE, State, driver};
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out};

const MEMORY_TYPE_HOST: u32 = 1;
const MEMORY_TYPE_DEVICE: u32 = 2;
const ACCESS_READ_WRITE: u32 = 3;

/// Writes one attribute; each has its own type.
fn attribute(state: &State, attribute: c_uint, address: u64, to: Out<u64>) -> Outcome {
    let word = |value: u32| to.bytes().write(&value.to_le_bytes());
    let flag = |value: bool| to.bytes().write(&[u8::from(value)]);
    let is = |known: cudarc::driver::sys::CUpointer_attribute_enum| attribute == known as c_uint;
    if to.is_null() || attribute == 0 || attribute > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID as u32 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let found = state.allocations.find(address).or_else(|| variable(address));
    let Some((base, of)) = found else {
        // An address that nobody allocated is asked about to tell pageable memory by.
        return match () {
            () if is(CU_POINTER_ATTRIBUTE_IS_MANAGED) || is(CU_POINTER_ATTRIBUTE_MAPPED) => {
                flag(false)
            }
            () if is(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) => word(-2_i32 as u32),
            () => Err(CUDA_ERROR_INVALID_VALUE),
        };
    };
    let (pool, on_host) = match of.kind {
        Kind::Pool(pool) => (pool, false),
        Kind::Host(_) | Kind::Registered(..) => (0, true),
        Kind::Device | Kind::Managed => (0, false),
    };
    let host = match of.kind {
        Kind::Registered(start, _) => Some(start + (address - base)),
        Kind::Host(_) | Kind::Managed => Some(address),
        Kind::Device | Kind::Pool(_) => None,
    };
    match () {
        () if is(CU_POINTER_ATTRIBUTE_CONTEXT) => to.put(of.context),
        () if is(CU_POINTER_ATTRIBUTE_MEMORY_TYPE) => {
            word(if on_host { MEMORY_TYPE_HOST } else { MEMORY_TYPE_DEVICE })
        }
        () if is(CU_POINTER_ATTRIBUTE_DEVICE_POINTER) => to.put(address),
        () if is(CU_POINTER_ATTRIBUTE_HOST_POINTER) => {
            to.put(host.ok_or(CUDA_ERROR_INVALID_VALUE)?)
        }
        () if is(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) => flag(true),
        () if is(CU_POINTER_ATTRIBUTE_BUFFER_ID) => to.put(of.id),
        () if is(CU_POINTER_ATTRIBUTE_IS_MANAGED) => flag(of.kind == Kind::Managed),
        () if is(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) => word(0),
        () if is(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) => flag(false),
        () if is(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) => to.put(base),
        () if is(CU_POINTER_ATTRIBUTE_RANGE_SIZE) => to.put(of.bytes),
        () if is(CU_POINTER_ATTRIBUTE_MAPPED) => flag(true),
        () if is(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) => to.put(0),
        () if is(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE) => flag(false),
        () if is(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS) => word(ACCESS_READ_WRITE),
        () if is(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) => to.put(pool),
        () => Err(CUDA_ERROR_NOT_SUPPORTED),
    }
}

/// A variable of a module, which the device has allocated by itself.
fn variable(address: u64) -> Option<(u64, Allocation)> {
    let (base, bytes) = MACHINE.device.allocation(address)?;
    Some((base, Allocation { kind: Kind::Device, context: 0, bytes, id: base }))
}

driver! {
    fn cuPointerGetAttribute(to: Out<u64>, which: c_uint, address: u64) {
        attribute(&*MACHINE.ready()?, which, address, to)
    }

    fn cuPointerGetAttributes(count: c_uint, which: In<c_uint>, to: In<Out<u64>>, address: u64) {
        let state = MACHINE.ready()?;
        let (which, to) = (which.all(count as usize)?, to.all(count as usize)?);
        for (which, to) in which.into_iter().zip(to) {
            // What does not apply is null, and no error.
            if attribute(&state, which, address, to).is_err() {
                let bytes = match which {
                    1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 => 8,
                    2 | 9 | 16 => 4,
                    _ => 1,
                };
                to.bytes().write(&[0; 8][..bytes])?;
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: Host, which: c_uint, address: u64) {
        let state = MACHINE.ready()?;
        let known = state.allocations.find(address).is_some() && !value.is_null();
        if !known || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as c_uint {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    fn cuMemRangeGetAttribute(to: Host, bytes: usize, which: c_uint, address: u64, size: usize) {
        let _ = size;
        let state = MACHINE.current()?;
        let found = state.allocations.find(address).filter(|(_, of)| of.kind == Kind::Managed);
        if found.is_none() || !matches!(which, 1..=4) || !bytes.is_multiple_of(4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // Nothing was advised: mostly read 0, no device otherwise.
        let none: c_int = if which == 1 { 0 } else { -2 };
        to.write(&none.to_le_bytes().repeat(bytes / 4))
    }
}
