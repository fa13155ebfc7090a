//! Programs in C, compiled and linked as those of others are, on the simulated GPU.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the loader's functions")]

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libloading::os::unix::Library;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// Every function of NVIDIA's libraries, with the versions that have it.
const FUNCTIONS: &str = include_str!("functions.txt");

fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// A folder with the libraries by the names that programs ask for, and one of its own for a test.
fn folder(test: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix(test).tempdir().unwrap();
    for (name, file) in [
        ("libcuda.so.1", "libkiln_sim_driver.so"),
        ("libcudart.so.12", "libkiln_sim_runtime.so"),
        ("libcudart.so.13", "libkiln_sim_runtime.so"),
    ] {
        std::os::unix::fs::symlink(built(file), folder.path().join(name)).unwrap();
    }
    folder
}

/// Compiles a program, and links it with a library.
fn compile(folder: &Path, name: &str, library: &Path) -> PathBuf {
    let program = folder.join(name);
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-O1"])
        .args(["-pthread", "-o"])
        .arg(&program)
        .arg(format!("{PROGRAMS}/{name}.c"))
        .arg(library)
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, libraries: &Path, environment: &[(&str, &str)]) -> Output {
    Command::new(program)
        .env("LD_LIBRARY_PATH", libraries)
        .env("KILN_SIM_ON_FINDING", "fail")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// What a program said, which must have ended well.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {text}", output.status);
    text
}

fn runs(name: &str) -> String {
    let folder = folder(name);
    let program = compile(folder.path(), name, &folder.path().join("libcudart.so.13"));
    said(&run(&program, folder.path(), &[]))
}

#[test]
fn memory_is_of_every_kind() {
    let text = runs("memory");
    assert!(text.contains("failed to copy from 0x"), "{text}");
    assert!(text.contains("not memory of the host"), "{text}");
}

#[test]
fn kernels_run_by_every_way() {
    let text = runs("kernels");
    for why in [
        "the fat binary has no PTX: the simulated GPU is sm_90 and runs PTX; compile with \
         `-gencode arch=compute_90,code=compute_90`",
        "the fat binary has PTX for sm_130 only",
        "the fat binary has PTX for sm_80 only",
        "CUDA_ERROR_INVALID_PTX: ptx line 4",
    ] {
        assert!(text.contains(why), "{why}: {text}");
    }
}

/// PTX of the latest architecture that each GPU takes.
#[test]
fn kernels_run_on_every_class_of_gpu() {
    let folder = folder("classes");
    let program = compile(folder.path(), "threads", &folder.path().join("libcudart.so.12"));
    for gpu in ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"] {
        said(&run(&program, folder.path(), &[("KILN_SIM_GPU", gpu)]));
    }
}

#[test]
fn errors_are_kept_and_given_once() {
    let text = runs("errors");
    assert!(text.contains("kiln-sim-runtime: cudaMallocArray is not supported"), "{text}");
    assert!(text.contains("store of 4 bytes"), "{text}");
}

#[test]
fn streams_events_and_captures() {
    assert_eq!(runs("streams"), "");
}

#[test]
fn properties_have_both_layouts() {
    assert_eq!(runs("properties"), "");
}

#[test]
fn without_a_driver_calls_say_so() {
    let folder = folder("no_driver");
    let program = compile(folder.path(), "no_driver", &folder.path().join("libcudart.so.13"));
    std::fs::remove_file(folder.path().join("libcuda.so.1")).unwrap();
    // Of a machine with a driver of its own nothing is learnt.
    // SAFETY: what is loaded is a driver, which runs nothing when it is.
    let found = ["libcuda.so.1", "libcuda.so"].map(|name| unsafe { Library::new(name) }.is_ok());
    if found.contains(&true) {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    said(&run(&program, folder.path(), &[]));
}

/// Programs are linked with NVIDIA's libraries, here with stand-ins of the same names and versions
/// that have no code.
#[test]
fn programs_have_the_functions_of_their_version() {
    for version in ["12", "13"] {
        let folder = folder("version");
        let own = tempfile::tempdir().unwrap();
        let library = own.path().join(format!("libcudart.so.{version}"));
        let (code, map) = (own.path().join("stub.c"), own.path().join("stub.map"));
        let names = FUNCTIONS.lines().filter(|line| line.contains(&format!(" {version}")));
        let names = names.map(|line| line.split(' ').next().unwrap());
        std::fs::write(&code, names.map(|of| format!("void {of}() {{}}\n")).collect::<String>())
            .unwrap();
        std::fs::write(&map, format!("libcudart.so.{version} {{ global: *; }};\n")).unwrap();
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(&library)
            .arg(&code)
            .arg(format!("-Wl,-soname,libcudart.so.{version}"))
            .arg(format!("-Wl,--version-script={}", map.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let program = compile(own.path(), &format!("version_{version}"), &library);
        // Every call is bound when the program starts; the loader would warn of a version that
        // the library lacks.
        let text = said(&run(&program, folder.path(), &[("LD_BIND_NOW", "1")]));
        assert_eq!(text, "");
    }
}

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *const c_void;
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *const c_void;
}

#[test]
fn every_function_is_there() {
    // SAFETY: the library runs nothing when it is loaded.
    let library = unsafe { Library::new(built("libkiln_sim_runtime.so")) }.unwrap();
    let handle = library.into_raw();
    let find = |name: &str, version: &str| {
        let text = |text: String| CString::new(text).unwrap();
        let (name, version) = (text(name.into()), text(format!("libcudart.so.{version}")));
        // SAFETY: a loaded library, and texts that end with NUL.
        let own = unsafe { dlvsym(handle, name.as_ptr(), version.as_ptr()) };
        // What all versions have alike has none.
        // SAFETY: as above.
        if own.is_null() { unsafe { dlsym(handle, name.as_ptr()) } } else { own }
    };
    let mut differ = Vec::new();
    for line in FUNCTIONS.lines() {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let found: Vec<_> = words.map(|version| find(name, version)).collect();
        assert!(!found.is_empty() && found.iter().all(|at| !at.is_null()), "{line}");
        if found.len() == 2 && found[0] != found[1] {
            differ.push(name);
        }
    }
    assert_eq!(
        differ,
        [
            "cudaGetDriverEntryPoint",
            "cudaGetDriverEntryPoint_ptsz",
            "cudaMemAdvise",
            "cudaMemPrefetchAsync",
            "cudaMemPrefetchAsync_ptsz",
            "cudaRuntimeGetVersion",
            "cudaStreamGetCaptureInfo",
            "cudaStreamGetCaptureInfo_ptsz",
        ]
    );
}
