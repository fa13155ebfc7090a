//! The simulator's instruction files on a GPU: what they say must hold there too.

#![expect(unsafe_code, reason = "launches go through the driver, a C library")]

#[path = "../../sim/tests/it/expectation.rs"]
mod expectation;

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DriverError, result, sys};
use expectation::{OUT_BYTES, Shape, expectations, files, shapes};

use crate::harness;

/// Whether a GPU of this compute capability (90 for 9.0) runs a file: it is for no newer one, and
/// for exactly this one if it names architecture-specific instructions (`sm_90a`).
fn fits(source: &str, capability: u32) -> bool {
    let target = source.lines().find_map(|line| line.strip_prefix(".target sm_")).unwrap();
    match target.strip_suffix('a') {
        Some(exact) => exact.parse() == Ok(capability),
        None => target.parse::<u32>().unwrap() <= capability,
    }
}

/// A module and its entry, compiled without optimisation: the driver would compute what follows
/// from constants by itself.
fn load(source: &str) -> Result<(sys::CUmodule, sys::CUfunction), DriverError> {
    let text = format!("{source}\0");
    let mut module = ptr::null_mut();
    let mut options = [sys::CUjit_option::CU_JIT_OPTIMIZATION_LEVEL];
    let mut values = [ptr::null_mut::<c_void>()];
    // SAFETY: the text ends with a zero, and the lists have one entry each.
    unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            text.as_ptr().cast(),
            1,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    }
    .result()?;
    // SAFETY: the module is loaded.
    let function = unsafe { result::module::get_function(module, c"test".into()) }?;
    Ok((module, function))
}

/// The buffer that a launch of the file leaves.
fn run(stream: &Arc<CudaStream>, source: &str, shape: Shape) -> Result<Vec<u8>, DriverError> {
    let (module, function) = load(source)?;
    let out = stream.alloc_zeros::<u8>(OUT_BYTES)?;
    let (mut address, _guard) = out.device_ptr(stream);
    let mut arguments = [(&raw mut address).cast::<c_void>()];
    let (grid, block) = ((shape.grid, 1, 1), (shape.block, 1, 1));
    // SAFETY: the entry has one parameter, an address of so many bytes.
    unsafe {
        result::launch_kernel(function, grid, block, 0, stream.cu_stream(), &mut arguments)?;
    }
    let bytes = stream.clone_dtoh(&out)?;
    // SAFETY: the copy has waited for the kernel.
    unsafe { result::module::unload(module) }?;
    Ok(bytes)
}

#[test]
fn files_hold_on_a_gpu() {
    if harness::kiln().device().kind() != "cuda" {
        eprintln!("skipped: no GPU to run the instruction files on");
        return;
    }
    let context = CudaContext::new(0).unwrap();
    let (major, minor) = context.compute_capability().unwrap();
    let stream = context.default_stream();
    let mut failures = Vec::new();
    for (name, source) in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("sim/tests/ptx")) {
        if !fits(&source, (major * 10 + minor) as u32) {
            eprintln!("skipped: {name} is for another GPU");
            continue;
        }
        for shape in shapes(&name, &source) {
            match run(&stream, &source, shape) {
                Err(error) => failures.push(format!("{name}.ptx: {error:?}")),
                Ok(bytes) => {
                    let found = expectations(&name, &source);
                    failures.extend(found.iter().filter_map(|wanted| wanted.check(&bytes, shape)));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}\n{} in all", failures.join("\n"), failures.len());
}
