//! The functions that copy.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;

use crate::copy::{Copy, Side, Volume};
use crate::machine::{MACHINE, driver};
use crate::outcome::Outcome;
use crate::pointer::{Host, In};
use crate::task::Task;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2d {
    from: Side2d,
    to: Side2d,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Side2d {
    x_bytes: usize,
    y: usize,
    memory: c_uint,
    host: Host,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY3D`, and the first part of `CUDA_MEMCPY3D_PEER`, whose contexts lie where the other
/// has what is reserved.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3d {
    from: Side3d,
    to: Side3d,
    width: usize,
    height: usize,
    depth: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Side3d {
    x_bytes: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: c_uint,
    host: Host,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

/// The start of a side by its kind of memory (`CUmemorytype`).
fn start(memory: c_uint, host: Host, device: u64) -> Outcome<Side> {
    match memory {
        1 => Ok(Side::Host(host)),
        2 => Ok(Side::Device(device)),
        3 => Err(CUDA_ERROR_NOT_SUPPORTED),
        4 => Ok(Side::of(&MACHINE.device, device)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn shifted(start: Side, bytes: u64) -> Side {
    match start {
        Side::Device(address) => Side::Device(address.wrapping_add(bytes)),
        Side::Host(place) => Side::Host(place.add(bytes)),
    }
}

impl Side2d {
    fn volume(&self, width: usize, height: usize) -> Outcome<Volume> {
        let row = self.x_bytes.saturating_add(width);
        let pitch = if self.pitch == 0 { row } else { self.pitch };
        if height > 1 && pitch < row {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let offset = self.y.wrapping_mul(pitch).wrapping_add(self.x_bytes);
        let start = shifted(start(self.memory, self.host, self.device)?, offset as u64);
        Ok(Volume { start, pitch: pitch as u64, plane: 0 })
    }
}

impl Side3d {
    fn volume(&self, width: usize, height: usize, depth: usize) -> Outcome<Volume> {
        let (row, column) = (self.x_bytes.saturating_add(width), self.y.saturating_add(height));
        let pitch = if self.pitch == 0 { row } else { self.pitch };
        let rows = if self.height == 0 { column } else { self.height };
        let narrow = height > 1 && pitch < row;
        let low = depth > 1 && rows < column;
        if narrow || low || self.level != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let lines = self.z.wrapping_mul(rows).wrapping_add(self.y);
        let offset = lines.wrapping_mul(pitch).wrapping_add(self.x_bytes);
        let start = shifted(start(self.memory, self.host, self.device)?, offset as u64);
        Ok(Volume { start, pitch: pitch as u64, plane: pitch.wrapping_mul(rows) as u64 })
    }
}

impl Copy2d {
    fn task(&self) -> Outcome<Task> {
        let (width, height) = (self.width, self.height);
        let (from, to) = (self.from.volume(width, height)?, self.to.volume(width, height)?);
        let (width, height) = (width as u64, height as u64);
        Ok(Task::Copy(Copy { from, to, width, height, depth: 1 }))
    }
}

impl Copy3d {
    fn task(&self) -> Outcome<Task> {
        let (width, height, depth) = (self.width, self.height, self.depth);
        let from = self.from.volume(width, height, depth)?;
        let to = self.to.volume(width, height, depth)?;
        let (width, height, depth) = (width as u64, height as u64, depth as u64);
        Ok(Task::Copy(Copy { from, to, width, height, depth }))
    }
}

/// A copy that is waited for is one on the legacy default stream.
fn line(from: Side, to: Side, bytes: usize, stream: u64) -> Outcome {
    MACHINE.submit(stream, Task::Copy(Copy::line(from, to, bytes)))
}

fn unified(to: u64, from: u64, bytes: usize, stream: u64) -> Outcome {
    let side = |address| Side::of(&MACHINE.device, address);
    line(side(from), side(to), bytes, stream)
}

driver! {
    fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        unified(to, from, bytes, 0)
    }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) {
        unified(to, from, bytes, stream)
    }

    fn cuMemcpyHtoD_v2(to: u64, from: Host, bytes: usize) {
        line(Side::Host(from), Side::Device(to), bytes, 0)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: Host, bytes: usize, stream: u64) {
        line(Side::Host(from), Side::Device(to), bytes, stream)
    }

    fn cuMemcpyDtoH_v2(to: Host, from: u64, bytes: usize) {
        line(Side::Device(from), Side::Host(to), bytes, 0)
    }

    fn cuMemcpyDtoHAsync_v2(to: Host, from: u64, bytes: usize, stream: u64) {
        line(Side::Device(from), Side::Host(to), bytes, stream)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        line(Side::Device(from), Side::Device(to), bytes, 0)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) {
        line(Side::Device(from), Side::Device(to), bytes, stream)
    }

    // There is one device, so that its peer is itself.
    fn cuMemcpyPeer(to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: usize) {
        line(Side::Device(from), Side::Device(to), bytes, 0)
    }

    fn cuMemcpyPeerAsync(
        to: u64,
        _to_context: u64,
        from: u64,
        _from_context: u64,
        bytes: usize,
        stream: u64,
    ) {
        line(Side::Device(from), Side::Device(to), bytes, stream)
    }

    fn cuMemcpy2D_v2(copy: In<Copy2d>) {
        MACHINE.submit(0, copy.get()?.task()?)
    }

    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) {
        MACHINE.submit(0, copy.get()?.task()?)
    }

    fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: u64) {
        MACHINE.submit(stream, copy.get()?.task()?)
    }

    fn cuMemcpy3D_v2(copy: In<Copy3d>) {
        MACHINE.submit(0, copy.get()?.task()?)
    }

    fn cuMemcpy3DAsync_v2(copy: In<Copy3d>, stream: u64) {
        MACHINE.submit(stream, copy.get()?.task()?)
    }

    fn cuMemcpy3DPeer(copy: In<Copy3d>) {
        MACHINE.submit(0, copy.get()?.task()?)
    }

    fn cuMemcpy3DPeerAsync(copy: In<Copy3d>, stream: u64) {
        MACHINE.submit(stream, copy.get()?.task()?)
    }
}
