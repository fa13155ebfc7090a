//! Libraries: images that a program loads by itself. Options of the runtime are the driver's.

use std::ffi::{c_char, c_uint, c_void};

use crate::context::current;
use crate::driver::*;
use crate::last::runtime;

runtime! {
    fn cudaLibraryLoadData(
        library: *mut u64,
        code: *const c_void,
        options: *const c_uint,
        values: *mut *mut c_void,
        count: c_uint,
        library_options: *const c_uint,
        library_values: *mut *mut c_void,
        library_count: c_uint,
    ) {
        current()?;
        cuLibraryLoadData(
            library, code, options, values, count, library_options, library_values, library_count,
        )
    }

    fn cudaLibraryLoadFromFile(
        library: *mut u64,
        file: *const c_char,
        options: *const c_uint,
        values: *mut *mut c_void,
        count: c_uint,
        library_options: *const c_uint,
        library_values: *mut *mut c_void,
        library_count: c_uint,
    ) {
        current()?;
        cuLibraryLoadFromFile(
            library, file, options, values, count, library_options, library_values, library_count,
        )
    }

    fn cudaLibraryUnload(library: u64) {
        current()?;
        cuLibraryUnload(library)
    }

    fn cudaLibraryGetKernel(kernel: *mut u64, library: u64, name: *const c_char) {
        current()?;
        cuLibraryGetKernel(kernel, library, name)
    }

    fn cudaLibraryGetGlobal(
        address: *mut u64,
        bytes: *mut usize,
        library: u64,
        name: *const c_char,
    ) {
        current()?;
        cuLibraryGetGlobal(address, bytes, library, name)
    }

    fn cudaLibraryGetManaged(
        address: *mut u64,
        bytes: *mut usize,
        library: u64,
        name: *const c_char,
    ) {
        current()?;
        cuLibraryGetManaged(address, bytes, library, name)
    }

    fn cudaLibraryGetKernelCount(count: *mut c_uint, library: u64) {
        current()?;
        cuLibraryGetKernelCount(count, library)
    }

    fn cudaLibraryEnumerateKernels(kernels: *mut u64, count: c_uint, library: u64) {
        current()?;
        cuLibraryEnumerateKernels(kernels, count, library)
    }
}
