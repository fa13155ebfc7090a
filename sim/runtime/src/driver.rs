//! The driver: the documented functions of `libcuda.so.1` that the runtime stands on, found when
//! they are first called. Handles and addresses are numbers here; enumerations are as C has them,
//! so that a number the caller made up is the driver's to refuse.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use libloading::Library;

use crate::code::{Code, Outcome};
use crate::layout::{Copy2d, Copy3d, DriverConfig};

/// Names of the driver. The first is what the driver's own name is.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

static DRIVER: LazyLock<Option<Library>> = LazyLock::new(|| {
    // SAFETY: the driver runs nothing of the caller's when it is loaded.
    NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())
});

/// A function of the driver, by its name.
fn symbol(name: &str) -> Outcome<usize> {
    let driver = DRIVER.as_ref().ok_or(Code::INSUFFICIENT_DRIVER)?;
    // SAFETY: only the address is taken.
    let found = unsafe { driver.get::<*const c_void>(name) };
    found.map(|found| found.expose_provenance()).map_err(|_| Code::CALL_REQUIRES_NEWER_DRIVER)
}

/// Declares functions: each gives nothing, or the driver's code.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        #[allow(non_snake_case, reason = "the driver's own name")]
        pub fn $name($($arg: $type),*) -> Outcome {
            type Function = unsafe extern "C" fn($($type),*) -> c_uint;
            static FOUND: LazyLock<Outcome<usize>> = LazyLock::new(|| symbol(stringify!($name)));
            let function = std::ptr::with_exposed_provenance::<c_void>((*FOUND)?);
            // SAFETY: the driver's function of this name has this type.
            let function: Function = unsafe { std::mem::transmute(function) };
            // SAFETY: pointers are the caller's of the runtime, who keeps the same rules for it as
            // the driver has, or to values of the runtime's own that outlive the call.
            match unsafe { function($($arg),*) } {
                0 => Ok(()),
                code => Err(Code(code)),
            }
        }
    )*};
}

type Host = *mut c_void;
/// A function of the host with the value that it is called with.
pub type HostFunction = Option<unsafe extern "C" fn(Host)>;
/// A function that is told of a stream and a code.
pub type StreamCallback = Option<unsafe extern "C" fn(u64, Code, Host)>;

#[rustfmt::skip]
functions! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorString(code: c_uint, text: *mut *const c_char);
    fn cuGetProcAddress_v2(
        name: *const c_char, to: *mut Host, version: c_int, flags: u64, status: *mut c_uint,
    );

    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int);
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int);
    fn cuDeviceGetPCIBusId(id: *mut c_char, room: c_int, device: c_int);
    fn cuDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char);
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
    fn cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, from: c_int, to: c_int);
    fn cuDeviceGetDefaultMemPool(pool: *mut u64, device: c_int);
    fn cuDeviceGetMemPool(pool: *mut u64, device: c_int);
    fn cuDeviceSetMemPool(device: c_int, pool: u64);
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int);
    fn cuDevicePrimaryCtxReset_v2(device: c_int);
    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint);
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int);

    fn cuCtxGetCurrent(context: *mut u64);
    fn cuCtxSetCurrent(context: u64);
    fn cuCtxSynchronize();
    fn cuCtxGetLimit(value: *mut usize, limit: c_uint);
    fn cuCtxSetLimit(limit: c_uint, value: usize);
    fn cuCtxGetCacheConfig(config: *mut c_uint);
    fn cuCtxSetCacheConfig(config: c_uint);
    fn cuCtxGetSharedMemConfig(config: *mut c_uint);
    fn cuCtxSetSharedMemConfig(config: c_uint);
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    fn cuCtxResetPersistingL2Cache();
    fn cuProfilerStart();
    fn cuProfilerStop();

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize);
    fn cuMemAllocPitch_v2(
        address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint,
    );
    fn cuMemFree_v2(address: u64);
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: c_uint);
    fn cuMemHostAlloc(place: *mut Host, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(place: Host);
    fn cuMemHostRegister_v2(place: Host, bytes: usize, flags: c_uint);
    fn cuMemHostUnregister(place: Host);
    fn cuMemHostGetDevicePointer_v2(address: *mut u64, place: Host, flags: c_uint);
    fn cuMemHostGetFlags(flags: *mut c_uint, place: Host);
    fn cuMemAdvise(address: u64, bytes: usize, advice: c_uint, device: c_int);
    fn cuMemAdvise_v2(address: u64, bytes: usize, advice: c_uint, location: u64);
    fn cuMemPrefetchAsync(address: u64, bytes: usize, device: c_int, stream: u64);
    fn cuMemPrefetchAsync_v2(
        address: u64, bytes: usize, location: u64, flags: c_uint, stream: u64,
    );
    fn cuMemRangeGetAttribute(
        to: Host, size: usize, attribute: c_uint, address: u64, bytes: usize,
    );
    fn cuPointerGetAttribute(to: Host, attribute: c_uint, address: u64);
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64);
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: u64, stream: u64);
    fn cuMemFreeAsync(address: u64, stream: u64);
    fn cuMemPoolCreate(pool: *mut u64, properties: *const c_void);
    fn cuMemPoolDestroy(pool: u64);
    fn cuMemPoolTrimTo(pool: u64, bytes: usize);
    fn cuMemPoolGetAttribute(pool: u64, attribute: c_uint, value: Host);
    fn cuMemPoolSetAttribute(pool: u64, attribute: c_uint, value: Host);
    fn cuMemPoolGetAccess(flags: *mut c_uint, pool: u64, location: *const c_void);
    fn cuMemPoolSetAccess(pool: u64, access: *const c_void, count: usize);

    fn cuMemcpy(to: u64, from: u64, bytes: usize);
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64);
    fn cuMemcpy2DUnaligned_v2(copy: *const Copy2d);
    fn cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: u64);
    fn cuMemcpy3D_v2(copy: *const Copy3d);
    fn cuMemcpy3DAsync_v2(copy: *const Copy3d, stream: u64);
    fn cuMemsetD2D8_v2(address: u64, pitch: usize, value: u8, width: usize, height: usize);
    fn cuMemsetD2D8Async(
        address: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64,
    );

    fn cuStreamCreate(stream: *mut u64, flags: c_uint);
    fn cuStreamCreateWithPriority(stream: *mut u64, flags: c_uint, priority: c_int);
    fn cuStreamDestroy_v2(stream: u64);
    fn cuStreamGetPriority(stream: u64, priority: *mut c_int);
    fn cuStreamGetFlags(stream: u64, flags: *mut c_uint);
    fn cuStreamGetId(stream: u64, id: *mut u64);
    fn cuStreamGetDevice(stream: u64, device: *mut c_int);
    fn cuStreamSynchronize(stream: u64);
    fn cuStreamQuery(stream: u64);
    fn cuStreamWaitEvent(stream: u64, event: u64, flags: c_uint);
    fn cuStreamAddCallback(stream: u64, callback: StreamCallback, value: Host, flags: c_uint);
    fn cuLaunchHostFunc(stream: u64, function: HostFunction, value: Host);
    fn cuStreamAttachMemAsync(stream: u64, address: u64, bytes: usize, flags: c_uint);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint);
    fn cuStreamEndCapture(stream: u64, graph: *mut u64);
    fn cuStreamIsCapturing(stream: u64, status: *mut c_uint);
    fn cuStreamGetCaptureInfo(stream: u64, status: *mut c_uint, id: *mut u64);
    fn cuStreamGetCaptureInfo_v3(
        stream: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, edges: *mut *const c_void, count: *mut usize,
    );

    fn cuEventCreate(event: *mut u64, flags: c_uint);
    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: c_uint);
    fn cuEventQuery(event: u64);
    fn cuEventSynchronize(event: u64);
    fn cuEventDestroy_v2(event: u64);
    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64);

    fn cuGraphCreate(graph: *mut u64, flags: c_uint);
    fn cuGraphClone(clone: *mut u64, graph: u64);
    fn cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64);
    fn cuGraphInstantiateWithParams(exec: *mut u64, graph: u64, params: *mut c_void);
    fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize);
    fn cuGraphUpload(exec: u64, stream: u64);
    fn cuGraphLaunch(exec: u64, stream: u64);
    fn cuGraphDestroy(graph: u64);
    fn cuGraphExecDestroy(exec: u64);
    fn cuGraphRetainUserObject(graph: u64, object: u64, count: c_uint, flags: c_uint);
    fn cuGraphReleaseUserObject(graph: u64, object: u64, count: c_uint);
    fn cuUserObjectCreate(
        object: *mut u64, value: Host, end: HostFunction, count: c_uint, flags: c_uint,
    );
    fn cuUserObjectRetain(object: u64, count: c_uint);
    fn cuUserObjectRelease(object: u64, count: c_uint);

    fn cuLibraryLoadData(
        library: *mut u64, code: *const c_void, options: *const c_uint, values: *mut Host,
        count: c_uint, library_options: *const c_uint, library_values: *mut Host,
        library_count: c_uint,
    );
    fn cuLibraryLoadFromFile(
        library: *mut u64, file: *const c_char, options: *const c_uint, values: *mut Host,
        count: c_uint, library_options: *const c_uint, library_values: *mut Host,
        library_count: c_uint,
    );
    fn cuLibraryUnload(library: u64);
    fn cuLibraryGetKernel(kernel: *mut u64, library: u64, name: *const c_char);
    fn cuLibraryGetGlobal(
        address: *mut u64, bytes: *mut usize, library: u64, name: *const c_char,
    );
    fn cuLibraryGetManaged(
        address: *mut u64, bytes: *mut usize, library: u64, name: *const c_char,
    );
    fn cuLibraryGetKernelCount(count: *mut c_uint, library: u64);
    fn cuLibraryEnumerateKernels(kernels: *mut u64, count: c_uint, library: u64);
    fn cuKernelGetFunction(function: *mut u64, kernel: u64);
    fn cuKernelSetAttribute(attribute: c_uint, value: c_int, kernel: u64, device: c_int);
    fn cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: u64);
    fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int);
    fn cuFuncSetCacheConfig(function: u64, config: c_uint);
    fn cuFuncSetSharedMemConfig(function: u64, config: c_uint);
    fn cuFuncGetName(name: *mut *const c_char, function: u64);
    fn cuFuncGetParamInfo(
        function: u64, index: usize, offset: *mut usize, bytes: *mut usize,
    );
    fn cuLaunchKernelEx(
        config: *const DriverConfig, function: u64, values: *mut Host, extra: *mut Host,
    );
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: *mut c_int, function: u64, threads: c_int, shared: usize, flags: c_uint,
    );
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, function: u64, blocks: c_int, threads: c_int,
    );
    fn cuOccupancyMaxPotentialClusterSize(
        size: *mut c_int, function: u64, config: *const DriverConfig,
    );
    fn cuOccupancyMaxActiveClusters(
        count: *mut c_int, function: u64, config: *const DriverConfig,
    );
}
