//! Options of loading and linking: lists of numbers, and of values as wide as a pointer.

use std::ffi::c_uint;

use cudarc::driver::sys::CUjit_option_enum::*;
use cudarc::driver::sys::cudaError_enum::*;

use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out};

/// A buffer of the caller for a log; what was written to it is told in place of its size.
#[derive(Clone, Copy)]
struct Log {
    buffer: Host,
    bytes: u64,
    size: Out<u64>,
}

impl Log {
    fn write(&self, text: &str) -> Outcome {
        if self.buffer.is_null() || self.bytes == 0 {
            return Ok(());
        }
        let count = text.len().min(self.bytes as usize - 1);
        self.buffer.write(&[&text.as_bytes()[..count], &[0]].concat())?;
        self.size.put(count as u64)
    }
}

/// What was asked for that makes a difference where nothing is assembled.
pub struct Options {
    pub max_registers: Option<u32>,
    info: Option<Log>,
    error: Option<Log>,
    wall_time: Option<Out<u64>>,
}

// SAFETY: addresses that the caller keeps for as long as the options are used.
unsafe impl Send for Options {}

impl Options {
    pub fn read(count: c_uint, names: In<c_uint>, values: Out<u64>) -> Outcome<Options> {
        let mut options = Options { max_registers: None, info: None, error: None, wall_time: None };
        let none = Log { buffer: Host::of(0), bytes: 0, size: values };
        let (mut info, mut error) = (none, none);
        for (index, name) in names.all(count as usize)?.into_iter().enumerate() {
            let (place, value) = (values.at(index), values.at(index).get()?);
            let is = |known: cudarc::driver::sys::CUjit_option_enum| name == known as c_uint;
            match () {
                () if is(CU_JIT_MAX_REGISTERS) => {
                    options.max_registers = (value as u32 > 0).then_some(value as u32);
                }
                () if is(CU_JIT_WALL_TIME) => options.wall_time = Some(place),
                () if is(CU_JIT_INFO_LOG_BUFFER) => info.buffer = Host::of(value),
                () if is(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) => {
                    (info.bytes, info.size) = (u64::from(value as u32), place);
                }
                () if is(CU_JIT_ERROR_LOG_BUFFER) => error.buffer = Host::of(value),
                () if is(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) => {
                    (error.bytes, error.size) = (u64::from(value as u32), place);
                }
                () if name >= CU_JIT_NUM_OPTIONS as c_uint => {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                // The others steer an assembler.
                () => {}
            }
        }
        (options.info, options.error) = (Some(info), Some(error));
        Ok(options)
    }

    /// Tells how loading went.
    pub fn tell(&self, info: &str, error: &str) -> Outcome {
        self.info.map_or(Ok(()), |log| log.write(info))?;
        self.error.map_or(Ok(()), |log| log.write(error))?;
        // A float in a pointer's place: that it took no time.
        self.wall_time.map_or(Ok(()), |time| time.put(0))
    }
}
