//! What the environment says of the GPU. One test, since it is read once.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the interface of the CUDA driver")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "each calls the driver as its document says")]
#![expect(dead_code, reason = "a part of what the tests of the interface use")]

#[path = "api/driver.rs"]
mod driver;

use driver::{Driver, call};

/// Reads shared memory that nobody wrote.
const UNWRITTEN: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry unwritten(.param .u64 value) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    .shared .align 4 .b8 room[4];
    ld.param.u64 %rd1, [value];
    ld.shared.u32 %r1, [room];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

#[test]
fn the_device_passes_for_another_and_findings_are_reported() {
    // SAFETY: the only test of this process, and its first act.
    unsafe {
        std::env::set_var("KILN_SIM_GPU", "T4");
        std::env::set_var("KILN_SIM_ON_FINDING", "report");
        std::env::set_var("KILN_SIM_CHECKS", "uninitialised,shared");
    }
    let driver = Driver::open();
    let attribute = |which: u32| {
        let mut value = -7;
        assert_eq!(call!(driver, cuDeviceGetAttribute(&mut value, which, 0_i32)), 0);
        value
    };
    // Capability, SMs, threads of an SM, clusters, shared memory of a block, and what is reserved.
    let known = [75, 76, 16, 39, 120, 97, 111].map(attribute);
    assert_eq!(known, [7, 5, 40, 1024, 0, 64 << 10, 0]);
    let mut name = [0_u8; 64];
    assert_eq!(call!(driver, cuDeviceGetName(name.as_mut_ptr(), 64_i32, 0_i32)), 0);
    assert!(name.starts_with(b"Kiln simulated T4\0"));

    let module = driver.load(UNWRITTEN);
    let unwritten = driver.kernel(module, "unwritten");
    let most = (64 << 10) - 4;
    assert_eq!(call!(driver, cuFuncSetAttribute(unwritten, 8_u32, most)), 0);
    assert_eq!(call!(driver, cuFuncSetAttribute(unwritten, 8_u32, most + 1)), 1);
    // It is told of, and goes on.
    let address = driver.alloc(4);
    assert_eq!(driver.launch(unwritten, 1, 0, &[address]), 0);
    assert_eq!(call!(driver, cuCtxSynchronize()), 0);
    assert_eq!(driver.words(address, 1), [0]);
}
