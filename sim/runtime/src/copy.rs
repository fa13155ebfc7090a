//! Copies: of lines, planes and volumes. The sides that the caller says must be those that the
//! addresses are on, although there is one address space.

use std::ffi::{c_int, c_void};

use crate::code::{Code, Outcome};
use crate::context::{current, known};
use crate::driver::*;
use crate::last::runtime;
use crate::layout::{Copy2d, Copy3d, Copy3dParams, Copy3dPeerParams, Extent, Side, Side2d, Side3d};
use crate::memory::sides;
use crate::place::{address, given};

/// `cudaMemcpyKind`.
pub const TO_DEVICE: c_int = 1;
pub const FROM_DEVICE: c_int = 2;
pub const WITHIN_DEVICE: c_int = 3;
const DEFAULT: c_int = 4;

/// The driver's kind of memory whose side its address says.
const UNIFIED: u32 = 4;

/// Refuses a copy whose addresses are not on the sides that its kind names.
fn directed(to: *const c_void, from: *const c_void, kind: c_int) -> Outcome {
    let (to_device, from_device) = match kind {
        0 => (false, false),
        TO_DEVICE => (true, false),
        FROM_DEVICE => (false, true),
        WITHIN_DEVICE => (true, true),
        DEFAULT => return Ok(()),
        _ => return Err(Code::INVALID_MEMCPY_DIRECTION),
    };
    for (what, of, on_device) in [("to", to, to_device), ("from", from, from_device)] {
        let (by_device, by_host) = sides(of);
        let (right, side) =
            if on_device { (by_device, "the device") } else { (by_host, "the host") };
        if !right {
            eprintln!("kiln-sim-runtime: failed to copy {what} {of:p}: not memory of {side}");
            return Err(Code::INVALID_VALUE);
        }
    }
    Ok(())
}

/// Copies a line; without a stream, waits for it.
pub fn line(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: Option<u64>,
) -> Outcome {
    current()?;
    if bytes == 0 {
        return Ok(());
    }
    directed(to, from, kind)?;
    match stream {
        None => cuMemcpy(address(to), address(from), bytes),
        Some(stream) => cuMemcpyAsync(address(to), address(from), bytes, stream),
    }
}

/// Copies rows, of which each side says where they start and how far they are apart.
fn plane(
    to: (*mut c_void, usize),
    from: (*const c_void, usize),
    [width, height]: [usize; 2],
    kind: c_int,
    stream: Option<u64>,
) -> Outcome {
    current()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    if width > to.1 || width > from.1 {
        return Err(Code::INVALID_PITCH_VALUE);
    }
    directed(to.0, from.0, kind)?;
    let side = |start: *const c_void, pitch| {
        let at = address(start);
        Side2d { x_bytes: 0, y: 0, memory: UNIFIED, host: at, device: at, array: 0, pitch }
    };
    let copy = Copy2d { from: side(from.0, from.1), to: side(to.0, to.1), width, height };
    match stream {
        None => cuMemcpy2DUnaligned_v2(&copy),
        Some(stream) => cuMemcpy2DAsync_v2(&copy, stream),
    }
}

fn side(of: &Side) -> Outcome<Side3d> {
    if of.array != 0 {
        eprintln!("kiln-sim-runtime: failed to copy an array: there are none");
        return Err(Code::NOT_SUPPORTED);
    }
    let at = address(of.pointer.start);
    Ok(Side3d {
        x_bytes: of.position.x,
        y: of.position.y,
        z: of.position.z,
        level: 0,
        memory: UNIFIED,
        host: at,
        device: at,
        array: 0,
        reserved: 0,
        pitch: of.pointer.pitch,
        height: of.pointer.height,
    })
}

fn volume((to, from): (&Side, &Side), extent: Extent, kind: c_int, stream: Option<u64>) -> Outcome {
    current()?;
    let Extent { width, height, depth } = extent;
    let copy = Copy3d { from: side(from)?, to: side(to)?, width, height, depth };
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    directed(to.pointer.start, from.pointer.start, kind)?;
    match stream {
        None => cuMemcpy3D_v2(&copy),
        Some(stream) => cuMemcpy3DAsync_v2(&copy, stream),
    }
}

fn of_params(params: *const Copy3dParams, stream: Option<u64>) -> Outcome {
    let params = given(params)?;
    volume((&params.to, &params.from), params.extent, params.kind, stream)
}

fn of_peers(params: *const Copy3dPeerParams, stream: Option<u64>) -> Outcome {
    let params = given(params)?;
    known(params.to_device)?;
    known(params.from_device)?;
    volume((&params.to, &params.from), params.extent, WITHIN_DEVICE, stream)
}

runtime! {
    fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        line(to, from, bytes, kind, None)
    }

    fn cudaMemcpyAsync(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_int,
        stream: u64,
    ) {
        line(to, from, bytes, kind, Some(stream))
    }

    fn cudaMemcpyPeer(
        to: *mut c_void,
        to_device: c_int,
        from: *const c_void,
        from_device: c_int,
        bytes: usize,
    ) {
        known(to_device)?;
        known(from_device)?;
        line(to, from, bytes, WITHIN_DEVICE, None)
    }

    fn cudaMemcpyPeerAsync(
        to: *mut c_void,
        to_device: c_int,
        from: *const c_void,
        from_device: c_int,
        bytes: usize,
        stream: u64,
    ) {
        known(to_device)?;
        known(from_device)?;
        line(to, from, bytes, WITHIN_DEVICE, Some(stream))
    }

    fn cudaMemcpy2D(
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
    ) {
        plane((to, to_pitch), (from, from_pitch), [width, height], kind, None)
    }

    fn cudaMemcpy2DAsync(
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: c_int,
        stream: u64,
    ) {
        plane((to, to_pitch), (from, from_pitch), [width, height], kind, Some(stream))
    }

    fn cudaMemcpy3D(params: *const Copy3dParams) {
        of_params(params, None)
    }

    fn cudaMemcpy3DAsync(params: *const Copy3dParams, stream: u64) {
        of_params(params, Some(stream))
    }

    fn cudaMemcpy3DPeer(params: *const Copy3dPeerParams) {
        of_peers(params, None)
    }

    fn cudaMemcpy3DPeerAsync(params: *const Copy3dPeerParams, stream: u64) {
        of_peers(params, Some(stream))
    }
}
