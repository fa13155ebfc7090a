//! A launch: what the caller describes, checked, and run at once or kept in a graph.

use std::ffi::c_void;

use cudarc::driver::sys::CUlaunchAttributeID::*;
use cudarc::driver::sys::cudaError_enum::*;
use cudarc::driver::sys::{CUlaunchConfig, CUresult};
use kiln_sim::{Checks, Device, ErrorKind, Kernel, Launch};

/// What a call returns; the error is the driver's code.
pub type Outcome<T = ()> = Result<T, CUresult>;

/// Dynamic shared memory, in bytes, that a kernel has without asking.
pub const SHARED_BYTES_DEFAULT: u32 = 48 << 10;

/// A function of a loaded module.
#[derive(Clone)]
pub struct Function {
    pub module: u64,
    pub kernel: Kernel,
    /// Dynamic shared memory, in bytes, that a launch may have.
    pub shared_bytes_max: u32,
    /// Whether clusters of more than 8 blocks were asked for.
    pub non_portable_cluster: bool,
}

/// Says what a code can not.
pub fn explain(code: CUresult, error: &kiln_sim::Error) -> CUresult {
    eprintln!("kiln-sim-driver: {code:?}: {error}");
    code
}

/// A kernel with its shape and parameters.
#[derive(Clone)]
pub struct Work {
    kernel: Kernel,
    launch: Launch,
    parameters: Vec<u8>,
}

/// Markers of the list `extra` of a launch (`cuda.h`).
const PARAM_BUFFER_POINTER: usize = 1;
const PARAM_BUFFER_SIZE: usize = 2;

impl Work {
    /// # Safety
    /// The configuration and what it points to, `values` and `extra` are as the driver API says.
    pub unsafe fn read(
        function: &Function,
        config: &CUlaunchConfig,
        values: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Outcome<Work> {
        let kernel = function.kernel.clone();
        let mut launch = Launch {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
            non_portable_cluster: function.non_portable_cluster,
            checks: Checks::ALL,
            ..Launch::default()
        };
        if launch.shared_bytes > function.shared_bytes_max {
            eprintln!(
                "kiln-sim-driver: `{}` is launched with {} bytes of dynamic shared memory, {} were \
                 asked for",
                kernel.name(),
                launch.shared_bytes,
                function.shared_bytes_max
            );
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for index in 0..config.numAttrs as usize {
            // SAFETY: there are so many attributes, and each is of the kind its number says.
            unsafe {
                let attribute = &*config.attrs.add(index);
                match attribute.id {
                    CU_LAUNCH_ATTRIBUTE_IGNORE => {}
                    CU_LAUNCH_ATTRIBUTE_COOPERATIVE => {
                        launch.cooperative = attribute.value.cooperative != 0;
                    }
                    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                        let of = attribute.value.clusterDim;
                        launch.cluster = [of.x, of.y, of.z];
                    }
                    _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
                }
            }
        }
        // SAFETY: passed on.
        let parameters = unsafe { parameters(&kernel, values, extra)? };
        Ok(Work { kernel, launch, parameters })
    }

    /// Runs the kernel to its end. A shape that does not fit is the caller's fault, what happens
    /// inside the kernel the device's.
    pub fn run(&self, device: &Device) -> Outcome {
        let failed = |error: kiln_sim::Error| explain(code(error.kind()), &error);
        let report = device.launch(&self.kernel, &self.launch, &self.parameters).map_err(failed)?;
        match report.findings.first() {
            None => Ok(()),
            Some(finding) => {
                eprintln!("kiln-sim-driver: `{}`: {finding}", self.kernel.name());
                Err(CUDA_ERROR_LAUNCH_FAILED)
            }
        }
    }
}

/// The parameter block, from a packed buffer or from a pointer to each parameter.
///
/// # Safety
/// As [`Work::read`].
unsafe fn parameters(
    kernel: &Kernel,
    values: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome<Vec<u8>> {
    let mut block = vec![0u8; kernel.param_bytes()];
    // SAFETY: one pointer for each parameter, or pairs up to a null.
    unsafe {
        if !values.is_null() {
            for (index, param) in kernel.params().iter().enumerate() {
                let value = std::slice::from_raw_parts((*values.add(index)).cast(), param.bytes);
                block[param.offset..][..param.bytes].copy_from_slice(value);
            }
            return Ok(block);
        }
        let (mut buffer, mut bytes) = (std::ptr::null::<u8>(), 0);
        let mut at = extra;
        while !at.is_null() && !(*at).is_null() {
            match (*at).addr() {
                PARAM_BUFFER_POINTER => buffer = (*at.add(1)).cast(),
                PARAM_BUFFER_SIZE => bytes = *(*at.add(1)).cast::<usize>(),
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            at = at.add(2);
        }
        if bytes != block.len() {
            let (name, takes) = (kernel.name(), block.len());
            eprintln!(
                "kiln-sim-driver: {bytes} bytes of parameters for `{name}`, it takes {takes}"
            );
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if bytes > 0 {
            block.copy_from_slice(std::slice::from_raw_parts(buffer, bytes));
        }
    }
    Ok(block)
}

fn code(kind: ErrorKind) -> CUresult {
    match kind {
        ErrorKind::BadLaunch => CUDA_ERROR_INVALID_VALUE,
        ErrorKind::OutOfBounds | ErrorKind::UseAfterFree => CUDA_ERROR_ILLEGAL_ADDRESS,
        ErrorKind::Misaligned => CUDA_ERROR_MISALIGNED_ADDRESS,
        ErrorKind::Trap => CUDA_ERROR_LAUNCH_FAILED,
        ErrorKind::Deadlock | ErrorKind::InstructionLimit => CUDA_ERROR_LAUNCH_TIMEOUT,
        _ => CUDA_ERROR_ILLEGAL_INSTRUCTION,
    }
}
