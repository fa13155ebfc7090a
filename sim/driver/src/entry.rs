//! Entry points by name.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use cudarc::driver::sys::cudaError_enum::*;

use crate::machine::driver;
use crate::outcome::Outcome;
use crate::pointer::{In, Out, Text};
use crate::settings::tell;

/// Names whose functions changed, with the versions of CUDA from which on there is which.
const CHANGED: [(&str, &[(c_int, &str)]); 24] = [
    ("cuCtxCreate", &[(3020, "_v2"), (11040, "_v3"), (12050, "_v4")]),
    ("cuDeviceGetUuid", &[(9020, ""), (11040, "_v2")]),
    ("cuEventElapsedTime", &[(2000, ""), (12080, "_v2")]),
    ("cuGetProcAddress", &[(11030, ""), (12000, "_v2")]),
    ("cuGraphAddDependencies", &[(10000, ""), (12030, "_v2")]),
    ("cuGraphAddKernelNode", &[(10000, ""), (12000, "_v2")]),
    ("cuGraphAddNode", &[(12020, ""), (12030, "_v2")]),
    ("cuGraphExecKernelNodeSetParams", &[(10010, ""), (12000, "_v2")]),
    ("cuGraphExecUpdate", &[(10020, ""), (12000, "_v2")]),
    ("cuGraphGetEdges", &[(10000, ""), (12030, "_v2")]),
    ("cuGraphInstantiate", &[(10000, "_v2"), (11000, "WithFlags")]),
    ("cuGraphKernelNodeGetParams", &[(10000, ""), (12000, "_v2")]),
    ("cuGraphKernelNodeSetParams", &[(10000, ""), (12000, "_v2")]),
    ("cuGraphNodeGetDependencies", &[(10000, ""), (12030, "_v2")]),
    ("cuGraphNodeGetDependentNodes", &[(10000, ""), (12030, "_v2")]),
    ("cuGraphRemoveDependencies", &[(10000, ""), (12030, "_v2")]),
    ("cuMemAdvise", &[(8000, ""), (12020, "_v2")]),
    ("cuMemPrefetchAsync", &[(8000, ""), (12020, "_v2")]),
    ("cuStreamBatchMemOp", &[(8000, ""), (11070, "_v2")]),
    ("cuStreamGetCaptureInfo", &[(10010, ""), (11030, "_v2"), (12030, "_v3")]),
    ("cuStreamGetCtx", &[(9020, ""), (12050, "_v2")]),
    ("cuStreamUpdateCaptureDependencies", &[(11030, ""), (12030, "_v2")]),
    ("cuStreamWaitValue32", &[(8000, ""), (11070, "_v2")]),
    ("cuStreamWriteValue32", &[(8000, ""), (11070, "_v2")]),
];

/// Flag of `cuGetProcAddress`: functions whose default stream is that of the thread.
const PER_THREAD: u64 = 2;

/// What `cuGetProcAddress` says beside the pointer (`CUdriverProcAddressQueryResult`).
const FOUND: c_uint = 0;
const NOT_FOUND: c_uint = 1;
const VERSION_TOO_LOW: c_uint = 2;

#[repr(C)]
struct Information {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, information: *mut Information) -> c_int;
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

/// This library, by the handle that the system has for it; 0 if it has none.
static SELF: LazyLock<usize> = LazyLock::new(|| {
    let null: *mut c_void = std::ptr::null_mut();
    let mut information =
        Information { file: null.cast(), base: null, symbol: null.cast(), address: null };
    let own: extern "C" fn(c_uint) -> cudarc::driver::sys::CUresult = crate::device::cuInit;
    // SAFETY: the address of a function of this library, and a place for what is known of it; the
    // file is one that is loaded.
    let handle = unsafe {
        match dladdr(own as *const c_void, &mut information) {
            0 => null,
            _ => dlopen(information.file, RTLD_LAZY | RTLD_NOLOAD),
        }
    };
    handle.expose_provenance()
});

/// A function of this library.
fn exported(name: &str) -> Option<u64> {
    let handle = std::ptr::with_exposed_provenance_mut::<c_void>(*SELF);
    let name = CString::new(name).ok()?;
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is this library's, the name ends with NUL.
    let found = unsafe { dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then(|| found.expose_provenance() as u64)
}

/// Looks a function up as of a version of CUDA; else says why there is none.
fn look_up(name: &str, version: c_int, flags: u64) -> Result<u64, c_uint> {
    if !name.starts_with("cu") {
        return Err(NOT_FOUND);
    }
    // A suffix is part of the only function of a name, or came after the version that is spoken.
    let chosen = match CHANGED.iter().find(|(known, _)| *known == name) {
        Some((_, all)) => {
            let fits = all.iter().rev().find(|(from, _)| *from <= version);
            vec![format!("{name}{}", fits.ok_or(VERSION_TOO_LOW)?.1)]
        }
        None => ["", "_v2", "_v3"].map(|suffix| format!("{name}{suffix}")).to_vec(),
    };
    let own = if flags & PER_THREAD != 0 { &["_ptsz", "_ptds", ""][..] } else { &[""] };
    let mut names = chosen.iter().flat_map(|name| own.iter().map(move |of| format!("{name}{of}")));
    names.find_map(|name| exported(&name)).ok_or(NOT_FOUND)
}

fn give(name: Text, to: Out<u64>, version: c_int, flags: u64, status: Out<c_uint>) -> Outcome {
    if to.is_null() || flags > 3 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    match look_up(name.str()?, version, flags) {
        Ok(found) => {
            status.offer(FOUND);
            to.put(found)
        }
        Err(why) => {
            status.offer(why);
            to.put(0)?;
            Err(CUDA_ERROR_NOT_FOUND)
        }
    }
}

driver! {
    fn cuGetProcAddress(name: Text, to: Out<u64>, version: c_int, flags: u64) {
        give(name, to, version, flags, Out::null())
    }

    fn cuGetProcAddress_v2(
        name: Text,
        to: Out<u64>,
        version: c_int,
        flags: u64,
        status: Out<c_uint>,
    ) {
        give(name, to, version, flags, status)
    }

    // What drivers and NVIDIA's runtime library agree on between themselves is in no document, and
    // the library checks by it that a driver is NVIDIA's: a program that is linked with it does not
    // begin here, one that calls the driver does.
    fn cuGetExportTable(table: Out<u64>, id: In<[u8; 16]>) {
        let id = id.get()?;
        tell(|| format!("cuGetExportTable has no table {:032x}", u128::from_be_bytes(id)));
        table.put(0)?;
        Err(CUDA_ERROR_NOT_FOUND)
    }
}
