//! What a device says after a kernel has failed on it. One test, since nothing works from then on.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the interface of the CUDA driver")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "each calls the driver as its document says")]
#![expect(dead_code, reason = "a part of what the tests of the interface use")]

#[path = "api/driver.rs"]
mod driver;

use driver::{ADD_ONE, Driver, call};

const ILLEGAL_ADDRESS: i32 = 700;

#[test]
fn who_waits_hears_of_a_failure_and_so_does_everybody_after() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let add_one = driver.kernel(module, "add_one");
    let address = driver.alloc(8);
    driver.write(address, &[0; 8]);
    // Two words, three threads: the launch itself is fine.
    assert_eq!(driver.launch(add_one, 3, 0, &[address]), 0);
    for _ in 0..2 {
        assert_eq!(call!(driver, cuStreamSynchronize(0_u64)), ILLEGAL_ADDRESS);
    }
    let mut other = 0_u64;
    assert_eq!(call!(driver, cuMemAlloc_v2(&mut other, 8_usize)), ILLEGAL_ADDRESS);
    assert_eq!(call!(driver, cuMemFree_v2(address)), ILLEGAL_ADDRESS);
    assert_eq!(driver.launch(add_one, 1, 0, &[address]), ILLEGAL_ADDRESS);
    // What asks nothing of the device answers.
    let (mut context, mut count) = (0_u64, 0_i32);
    assert_eq!(call!(driver, cuCtxGetCurrent(&mut context)), 0);
    assert_eq!(call!(driver, cuDeviceGetCount(&mut count)), 0);
    assert!(context != 0 && count == 1);
}
