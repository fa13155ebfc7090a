//! Variables of the device by what stands for them on the host: where they are, and copies.

use std::ffi::{c_int, c_void};

use crate::code::{Code, Outcome};
use crate::copy::{FROM_DEVICE, TO_DEVICE, WITHIN_DEVICE, line};
use crate::last::runtime;
use crate::memory::pointer;
use crate::place::put;
use crate::registry::variable;

/// The address of so many bytes of a variable, from an offset on.
fn part(of: *const c_void, bytes: usize, offset: usize) -> Outcome<*mut c_void> {
    let (start, size) = variable(of)?;
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= size);
    if fits { Ok(pointer(start + offset as u64)) } else { Err(Code::INVALID_VALUE) }
}

/// Refuses directions that are not one of those.
fn one_of(kind: c_int, allowed: [c_int; 2]) -> Outcome {
    const DEFAULT: c_int = 4;
    let known = kind == DEFAULT || allowed.contains(&kind);
    if known { Ok(()) } else { Err(Code::INVALID_MEMCPY_DIRECTION) }
}

fn to(
    symbol: *const c_void,
    from: *const c_void,
    [bytes, offset]: [usize; 2],
    kind: c_int,
    stream: Option<u64>,
) -> Outcome {
    one_of(kind, [TO_DEVICE, WITHIN_DEVICE])?;
    line(part(symbol, bytes, offset)?, from, bytes, kind, stream)
}

fn from(
    to: *mut c_void,
    symbol: *const c_void,
    [bytes, offset]: [usize; 2],
    kind: c_int,
    stream: Option<u64>,
) -> Outcome {
    one_of(kind, [FROM_DEVICE, WITHIN_DEVICE])?;
    line(to, part(symbol, bytes, offset)?, bytes, kind, stream)
}

runtime! {
    fn cudaGetSymbolAddress(to: *mut u64, symbol: *const c_void) {
        put(to, variable(symbol)?.0)
    }

    fn cudaGetSymbolSize(to: *mut usize, symbol: *const c_void) {
        put(to, variable(symbol)?.1)
    }

    fn cudaMemcpyToSymbol(
        symbol: *const c_void,
        source: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        to(symbol, source, [bytes, offset], kind, None)
    }

    fn cudaMemcpyToSymbolAsync(
        symbol: *const c_void,
        source: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
        stream: u64,
    ) {
        to(symbol, source, [bytes, offset], kind, Some(stream))
    }

    fn cudaMemcpyFromSymbol(
        target: *mut c_void,
        symbol: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
    ) {
        from(target, symbol, [bytes, offset], kind, None)
    }

    fn cudaMemcpyFromSymbolAsync(
        target: *mut c_void,
        symbol: *const c_void,
        bytes: usize,
        offset: usize,
        kind: c_int,
        stream: u64,
    ) {
        from(target, symbol, [bytes, offset], kind, Some(stream))
    }
}
