//! The functions that fill.

use std::ffi::{c_uchar, c_uint, c_ushort};

use cudarc::driver::sys::cudaError_enum::*;

use crate::fill::Fill;
use crate::machine::{MACHINE, driver};
use crate::outcome::Outcome;
use crate::task::Task;

/// A pitch of 0 is that of rows without gaps.
fn fill(address: u64, pitch: usize, value: (u32, usize), size: [usize; 2], stream: u64) -> Outcome {
    let ((value, bytes), [width, height]) = (value, size);
    let aligned = address.is_multiple_of(bytes as u64) && pitch.is_multiple_of(bytes);
    if !aligned || (height > 1 && pitch < width.saturating_mul(bytes)) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (pitch, width, height) = (pitch as u64, width as u64, height as u64);
    let task = Task::Fill(Fill { address, pitch, value, bytes, width, height });
    MACHINE.submit(stream, task)
}

driver! {
    fn cuMemsetD8_v2(at: u64, value: c_uchar, count: usize) {
        fill(at, 0, (value.into(), 1), [count, 1], 0)
    }

    fn cuMemsetD16_v2(at: u64, value: c_ushort, count: usize) {
        fill(at, 0, (value.into(), 2), [count, 1], 0)
    }

    fn cuMemsetD32_v2(at: u64, value: c_uint, count: usize) {
        fill(at, 0, (value, 4), [count, 1], 0)
    }

    fn cuMemsetD8Async(at: u64, value: c_uchar, count: usize, stream: u64) {
        fill(at, 0, (value.into(), 1), [count, 1], stream)
    }

    fn cuMemsetD16Async(at: u64, value: c_ushort, count: usize, stream: u64) {
        fill(at, 0, (value.into(), 2), [count, 1], stream)
    }

    fn cuMemsetD32Async(at: u64, value: c_uint, count: usize, stream: u64) {
        fill(at, 0, (value, 4), [count, 1], stream)
    }

    fn cuMemsetD2D8_v2(at: u64, pitch: usize, value: c_uchar, width: usize, height: usize) {
        fill(at, pitch, (value.into(), 1), [width, height], 0)
    }

    fn cuMemsetD2D16_v2(at: u64, pitch: usize, value: c_ushort, width: usize, height: usize) {
        fill(at, pitch, (value.into(), 2), [width, height], 0)
    }

    fn cuMemsetD2D32_v2(at: u64, pitch: usize, value: c_uint, width: usize, height: usize) {
        fill(at, pitch, (value, 4), [width, height], 0)
    }

    fn cuMemsetD2D8Async(
        at: u64,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        fill(at, pitch, (value.into(), 1), [width, height], stream)
    }

    fn cuMemsetD2D16Async(
        at: u64,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        fill(at, pitch, (value.into(), 2), [width, height], stream)
    }

    fn cuMemsetD2D32Async(
        at: u64,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        fill(at, pitch, (value, 4), [width, height], stream)
    }
}
