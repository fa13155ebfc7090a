//! The device, its context and its memory.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::CUdevice_attribute_enum::*;
use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;

use crate::launch::{Outcome, explain};
use crate::machine::{CONTEXT, CURRENT, MACHINE, give, result};

/// The driver interface that is spoken: CUDA 13.0.
const VERSION: c_int = 13_000;

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: c_uint) -> CUresult {
    MACHINE.state().initialised |= flags == 0;
    if flags == 0 { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(version, Ok(VERSION)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: CUresult, name: *mut *const c_char) -> CUresult {
    // One text for a code, for as long as the process lives.
    let text = CString::new(format!("{code:?}")).expect("names hold no NUL");
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(name, Ok(text.into_raw().cast_const())) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: CUresult, text: *mut *const c_char) -> CUresult {
    // SAFETY: the caller keeps the rules of both functions, which are the same.
    unsafe { cuGetErrorName(code, text) }
}

fn device(device: c_int) -> Outcome {
    match (MACHINE.state().initialised, device) {
        (false, _) => Err(CUDA_ERROR_NOT_INITIALIZED),
        (true, 0) => Ok(()),
        (true, _) => Err(CUDA_ERROR_INVALID_DEVICE),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(count, device(0).map(|()| 1)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(handle: *mut c_int, ordinal: c_int) -> CUresult {
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(handle, device(ordinal).map(|()| ordinal)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, of: c_int) -> CUresult {
    let text = c"Kiln simulated GPU".to_bytes_with_nul();
    if let Err(code) = device(of) {
        return code;
    }
    let count = text.len().min(bytes.max(0) as usize);
    // SAFETY: the caller gives a place for so many bytes, as the API asks.
    unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    of: c_int,
) -> CUresult {
    let config = MACHINE.device.config();
    let known = [
        (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
        (CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0),
        (CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, config.sm_count),
        (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, config.shared_bytes_max),
        (CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10),
        (CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
        (CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048),
        (CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20),
    ];
    let found = known.iter().find(|(known, _)| *known as c_uint == attribute);
    let found = found.map(|(_, value)| *value as c_int).ok_or(CUDA_ERROR_INVALID_VALUE);
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(value, device(of).and(found)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut u64, of: c_int) -> CUresult {
    let retained = device(of).map(|()| {
        MACHINE.state().retained += 1;
        CONTEXT
    });
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(context, retained) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(of: c_int) -> CUresult {
    let release = || {
        let mut state = MACHINE.state();
        state.retained = state.retained.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        Ok(())
    };
    result(device(of).and_then(|()| release()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut u64) -> CUresult {
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(context, device(0).map(|()| CURRENT.get())) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: u64) -> CUresult {
    if context != 0 && context != CONTEXT {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CURRENT.set(context);
    CUDA_SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> CUresult {
    let allocate = || {
        MACHINE.current()?.unsafe_call()?;
        match bytes {
            0 => Err(CUDA_ERROR_INVALID_VALUE),
            _ => MACHINE.device.alloc(bytes as u64).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY),
        }
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(address, allocate()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> CUresult {
    let free = || {
        MACHINE.current()?.unsafe_call()?;
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        MACHINE.device.free(address).map_err(invalid)
    };
    result(free())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: u64,
) -> CUresult {
    let copy = || {
        MACHINE.current()?.uncaptured(stream)?;
        let bytes = match bytes {
            0 => &[],
            // SAFETY: the caller gives so many bytes of the host, as the API asks.
            _ => unsafe { std::slice::from_raw_parts(from.cast(), bytes) },
        };
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        MACHINE.device.write(to, bytes).map_err(invalid)
    };
    result(copy())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: u64,
) -> CUresult {
    let copy = || {
        MACHINE.current()?.uncaptured(stream)?;
        let bytes = match bytes {
            0 => &mut [],
            // SAFETY: the caller gives so many bytes of the host, as the API asks.
            _ => unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes) },
        };
        let invalid = |error| explain(CUDA_ERROR_INVALID_VALUE, &error);
        MACHINE.device.read(from, bytes).map_err(invalid)
    };
    result(copy())
}
