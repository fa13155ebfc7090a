//! Modules, their functions, and launches.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::CUfunction_attribute_enum::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
};
use cudarc::driver::sys::cudaError_enum::*;
use cudarc::driver::sys::{CUlaunchConfig, CUresult};
use kiln_sim::Module;

use crate::launch::{Function, SHARED_BYTES_DEFAULT, Work, explain};
use crate::machine::{MACHINE, give, result};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut u64, image: *const c_void) -> CUresult {
    let load = || {
        MACHINE.current()?.unsafe_call()?;
        // SAFETY: an image that is text ends with NUL, as the API asks.
        let text = unsafe { CStr::from_ptr(image.cast()) };
        if text.to_bytes().starts_with(b"\x7fELF") {
            return Err(CUDA_ERROR_NO_BINARY_FOR_GPU);
        }
        let text = text.to_str().map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
        let rejected = |error| explain(CUDA_ERROR_INVALID_PTX, &error);
        let loaded = Module::load(text).map_err(rejected)?;
        let mut state = MACHINE.state();
        let handle = state.handle();
        state.modules.insert(handle, loaded);
        Ok(handle)
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(module, load()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: u64) -> CUresult {
    let unload = || {
        let mut state = MACHINE.current()?;
        state.unsafe_call()?;
        state.modules.remove(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        state.functions.retain(|_, function| function.module != module);
        Ok(())
    };
    result(unload())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut u64,
    module: u64,
    name: *const c_char,
) -> CUresult {
    let find = || {
        let mut state = MACHINE.current()?;
        // SAFETY: the caller gives a text that ends with NUL, as the API asks.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| CUDA_ERROR_NOT_FOUND)?;
        let found = state.modules.get(&module).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let kernel = found.kernel(name).ok_or(CUDA_ERROR_NOT_FOUND)?;
        let shared_bytes_max = SHARED_BYTES_DEFAULT.saturating_sub(kernel.shared_bytes());
        let handle = state.handle();
        let function = Function { module, kernel, shared_bytes_max, non_portable_cluster: false };
        state.functions.insert(handle, function);
        Ok(handle)
    };
    // SAFETY: the caller gives a place for the result, as the API asks.
    unsafe { give(function, find()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int) -> CUresult {
    let set = || {
        let mut state = MACHINE.current()?;
        let found = state.functions.get_mut(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED as c_uint {
            found.non_portable_cluster = value != 0;
            return Ok(());
        }
        if attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as c_uint {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let most = MACHINE.device.config().shared_bytes_max - found.kernel.shared_bytes();
        let bytes = u32::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        if bytes > most {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        found.shared_bytes_max = bytes;
        Ok(())
    };
    result(set())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const CUlaunchConfig,
    function: u64,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let launch = || {
        let mut state = MACHINE.current()?;
        // SAFETY: the caller gives a whole configuration, as the API asks.
        let config = unsafe { &*config };
        let found = state.functions.get(&function).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        // SAFETY: the arguments are those of the function, as the API asks.
        let work = unsafe { Work::read(found, config, values, extra)? };
        let stream = config.hStream as u64;
        if let Some(Some(capture)) = state.streams.get_mut(&stream) {
            capture.nodes.push(work);
            return Ok(());
        }
        state.uncaptured(stream)?;
        drop(state);
        MACHINE.run(&[work])
    };
    result(launch())
}
