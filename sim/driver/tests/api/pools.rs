//! Stream-ordered memory.

use crate::code::*;
use crate::driver::{Driver, call};

#[test]
fn pools_count_what_they_gave() {
    let driver = Driver::open();
    let (mut pool, mut address, mut value) = (0_u64, 0_u64, 0_u64);
    assert_eq!(call!(driver, cuDeviceGetDefaultMemPool(&mut pool, 0_i32)), SUCCESS);
    let stream = driver.stream();
    assert_eq!(call!(driver, cuMemAllocAsync(&mut address, 1024_usize, stream)), SUCCESS);
    assert_eq!(call!(driver, cuMemPoolGetAttribute(pool, 7_u32, &mut value)), SUCCESS);
    assert_eq!(value, 1024);
    driver.write(address, &[3; 16]);
    assert_eq!(call!(driver, cuMemFreeAsync(address, stream)), SUCCESS);
    assert_eq!(call!(driver, cuMemPoolGetAttribute(pool, 7_u32, &mut value)), SUCCESS);
    assert_eq!(value, 0);
    assert_eq!(call!(driver, cuMemPoolGetAttribute(pool, 8_u32, &mut value)), SUCCESS);
    assert_eq!(value, 1024);
    assert_eq!(call!(driver, cuMemFreeAsync(address, stream)), INVALID_VALUE);
    let threshold = 1_u64 << 20;
    assert_eq!(call!(driver, cuMemPoolSetAttribute(pool, 4_u32, &threshold)), SUCCESS);
    assert_eq!(call!(driver, cuMemPoolGetAttribute(pool, 4_u32, &mut value)), SUCCESS);
    assert_eq!(value, threshold);
    assert_eq!(call!(driver, cuMemPoolGetAttribute(pool, 99_u32, &mut value)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemPoolTrimTo(pool, 0_usize)), SUCCESS);
    assert_eq!(call!(driver, cuMemPoolDestroy(pool)), INVALID_VALUE);
    assert_eq!(call!(driver, cuStreamDestroy_v2(stream)), SUCCESS);
}

#[test]
fn a_pool_of_ones_own_takes_its_memory_with_it() {
    let driver = Driver::open();
    let (mut pool, mut address) = (0_u64, 0_u64);
    // Pinned memory of device 0, not to be exported.
    let mut properties = [0_u32; 22];
    (properties[0], properties[2]) = (1, 1);
    assert_eq!(call!(driver, cuMemPoolCreate(&mut pool, &properties)), SUCCESS);
    assert_eq!(
        call!(driver, cuMemAllocFromPoolAsync(&mut address, 64_usize, pool, 0_u64)),
        SUCCESS
    );
    assert_eq!(call!(driver, cuMemPoolDestroy(pool)), SUCCESS);
    assert_eq!(call!(driver, cuMemPoolDestroy(pool)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2(address)), INVALID_VALUE);
    properties[1] = 1;
    assert_eq!(call!(driver, cuMemPoolCreate(&mut pool, &properties)), NOT_SUPPORTED);
    properties[0] = 0;
    assert_eq!(call!(driver, cuMemPoolCreate(&mut pool, &properties)), INVALID_VALUE);
}
