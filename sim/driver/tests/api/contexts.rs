//! Contexts, current on a thread and not.

use crate::code::*;
use crate::driver::{Driver, call};

fn current(driver: &Driver) -> u64 {
    let mut context = 7_u64;
    assert_eq!(call!(driver, cuCtxGetCurrent(&mut context)), SUCCESS);
    context
}

#[test]
fn contexts_are_stacked() {
    let driver = Driver::open();
    let primary = current(&driver);
    let (mut one, mut popped) = (0_u64, 0_u64);
    assert_eq!(call!(driver, cuCtxCreate_v2(&mut one, 4_u32, 0_i32)), SUCCESS);
    assert_eq!(current(&driver), one);
    let mut flags = 0_u32;
    assert_eq!(call!(driver, cuCtxGetFlags(&mut flags)), SUCCESS);
    assert_eq!(flags, 4);
    assert_eq!(call!(driver, cuCtxPushCurrent_v2(primary)), SUCCESS);
    assert_eq!(current(&driver), primary);
    assert_eq!(call!(driver, cuCtxPopCurrent_v2(&mut popped)), SUCCESS);
    assert_eq!((popped, current(&driver)), (primary, one));
    let (mut version, mut device) = (0_u32, 7_i32);
    assert_eq!(call!(driver, cuCtxGetApiVersion(one, &mut version)), SUCCESS);
    assert_eq!(version, 3020);
    assert_eq!(call!(driver, cuCtxGetDevice(&mut device)), SUCCESS);
    assert_eq!(device, 0);
    // What it allocated goes with it.
    let address = driver.alloc(64);
    assert_eq!(call!(driver, cuCtxSynchronize()), SUCCESS);
    assert_eq!(call!(driver, cuCtxDestroy_v2(one)), SUCCESS);
    assert_eq!(current(&driver), primary);
    assert_eq!(call!(driver, cuMemFree_v2(address)), INVALID_VALUE);
    assert_eq!(call!(driver, cuCtxDestroy_v2(one)), INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxPushCurrent_v2(one)), INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxSetCurrent(one)), INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxCreate_v2(&mut one, 0_u32, 1_i32)), INVALID_DEVICE);
    assert_eq!(call!(driver, cuCtxCreate_v2(&mut one, 3_u32, 0_i32)), INVALID_VALUE);
}

#[test]
fn a_thread_without_a_context_is_told_so() {
    let driver = Driver::open();
    let primary = current(&driver);
    assert_eq!(call!(driver, cuCtxSetCurrent(0_u64)), SUCCESS);
    let mut address = 0_u64;
    assert_eq!(call!(driver, cuMemAlloc_v2(&mut address, 16_usize)), INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxSynchronize()), INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxPopCurrent_v2(&mut address)), INVALID_CONTEXT);
    assert_eq!(call!(driver, cuCtxSetCurrent(primary)), SUCCESS);
}

#[test]
fn the_primary_context_is_counted() {
    let driver = Driver::open();
    let (mut flags, mut active) = (7_u32, 7_i32);
    assert_eq!(call!(driver, cuDevicePrimaryCtxGetState(0_i32, &mut flags, &mut active)), SUCCESS);
    assert_eq!((flags, active), (0, 1));
    assert_eq!(call!(driver, cuDevicePrimaryCtxSetFlags_v2(0_i32, 0xffff_u32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuDevicePrimaryCtxSetFlags_v2(0_i32, 1_u32)), SUCCESS);
    // A reset frees what the context has, and does not end it.
    let address = driver.alloc(64);
    assert_eq!(call!(driver, cuDevicePrimaryCtxReset_v2(0_i32)), SUCCESS);
    assert_eq!(call!(driver, cuMemFree_v2(address)), INVALID_VALUE);
    let address = driver.alloc(64);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(call!(driver, cuDevicePrimaryCtxRelease_v2(1_i32)), INVALID_DEVICE);
}

/// Only this test allocates in kernels: the heap is the device's.
#[test]
fn the_heap_is_sized_before_it_is_used() {
    const HEAP: u32 = 2;
    let driver = Driver::open();
    let module = driver.load(include_str!("../../../tests/cuda/heap.sm_80.ptx"));
    let exhaust = driver.kernel(module, "exhaust");
    let mut value = 0_usize;
    assert_eq!(call!(driver, cuCtxGetLimit(&mut value, HEAP)), SUCCESS);
    assert_eq!(value, 8 << 20);
    assert_eq!(call!(driver, cuCtxSetLimit(HEAP, 1_usize << 16)), SUCCESS);
    let out = driver.alloc(4);
    assert_eq!(driver.launch(exhaust, 1, 0, &[out, 4096, 100]), SUCCESS);
    assert_eq!(driver.words(out, 1), [16]);
    assert_eq!(call!(driver, cuCtxSetLimit(HEAP, 1_usize << 20)), INVALID_VALUE);
    assert_eq!(call!(driver, cuCtxGetLimit(&mut value, HEAP)), SUCCESS);
    assert_eq!(value, 1 << 16);
}

#[test]
fn limits_and_preferences_are_kept() {
    let driver = Driver::open();
    let mut value = 0_usize;
    assert_eq!(call!(driver, cuCtxGetLimit(&mut value, 0_u32)), SUCCESS);
    assert_eq!(value, 1024);
    assert_eq!(call!(driver, cuCtxSetLimit(0_u32, 4096_usize)), SUCCESS);
    assert_eq!(call!(driver, cuCtxGetLimit(&mut value, 0_u32)), SUCCESS);
    assert_eq!(value, 4096);
    assert_eq!(call!(driver, cuCtxGetLimit(&mut value, 99_u32)), UNSUPPORTED_LIMIT);
    let mut config = 7_u32;
    assert_eq!(call!(driver, cuCtxSetCacheConfig(2_u32)), SUCCESS);
    assert_eq!(call!(driver, cuCtxGetCacheConfig(&mut config)), SUCCESS);
    assert_eq!(config, 2);
    assert_eq!(call!(driver, cuCtxSetCacheConfig(9_u32)), INVALID_VALUE);
    let (mut least, mut greatest) = (7, 7);
    assert_eq!(call!(driver, cuCtxGetStreamPriorityRange(&mut least, &mut greatest)), SUCCESS);
    assert_eq!((least, greatest), (0, -5));
    assert_eq!(call!(driver, cuProfilerStart()), SUCCESS);
    assert_eq!(call!(driver, cuProfilerStop()), SUCCESS);
}
