//! Names and descriptions of codes.

use std::ffi::{CStr, c_uint};

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;

use crate::machine::driver;
use crate::outcome::Outcome;
use crate::pointer::Out;

type Code = (CUresult, &'static str, &'static str);

/// A code with its name, and both texts ended by NUL.
macro_rules! code {
    ($name:ident, $($text:literal),+) => {
        ($name, concat!(stringify!($name), "\0"), concat!($($text,)+ "\0"))
    };
}

/// Codes with what they mean, in the words of the driver.
#[rustfmt::skip]
const CODES: [Code; 92] = [
    code!(CUDA_SUCCESS, "no error"),
    code!(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    code!(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    code!(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    code!(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    code!(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool"),
    code!(CUDA_ERROR_PROFILER_NOT_INITIALIZED, "profiler not initialized"),
    code!(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started"),
    code!(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped"),
    code!(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    code!(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "API call requires a newer driver"),
    code!(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    code!(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    code!(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    code!(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license"),
    code!(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    code!(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    code!(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current"),
    code!(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    code!(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    code!(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped"),
    code!(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    code!(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    code!(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired"),
    code!(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    code!(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array"),
    code!(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer"),
    code!(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    code!(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    code!(
        CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
        "exclusive-thread device already in use by a different thread"
    ),
    code!(
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        "peer access is not supported between these two devices"
    ),
    code!(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    code!(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context"),
    code!(
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        "uncorrectable NVLink error detected during the execution"
    ),
    code!(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found"),
    code!(
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        "the provided PTX was compiled with an unsupported toolchain."
    ),
    code!(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled"),
    code!(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the provided execution affinity is not supported"),
    code!(
        CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
        "the provided PTX contains unsupported call to cudaDeviceSynchronize"
    ),
    code!(CUDA_ERROR_CONTAINED, "an exception occurred on the device and was contained"),
    code!(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    code!(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    code!(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found"),
    code!(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed"),
    code!(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    code!(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    code!(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    code!(CUDA_ERROR_LOSSY_QUERY, "attempted introspection would be semantically lossy"),
    code!(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    code!(CUDA_ERROR_NOT_READY, "device not ready"),
    code!(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    code!(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    code!(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    code!(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch uses incompatible texturing mode"),
    code!(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    code!(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    code!(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process"),
    code!(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    code!(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    code!(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted"),
    code!(
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        "part or all of the requested memory range is already mapped"
    ),
    code!(
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        "pointer does not correspond to a registered memory region"
    ),
    code!(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error"),
    code!(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    code!(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    code!(
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        "operation not supported on global/shared address space"
    ),
    code!(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    code!(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    code!(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"),
    code!(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory not completely freed"),
    code!(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    code!(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    code!(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    code!(
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        "system has unsupported display driver / cuda driver combination"
    ),
    code!(
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
        "forward compatibility was attempted on non supported HW"
    ),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "operation not permitted when stream is capturing"
    ),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "operation failed due to a previous error during capture"
    ),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_MERGE,
        "operation would result in a merge of separate capture sequences"
    ),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        "capture was not ended in the same stream as it began"
    ),
    code!(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        "dependency created on uncaptured work in another stream"
    ),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "operation would make the legacy stream depend on a capturing blocking stream"
    ),
    code!(
        CUDA_ERROR_CAPTURED_EVENT,
        "operation not permitted on an event last recorded in a capturing stream"
    ),
    code!(
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        "attempt to terminate a thread-local capture sequence from another thread"
    ),
    code!(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    code!(
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        "the graph update was not performed because it included changes which violated ",
        "constraints specific to instantiated graph update"
    ),
    code!(
        CUDA_ERROR_EXTERNAL_DEVICE,
        "an async error has occurred in external entity outside of CUDA"
    ),
    code!(
        CUDA_ERROR_INVALID_CLUSTER_SIZE,
        "a kernel launch error has occurred due to cluster misconfiguration"
    ),
    code!(
        CUDA_ERROR_FUNCTION_NOT_LOADED,
        "the function handle is not loaded when calling a function that requires loading"
    ),
    code!(
        CUDA_ERROR_INVALID_RESOURCE_TYPE,
        "one or more resources passed in are not valid resource types for the operation"
    ),
    code!(
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        "one or more resources are insufficient or non-applicable for the operation"
    ),
    code!(CUDA_ERROR_UNKNOWN, "unknown error"),
];

/// One of the two texts of a code.
fn text(code: c_uint, which: impl Fn(&Code) -> &'static str, to: Out<u64>) -> Outcome {
    let found = CODES.iter().find(|(known, ..)| *known as c_uint == code);
    let Some(found) = found else {
        to.offer(0);
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    let text = CStr::from_bytes_with_nul(which(found).as_bytes());
    let text = text.map_err(|_| CUDA_ERROR_UNKNOWN)?;
    to.put(text.as_ptr().expose_provenance() as u64)
}

driver! {
    fn cuGetErrorName(code: c_uint, name: Out<u64>) {
        text(code, |(_, name, _)| name, name)
    }

    fn cuGetErrorString(code: c_uint, description: Out<u64>) {
        text(code, |(_, _, text)| text, description)
    }
}
