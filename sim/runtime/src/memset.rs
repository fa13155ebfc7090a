//! Fills.

use std::ffi::{c_int, c_void};

use crate::code::Outcome;
use crate::context::current;
use crate::driver::{cuMemsetD2D8_v2, cuMemsetD2D8Async};
use crate::last::runtime;
use crate::layout::{Extent, Pitched};
use crate::place::address;

/// Fills rows with the low byte of a value; without a stream, waits.
fn rows(at: Pitched, value: c_int, width: usize, height: usize, stream: Option<u64>) -> Outcome {
    current()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let (start, pitch, value) = (address(at.start), at.pitch, value as u8);
    match stream {
        None => cuMemsetD2D8_v2(start, pitch, value, width, height),
        Some(stream) => cuMemsetD2D8Async(start, pitch, value, width, height, stream),
    }
}

fn line(start: *mut c_void, value: c_int, bytes: usize, stream: Option<u64>) -> Outcome {
    rows(Pitched { start, pitch: bytes, width: bytes, height: 1 }, value, bytes, 1, stream)
}

fn volume(at: Pitched, value: c_int, extent: Extent, stream: Option<u64>) -> Outcome {
    for z in 0..extent.depth {
        let plane = at.pitch.wrapping_mul(at.height).wrapping_mul(z);
        let start = at.start.wrapping_byte_add(plane);
        rows(Pitched { start, ..at }, value, extent.width, extent.height, stream)?;
    }
    Ok(())
}

runtime! {
    fn cudaMemset(at: *mut c_void, value: c_int, bytes: usize) {
        line(at, value, bytes, None)
    }

    fn cudaMemsetAsync(at: *mut c_void, value: c_int, bytes: usize, stream: u64) {
        line(at, value, bytes, Some(stream))
    }

    fn cudaMemset2D(start: *mut c_void, pitch: usize, value: c_int, width: usize, height: usize) {
        rows(Pitched { start, pitch, width, height }, value, width, height, None)
    }

    fn cudaMemset2DAsync(
        start: *mut c_void,
        pitch: usize,
        value: c_int,
        width: usize,
        height: usize,
        stream: u64,
    ) {
        rows(Pitched { start, pitch, width, height }, value, width, height, Some(stream))
    }

    fn cudaMemset3D(at: Pitched, value: c_int, extent: Extent) {
        volume(at, value, extent, None)
    }

    fn cudaMemset3DAsync(at: Pitched, value: c_int, extent: Extent, stream: u64) {
        volume(at, value, extent, Some(stream))
    }
}
