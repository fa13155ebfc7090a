//! An environment that says nothing sensible of the GPU: there is none, with a reason.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the interface of the CUDA driver")]

use libloading::Library;

const INVALID_VALUE: i32 = 1;
const NOT_INITIALIZED: i32 = 3;

#[test]
fn a_gpu_that_nobody_knows_is_not_initialised() {
    // SAFETY: the only test of this process, and its first act.
    unsafe { std::env::set_var("KILN_SIM_GPU", "sm_1") };
    let test = std::env::current_exe().unwrap();
    // SAFETY: the library runs nothing when it is loaded; the functions are those of `cuda.h`.
    unsafe {
        let library = Library::new(test.with_file_name("libkiln_sim_driver.so")).unwrap();
        let init = library.get::<extern "C" fn(u32) -> i32>("cuInit").unwrap();
        assert_eq!(init(0), INVALID_VALUE);
        let count = library.get::<extern "C" fn(*mut i32) -> i32>("cuDeviceGetCount").unwrap();
        assert_eq!(count(&mut 0), NOT_INITIALIZED);
    }
}
