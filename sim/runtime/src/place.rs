//! Places of the caller for results. A pointer here comes from a caller of the C interface only,
//! who keeps its rules: what the document says it refers to is there.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use crate::code::{Code, Outcome};

/// The place that a pointer of the caller is to.
pub fn place<'a, T>(pointer: *mut T) -> Outcome<&'a mut MaybeUninit<T>> {
    // SAFETY: null, or a place for a `T`, as the interface asks.
    unsafe { pointer.cast::<MaybeUninit<T>>().as_mut() }.ok_or(Code::INVALID_VALUE)
}

/// Writes a result that the caller must have asked for.
pub fn put<T>(pointer: *mut T, value: T) -> Outcome {
    place(pointer)?.write(value);
    Ok(())
}

/// What the caller describes.
pub fn given<'a, T>(pointer: *const T) -> Outcome<&'a T> {
    // SAFETY: null, or a value, as the interface asks.
    unsafe { pointer.as_ref() }.ok_or(Code::INVALID_VALUE)
}

/// The address that a pointer is for the device, whose addresses are the process's.
pub fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}
