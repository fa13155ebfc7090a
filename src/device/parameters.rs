//! The parameters of a kernel as the driver takes them.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::{DriverError, sys};

/// Most parameters of a kernel whose parameters are handed over one by one: tensor maps and a
/// structure of tensors.
const SEPARATE_MAX: usize = 4;

const WORD_BYTES: usize = size_of::<u64>();

/// How the argument words of a kernel become its parameters.
///
/// A launch may hand them over as one buffer, which the driver copies as it is to where parameters
/// are. Tensor maps are aligned to 64 bytes there, in the constant bank, and parameters of sm_90
/// begin at 0x210 of it: a map in front has the offset 0x30. In the words it has 0 (and on an H200
/// TMA reads 48 bytes behind it: an illegal instruction). Such parameters are handed over one by
/// one. Maps come before all else, so that each parameter lies right behind those before it.
#[derive(Debug)]
pub(super) enum Parameters {
    /// The words are the buffer.
    Packed,
    /// So many parameters, each from its word on.
    Separate { count: usize, starts: [usize; SEPARATE_MAX] },
}

impl Parameters {
    /// Asks the driver where the parameters of a live function are; `None` if it needs more of them
    /// one by one than there may be.
    pub(super) fn of(function: sys::CUfunction) -> Result<Option<Parameters>, DriverError> {
        let (mut count, mut starts) = (0, [0; SEPARATE_MAX]);
        let (mut at, mut packed) = (0, true);
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the function is alive, both pointers are valid for a write.
            let status =
                unsafe { sys::cuFuncGetParamInfo(function, count, &mut offset, &mut bytes) };
            match status.result() {
                Err(DriverError(sys::cudaError_enum::CUDA_ERROR_INVALID_VALUE)) => break,
                asked => asked?,
            }
            packed &= offset == at;
            if let Some(start) = starts.get_mut(count) {
                *start = at / WORD_BYTES;
            }
            at += bytes.next_multiple_of(WORD_BYTES);
            count += 1;
        }
        Ok(match packed {
            true => Some(Parameters::Packed),
            false if count <= SEPARATE_MAX => Some(Parameters::Separate { count, starts }),
            false => None,
        })
    }

    /// Calls `launch` with the two lists of `cuLaunchKernelEx`: `kernelParams` and `extra`.
    pub(super) fn pass<T>(
        &self,
        arguments: &[u64],
        launch: impl FnOnce(*mut *mut c_void, *mut *mut c_void) -> T,
    ) -> T {
        match self {
            Parameters::Packed => {
                let mut bytes = size_of_val(arguments);
                let mut extra = [
                    PARAM_BUFFER_POINTER,
                    arguments.as_ptr().cast_mut().cast(),
                    PARAM_BUFFER_SIZE,
                    (&raw mut bytes).cast(),
                    PARAM_END,
                ];
                launch(ptr::null_mut(), extra.as_mut_ptr())
            }
            Parameters::Separate { count, starts } => {
                let mut values = [ptr::null_mut(); SEPARATE_MAX];
                for (value, start) in values.iter_mut().zip(&starts[..*count]) {
                    *value = arguments[*start..].as_ptr().cast_mut().cast();
                }
                launch(values.as_mut_ptr(), ptr::null_mut())
            }
        }
    }
}

/// Markers of the list `extra` (cuda.h).
const PARAM_END: *mut c_void = ptr::null_mut();
const PARAM_BUFFER_POINTER: *mut c_void = ptr::without_provenance_mut(1);
const PARAM_BUFFER_SIZE: *mut c_void = ptr::without_provenance_mut(2);
