//! Functions that CUDA 12 and 13 have by the same name and that differ: who is linked with the
//! library finds that of its version, who looks a name up finds the latest.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::context::current;
use crate::driver::*;
use crate::entry::{PER_THREAD_ENTRY, entry};
use crate::last::runtime;
use crate::own_stream::{own, per_thread};
use crate::place::{address, put};

/// The versions that the runtime says it has: those of the interface it was written for.
const CUDA_12: c_int = 12_090;
const CUDA_13: c_int = 13_000;

/// Gives functions the name that they have in each version of the library.
macro_rules! named {
    ($(fn $name:ident($($arg:ident: $type:ty),*) = $twelve:ident, $thirteen:ident;)*) => {
        #[cfg(versioned)]
        std::arch::global_asm!($(
            concat!(
                ".symver ", stringify!($twelve), ", ", stringify!($name), "@libcudart.so.12",
            ),
            concat!(
                ".symver ", stringify!($thirteen), ", ", stringify!($name), "@@libcudart.so.13",
            ),
        )*);

        $(
            #[cfg(not(versioned))]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($arg: $type),*) -> crate::code::Code {
                $thirteen($($arg),*)
            }
        )*
    };
}

type Place = *mut c_void;
type Entry = *mut Place;

#[rustfmt::skip]
named! {
    fn cudaRuntimeGetVersion(version: *mut c_int)
        = cudaRuntimeGetVersion_12, cudaRuntimeGetVersion_13;
    fn cudaGetDriverEntryPoint(name: *const c_char, to: Entry, flags: u64, status: *mut c_uint)
        = cudaGetDriverEntryPoint_12, cudaGetDriverEntryPoint_13;
    fn cudaGetDriverEntryPoint_ptsz(name: *const c_char, to: Entry, flags: u64, status: *mut c_uint)
        = cudaGetDriverEntryPoint_12_ptsz, cudaGetDriverEntryPoint_13_ptsz;
    fn cudaMemAdvise(at: *const c_void, bytes: usize, advice: c_uint, location: u64)
        = cudaMemAdvise_12, cudaMemAdvise_v2;
    fn cudaMemPrefetchAsync(
        at: *const c_void, bytes: usize, location: u64, flags: c_uint, stream: u64
    ) = cudaMemPrefetchAsync_12, cudaMemPrefetchAsync_v2;
    fn cudaMemPrefetchAsync_ptsz(
        at: *const c_void, bytes: usize, location: u64, flags: c_uint, stream: u64
    ) = cudaMemPrefetchAsync_12_ptsz, cudaMemPrefetchAsync_v2_ptsz;
    fn cudaStreamGetCaptureInfo(
        stream: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, edges: *mut *const c_void, count: *mut usize
    ) = cudaStreamGetCaptureInfo_12, cudaStreamGetCaptureInfo_v3;
    fn cudaStreamGetCaptureInfo_ptsz(
        stream: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, edges: *mut *const c_void, count: *mut usize
    ) = cudaStreamGetCaptureInfo_12_ptsz, cudaStreamGetCaptureInfo_v3_ptsz;
}

runtime! {
    fn cudaRuntimeGetVersion_12(version: *mut c_int) {
        put(version, CUDA_12)
    }

    fn cudaRuntimeGetVersion_13(version: *mut c_int) {
        put(version, CUDA_13)
    }

    fn cudaGetDriverEntryPoint_12(
        name: *const c_char,
        to: Entry,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry(name, to, CUDA_12, flags, status)
    }

    fn cudaGetDriverEntryPoint_13(
        name: *const c_char,
        to: Entry,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry(name, to, CUDA_13, flags, status)
    }

    fn cudaGetDriverEntryPoint_12_ptsz(
        name: *const c_char,
        to: Entry,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry(name, to, CUDA_12, flags | PER_THREAD_ENTRY, status)
    }

    fn cudaGetDriverEntryPoint_13_ptsz(
        name: *const c_char,
        to: Entry,
        flags: u64,
        status: *mut c_uint,
    ) {
        entry(name, to, CUDA_13, flags | PER_THREAD_ENTRY, status)
    }

    fn cudaMemAdvise_12(at: *const c_void, bytes: usize, advice: c_uint, device: c_int) {
        current()?;
        cuMemAdvise(address(at), bytes, advice, device)
    }

    // A location is two words: what kind it is, and which.
    fn cudaMemAdvise_v2(at: *const c_void, bytes: usize, advice: c_uint, location: u64) {
        current()?;
        cuMemAdvise_v2(address(at), bytes, advice, location)
    }

    fn cudaMemPrefetchAsync_12(at: *const c_void, bytes: usize, device: c_int, stream: u64) {
        current()?;
        cuMemPrefetchAsync(address(at), bytes, device, stream)
    }

    fn cudaMemPrefetchAsync_v2(
        at: *const c_void,
        bytes: usize,
        location: u64,
        flags: c_uint,
        stream: u64,
    ) {
        current()?;
        cuMemPrefetchAsync_v2(address(at), bytes, location, flags, stream)
    }

    fn cudaStreamGetCaptureInfo_12(stream: u64, status: *mut c_uint, id: *mut u64) {
        current()?;
        cuStreamGetCaptureInfo(stream, status, id)
    }

    fn cudaStreamGetCaptureInfo_v2(
        stream: u64,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut u64,
        dependencies: *mut *const u64,
        count: *mut usize,
    ) {
        current()?;
        cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, null_mut(), count)
    }

    fn cudaStreamGetCaptureInfo_v3(
        stream: u64,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut u64,
        dependencies: *mut *const u64,
        edges: *mut *const c_void,
        count: *mut usize,
    ) {
        current()?;
        cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count)
    }
}

#[rustfmt::skip]
per_thread! {
    fn cudaMemPrefetchAsync_12_ptsz(at: *const c_void, bytes: usize, device: c_int, on: u64)
        = cudaMemPrefetchAsync_12(at, bytes, device, own(on));
    fn cudaMemPrefetchAsync_v2_ptsz(
        at: *const c_void, bytes: usize, location: u64, flags: c_uint, on: u64,
    ) = cudaMemPrefetchAsync_v2(at, bytes, location, flags, own(on));
    fn cudaStreamGetCaptureInfo_12_ptsz(on: u64, status: *mut c_uint, id: *mut u64)
        = cudaStreamGetCaptureInfo_12(own(on), status, id);
    fn cudaStreamGetCaptureInfo_v2_ptsz(
        on: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, count: *mut usize,
    ) = cudaStreamGetCaptureInfo_v2(own(on), status, id, graph, dependencies, count);
    fn cudaStreamGetCaptureInfo_v3_ptsz(
        on: u64, status: *mut c_uint, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, edges: *mut *const c_void, count: *mut usize,
    ) = cudaStreamGetCaptureInfo_v3(own(on), status, id, graph, dependencies, edges, count);
}
