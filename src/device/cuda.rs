//! NVIDIA GPUs, through cudarc's `driver::result` layer and, where that is incomplete, `sys`.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::borrow::Cow;
use std::ffi::CString;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use crate::compile::{Image, REMEDY, needs_cuda_13, variable};
use crate::device::captured::Captured;
use crate::device::conditional::Conditionals;
use crate::device::context::{Call, LAUNCH, Primary, RECORD, RELEASE};
use crate::device::cuda_kernel::{CudaKernel, Module};
use crate::device::driver::{Branching, Conditional, Driver, KernelName, Launchable, MAP_WORDS};
use crate::device::health::{self, Health};
use crate::device::occupancy::Occupancy;
use crate::device::parameters::Parameters;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::{Swizzle, TensorMap};
use crate::target::{Arch, Target};

/// Handles up to this one are default streams, of whatever context is current: `NULL`, the legacy
/// one and that of the thread.
const DEFAULT_STREAMS: u64 = 2;

/// Number of GPUs.
pub(super) fn count() -> Result<u32> {
    // SAFETY: checks that the driver library can be loaded; cudarc panics on use without it.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::driver("no CUDA driver: libcuda.so was not found"));
    }
    result::init().map_err(failed("initialise the CUDA driver"))?;
    let count = result::device::get_count().map_err(failed("count the GPUs"))?;
    Ok(count as u32)
}

/// The GPU whose context is current on this thread.
pub(super) fn current() -> Result<Option<u32>> {
    count()?;
    let mut device = 0;
    // SAFETY: `device` is valid for a write.
    let found = unsafe { sys::cuCtxGetDevice(&mut device) }.result();
    match found {
        Ok(()) => Ok(Some(device as u32)),
        Err(DriverError(sys::cudaError_enum::CUDA_ERROR_INVALID_CONTEXT)) => Ok(None),
        Err(error) => Err(failed("ask for the current context")(error)),
    }
}

/// The error of a call that needs no context.
fn failed(attempt: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| {
        let code = health::name(error);
        Error::driver(format!("failed to {attempt}: {code}")).caused_by(error)
    }
}

/// Minimum driver interface: cudarc's bindings panic on missing functions, and the newest one used,
/// `cuEventElapsedTime_v2`, is from CUDA 12.8.
const DRIVER_VERSION_MIN: i32 = 12_080;

/// CUDA version of the driver, as 1000 * major + 10 * minor.
fn driver_version() -> Result<i32> {
    let mut version = 0;
    // SAFETY: `version` is valid for a write.
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(failed("read the driver's version"))?;
    Ok(version)
}

/// Classifies a load failure: the fault of the image (`Compile`) or of the device.
fn rejected(call: &Call<'_>, error: DriverError, image: &[u8]) -> Error {
    use sys::cudaError_enum::*;
    let faulty = [
        CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_INVALID_PTX,
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CUDA_ERROR_INVALID_SOURCE,
    ];
    let bytes = image.len();
    match faulty.contains(&error.0) {
        true => Error::compile(format!(
            "the driver rejected an image of {bytes} bytes: {:?}; the driver may be older than \
             the NVRTC that compiled it",
            error.0
        ))
        .caused_by(error),
        false => call.failed(error),
    }
}

#[derive(Debug)]
pub(super) struct CudaDriver {
    primary: Arc<Primary>,
    conditionals: Conditionals,
    target: Target,
    /// CUDA version, major and minor.
    version: (i32, i32),
    /// Whether the driver must assemble PTX: with `CUDA_FORCE_PTX_JIT=1` it rejects cubins.
    assembles: bool,
}

impl CudaDriver {
    pub(super) fn open(index: u32) -> Result<CudaDriver> {
        let count = count()?;
        if index >= count {
            return Err(Error::bad_param(format!("no GPU {index}: the driver has {count}")));
        }
        let version = driver_version()?;
        let (major, minor) = (version / 1000, version % 1000 / 10);
        if version < DRIVER_VERSION_MIN {
            return Err(Error::driver(format!(
                "the driver supports CUDA {major}.{minor}, expected 12.8 or newer (driver 570)"
            )));
        }
        let device = result::device::get(index as i32).map_err(failed("open the GPU"))?;
        let health = Health::of_gpu(index);
        health.check("open the GPU")?;
        // SAFETY: `device` is valid; the context is released when `Primary` is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(|error| health.failed("retain the GPU's primary context", error))?;
        let primary = Arc::new(Primary { device, context, health });
        primary.call("open the GPU")?;
        let assembles = variable("CUDA_FORCE_PTX_JIT").is_some_and(|value| value == "1");
        let (target, version) = (target(device)?, (major, minor));
        let conditionals = Conditionals::new(primary.clone());
        Ok(CudaDriver { primary, conditionals, target, version, assembles })
    }

    fn stream_of(&self, kind: result::stream::StreamKind) -> Result<u64> {
        let call = self.primary.call("create a stream")?;
        let stream = result::stream::create(kind);
        stream.map(|stream| stream as u64).map_err(|error| call.failed(error))
    }

    fn event_of(&self, flags: sys::CUevent_flags, attempt: &'static str) -> Result<u64> {
        let call = self.primary.call(attempt)?;
        let event = result::event::create(flags);
        event.map(|event| event as u64).map_err(|error| call.failed(error))
    }
}

fn target(device: sys::CUdevice) -> Result<Target> {
    use sys::CUdevice_attribute_enum::*;
    let attribute = |attribute| {
        // SAFETY: `device` is valid.
        let value = unsafe { result::device::get_attribute(device, attribute) };
        value.map(|value| value as u32).map_err(failed("read an attribute of the GPU"))
    };
    let major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let name = result::device::get_name(device).map_err(failed("read the GPU's name"))?;
    Ok(Target {
        arch: arch(&name, (major * 10 + minor) as u16)?,
        name,
        sm_count: attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_block_bytes_max: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        shared_sm_bytes: attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_sm: attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        threads_sm_max: attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        l2_bytes: u64::from(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
    })
}

/// The oldest architecture that there are kernels for: Turing.
const CAPABILITY_MIN: u16 = 75;

/// The architecture of a GPU of this name and capability.
fn arch(name: &str, capability: u16) -> Result<Arch> {
    let arch = Arch::of_device(capability);
    if capability < CAPABILITY_MIN {
        let text = format!("failed to open {name}: it is {arch}, expected sm_75 or newer");
        return Err(Error::with(ErrorKind::ArchMismatch, text));
    }
    Ok(arch)
}

impl Driver for CudaDriver {
    fn target(&self) -> &Target {
        &self.target
    }

    fn cuda_version(&self) -> Option<(i32, i32)> {
        Some(self.version)
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        let call = self.primary.call("allocate memory")?;
        // SAFETY: a plain allocation. The driver rejects 0 bytes, but buffers may be empty.
        unsafe { result::malloc_sync(bytes.max(1) as usize) }.map_err(|error| call.failed(error))
    }

    fn free(&self, address: u64) {
        // SAFETY: the address came from `alloc` and is freed once, by its buffer. An error here is
        // an earlier asynchronous one, which the next call reports.
        let _ = self.primary.call(RELEASE).map(|_call| unsafe { result::free_sync(address) });
    }

    fn write(&self, address: u64, bytes: &[u8], stream: u64) -> Result<()> {
        let call = self.primary.call("copy to the GPU")?;
        let handle = stream as sys::CUstream;
        call.waits(stream, || {
            // SAFETY: the buffer checked the range; the copy is synchronous, so `bytes` outlives
            // it.
            unsafe {
                result::memcpy_htod_async(address, bytes, handle)
                    .and_then(|()| result::stream::synchronize(handle))
            }
        })
    }

    fn read(&self, address: u64, bytes: &mut [u8], stream: u64) -> Result<()> {
        let call = self.primary.call("copy from the GPU")?;
        let handle = stream as sys::CUstream;
        call.waits(stream, || {
            // SAFETY: as in `write`.
            unsafe {
                result::memcpy_dtoh_async(bytes, address, handle)
                    .and_then(|()| result::stream::synchronize(handle))
            }
        })
    }

    fn stream_create(&self) -> Result<u64> {
        // Synchronises with the default stream, which buffer copies use.
        self.stream_of(result::stream::StreamKind::Default)
    }

    fn lane_create(&self) -> Result<u64> {
        let lane = self.stream_of(result::stream::StreamKind::NonBlocking)?;
        self.primary.health.add_lane(lane);
        Ok(lane)
    }

    fn stream_destroy(&self, stream: u64) {
        self.primary.health.remove_lane(stream);
        // SAFETY: created by `stream_create`, destroyed once; the driver completes queued work.
        let _ =
            self.primary.call(RELEASE).map(|_call| unsafe { result::stream::destroy(stream as _) });
    }

    fn synchronize(&self, stream: u64) -> Result<()> {
        let call = self.primary.call("run queued work")?;
        // SAFETY: the stream is alive.
        call.waits(stream, || unsafe { result::stream::synchronize(stream as _) })
    }

    fn event_record(&self, stream: u64) -> Result<u64> {
        let event = self.event_of(sys::CUevent_flags::CU_EVENT_DEFAULT, RECORD)?;
        let marked = self.mark(event, stream);
        if marked.is_err() {
            self.event_destroy(event);
        }
        marked.map(|()| event)
    }

    fn event_destroy(&self, event: u64) {
        // SAFETY: created by `event_record`, destroyed once.
        let _ =
            self.primary.call(RELEASE).map(|_call| unsafe { result::event::destroy(event as _) });
    }

    fn mark_create(&self) -> Result<u64> {
        self.event_of(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING, "create an event")
    }

    fn mark(&self, event: u64, stream: u64) -> Result<()> {
        let call = self.primary.call(RECORD)?;
        // SAFETY: event and stream are alive.
        unsafe { result::event::record(event as _, stream as _) }
            .map_err(|error| call.failed(error))
    }

    fn wait(&self, stream: u64, event: u64) -> Result<()> {
        let call = self.primary.call("wait for an event")?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event are alive.
        unsafe { result::stream::wait_event(stream as _, event as _, flags) }
            .map_err(|error| call.failed(error))
    }

    fn event_elapsed_ms(&self, start: u64, end: u64) -> Result<f64> {
        let call = self.primary.call("time two events")?;
        // SAFETY: both events are alive and recorded.
        let elapsed = unsafe {
            result::event::synchronize(start as _)
                .and_then(|()| result::event::synchronize(end as _))
                .and_then(|()| result::event::elapsed(start as _, end as _))
        };
        elapsed.map(f64::from).map_err(|error| call.failed(error))
    }

    fn enter(&self) -> Result<bool> {
        self.primary.enter(LAUNCH)
    }

    fn leave(&self) {
        self.primary.leave();
    }

    fn copy(&self, from: u64, to: u64, bytes: u64, stream: u64) -> Result<()> {
        let call = self.primary.call("copy on the GPU")?;
        // SAFETY: the caller vouches for both ranges, which stay allocated until the stream has
        // come so far.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, stream as _) }
            .map_err(|error| call.failed(error))
    }

    fn capture(&self, stream: u64) -> Option<u64> {
        let _call = self.primary.call("query a capture").ok()?;
        // The default stream cannot be queried while another stream is being captured.
        Captured::of(stream).map_or(Some(u64::MAX), |of| of.map(|of| of.id))
    }

    fn prepare_conditionals(&self) -> Result<()> {
        self.conditionals.prepare().map(drop)
    }

    fn branch(&self, stream: u64, kind: Conditional, flag: u64) -> Result<Branching> {
        self.conditionals.begin(stream, kind, flag)
    }

    fn decide(&self, stream: u64, condition: u64, flag: u64) -> Result<()> {
        self.conditionals.decide(stream, condition, flag)
    }

    fn branch_end(&self, stream: u64) -> Result<()> {
        self.conditionals.end(stream)
    }

    fn owns(&self, stream: u64) -> Result<bool> {
        if stream <= DEFAULT_STREAMS {
            return Ok(true);
        }
        let call = self.primary.call("ask for the context of a stream")?;
        let mut context = ptr::null_mut();
        // SAFETY: the stream is alive, the pointer valid for a write.
        unsafe { sys::cuStreamGetCtx(stream as _, &mut context) }
            .result()
            .map_err(|error| call.failed(error))?;
        Ok(context == self.primary.context)
    }

    fn enter_background(&self) -> Result<()> {
        let call = self.primary.call("set the capture mode of a thread")?;
        let mut mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: `mode` is valid for a read and a write. The setting is thread-local.
        unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }
            .result()
            .map_err(|error| call.failed(error))
    }

    fn encode(&self, map: &TensorMap, address: u64) -> Result<[u64; MAP_WORDS]> {
        let call = self.primary.call("encode a tensor map")?;
        let data_type = match map.dtype {
            DType::F64 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
            DType::F32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DType::F16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::Bf16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::I64 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
            DType::I32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => {
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8
            }
        };
        let swizzle = match map.swizzle {
            Swizzle::None => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::B64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let rank = map.dims.len();
        let boxed = if map.im2col.is_some() { 2 } else { rank };
        let corners = map.im2col.iter().flat_map(|of| [&of.lower_corner, &of.upper_corner]);
        if !(1..=5).contains(&rank)
            || map.strides.len() + 1 != rank
            || map.box_dims.len() != boxed
            || !corners.into_iter().all(|corner| corner.len() + 2 == rank)
        {
            return Err(Error::internal(format!("malformed tensor map: {map:?}")));
        }
        let address = ptr::without_provenance_mut(address as usize);
        let (rank, steps) = (rank as u32, map.element_strides());
        let interleave = sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
        let promotion = sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
        let fill = sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        let mut encoded = sys::CUtensorMap { opaque: [0; MAP_WORDS] };
        // SAFETY: each array has as many entries as the driver reads for this rank. The address is
        // only stored.
        let status = unsafe {
            match &map.im2col {
                None => sys::cuTensorMapEncodeTiled(
                    &mut encoded,
                    data_type,
                    rank,
                    address,
                    map.dims.as_ptr(),
                    map.strides.as_ptr(),
                    map.box_dims.as_ptr(),
                    steps.as_ptr(),
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                ),
                Some(im2col) => sys::cuTensorMapEncodeIm2col(
                    &mut encoded,
                    data_type,
                    rank,
                    address,
                    map.dims.as_ptr(),
                    map.strides.as_ptr(),
                    im2col.lower_corner.as_ptr(),
                    im2col.upper_corner.as_ptr(),
                    map.box_dims[0],
                    map.box_dims[1],
                    steps.as_ptr(),
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                ),
            }
        };
        status.result().map_err(|error| call.failed(error))?;
        Ok(encoded.opaque)
    }

    fn load(
        &self,
        image: &Image,
        kernel: KernelName<'_>,
        shared_bytes: u32,
    ) -> Result<Arc<dyn Launchable>> {
        let call = self.primary.call("load an image")?;
        let name = CString::new(kernel.entry).expect("kernel names are identifiers");
        // PTX for the driver's assembler must be NUL-terminated.
        let bytes = match self.assembles || image.cubin.is_empty() {
            true => Cow::Owned([image.ptx.as_bytes(), b"\0"].concat()),
            false if self.version.0 < 13 && needs_cuda_13(&image.cubin) => {
                let (major, minor) = self.version;
                let stem = kernel.stem;
                return Err(Error::compile(format!(
                    "failed to load {stem}: it was compiled by NVRTC 13 for drivers of CUDA 13 and \
                     newer, this driver supports CUDA {major}.{minor}: {REMEDY}"
                )));
            }
            false => Cow::Borrowed(&image.cubin),
        };
        // SAFETY: the bytes are a complete image that outlives the call, which copies it.
        let module = unsafe { result::module::load_data(bytes.as_ptr().cast()) }
            .map_err(|error| rejected(&call, error, &bytes))?;
        let loaded = Module { primary: self.primary.clone(), module };
        let health = &self.primary.health;
        // SAFETY: the module is alive.
        let function = unsafe { result::module::get_function(module, name) };
        let function = function.map_err(|error| match error.0 {
            sys::cudaError_enum::CUDA_ERROR_NOT_FOUND => {
                let what = if matches!(bytes, Cow::Owned(_)) { "PTX" } else { "cubin" };
                Error::compile(format!("the {what} contains no kernel `{}`", kernel.entry))
            }
            _ => health.failed("find the kernel in its image", error),
        })?;
        let own = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        // SAFETY: the function is alive.
        let own = unsafe { result::function::get_function_attribute(function, own) }
            .map_err(|error| health.failed("ask for the kernel's shared memory", error))?;
        // What a block has without asking is of static and dynamic memory together.
        if i64::from(own) + i64::from(shared_bytes) > 48 << 10 {
            let limit =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is alive.
            unsafe {
                result::function::set_function_attribute(function, limit, shared_bytes as i32)
            }
            .map_err(|error| health.failed("raise the kernel's shared memory limit", error))?;
        }
        if self.target.cluster_blocks_max() > 8 {
            let allowed =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            // SAFETY: the function is alive.
            unsafe { result::function::set_function_attribute(function, allowed, 1) }
                .map_err(|error| health.failed("allow the kernel clusters of 16 blocks", error))?;
        }
        let parameters = Parameters::of(function)
            .map_err(|error| health.failed("ask for the kernel's parameters", error))?;
        let parameters = parameters.ok_or_else(|| {
            Error::internal(format!("{} has too many parameters beside tensor maps", kernel.stem))
        })?;
        let (name, sm_count) = (kernel.stem.into(), self.target.sm_count);
        let occupancy = Occupancy::default();
        let waits_for_grids = image.ptx.contains("griddepcontrol.wait;");
        Ok(Arc::new(CudaKernel {
            loaded,
            function,
            parameters,
            name,
            sm_count,
            occupancy,
            waits_for_grids,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_before_turing_are_refused() {
        let error = arch("Tesla V100", 70).expect_err("there are no kernels for it");
        let text = "failed to open Tesla V100: it is sm_70, expected sm_75 or newer";
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::ArchMismatch, text));
        assert_eq!(error.status(), "MCDNN_STATUS_ARCH_MISMATCH");
        assert_eq!(arch("Tesla T4", 75).expect("Turing"), Arch::new(75));
    }
}
