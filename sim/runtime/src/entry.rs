//! Functions of the driver by name.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::code::{Code, Outcome};
use crate::context::initialised;
use crate::driver::cuGetProcAddress_v2;
use crate::last::runtime;
use crate::place::put;

/// The flag that asks for functions whose default stream is that of the thread.
pub const PER_THREAD_ENTRY: u64 = 2;

/// Looks a function up as of a version of CUDA. That there is none is told by the status, if the
/// caller asks for it.
pub fn entry(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> Outcome {
    initialised()?;
    let (mut found, mut own) = (null_mut(), 0);
    match cuGetProcAddress_v2(name, &mut found, version, flags, &mut own) {
        Err(Code::SYMBOL_NOT_FOUND) if !status.is_null() => {}
        other => other?,
    }
    put(to, found)?;
    if status.is_null() { Ok(()) } else { put(status, own) }
}

runtime! {
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char,
        to: *mut *mut c_void,
        version: c_uint,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry(name, to, version as c_int, flags, status)
    }

    fn cudaGetDriverEntryPointByVersion_ptsz(
        name: *const c_char,
        to: *mut *mut c_void,
        version: c_uint,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry(name, to, version as c_int, flags | PER_THREAD_ENTRY, status)
    }
}
