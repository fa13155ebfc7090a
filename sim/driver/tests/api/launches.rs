//! Launches of every form, and occupancy.

use std::ffi::c_void;
use std::ptr;

use crate::code::*;
use crate::driver::{ADD_ONE, Driver, call};

#[repr(C)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

#[repr(C)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: u64,
    attributes: *const Attribute,
    count: u32,
}

#[test]
fn kernels_are_launched_in_every_form() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let add_one = driver.kernel(module, "add_one");
    let address = driver.alloc(128);
    driver.write(address, &[0; 128]);
    let none: *const c_void = ptr::null();
    let values = [ptr::from_ref(&address)];
    assert_eq!(driver.launch(add_one, 32, 0, &[address]), SUCCESS);
    // Parameters in a buffer: pointer, size, end.
    let mut bytes = 8_usize;
    let buffer: [*const c_void; 5] = [
        ptr::without_provenance(1),
        ptr::from_ref(&address).cast(),
        ptr::without_provenance(2),
        ptr::from_ref(&bytes).cast(),
        none,
    ];
    let extra = buffer.as_ptr();
    let shape = |threads: u32, values: *const c_void, extra: *const c_void| {
        call!(
            driver,
            cuLaunchKernel(
                add_one, 1_u32, 1_u32, 1_u32, threads, 1_u32, 1_u32, 0_u32, 0_u64, values, extra
            )
        )
    };
    assert_eq!(shape(32, none, extra.cast()), SUCCESS);
    bytes = 4;
    assert_eq!(shape(32, none, extra.cast()), INVALID_VALUE);
    assert_eq!(bytes, 4);
    // All blocks at once.
    let cooperative = |blocks: u32| {
        let all = values.as_ptr();
        call!(
            driver,
            cuLaunchCooperativeKernel(
                add_one, blocks, 1_u32, 1_u32, 32_u32, 1_u32, 1_u32, 0_u32, 0_u64, all
            )
        )
    };
    assert_eq!(cooperative(1), SUCCESS);
    assert_eq!(cooperative(100_000), COOPERATIVE_LAUNCH_TOO_LARGE);
    let mut attribute = Attribute { id: 2, padding: 0, value: [1; 16] };
    let mut config = Config {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        stream: 2,
        attributes: &raw const attribute,
        count: 1,
    };
    let all = values.as_ptr();
    assert_eq!(call!(driver, cuLaunchKernelEx(&config, add_one, all, none)), SUCCESS);
    assert_eq!(driver.words(address, 32), [4; 32]);
    attribute.id = 999;
    config.attributes = &raw const attribute;
    assert_eq!(call!(driver, cuLaunchKernelEx(&config, add_one, all, none)), NOT_SUPPORTED);
    // Shapes that do not fit, and what is no kernel.
    assert_eq!(shape(1025, all.cast(), none), INVALID_VALUE);
    assert_eq!(shape(0, all.cast(), none), INVALID_VALUE);
    assert_eq!(driver.launch(7, 1, 0, &[address]), INVALID_HANDLE);
    assert_eq!(driver.launch(add_one, 1, 0x77, &[address]), INVALID_HANDLE);
    config.shared_bytes = 49 << 10;
    config.count = 0;
    assert_eq!(call!(driver, cuLaunchKernelEx(&config, add_one, all, none)), INVALID_VALUE);
    assert_eq!(driver.words(address, 32), [4; 32]);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
}

/// Waits for the launches before it.
const WAITS: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry add_one_behind(.param .u64 values) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    ld.param.u64 %rd1, [values];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r2, [%rd3];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%rd3], %r2;
    ret;
}
";

#[test]
fn launches_may_begin_before_those_before_them_have_ended() {
    let driver = Driver::open();
    let module = driver.load(WAITS);
    let kernel = driver.kernel(module, "add_one_behind");
    let address = driver.alloc(128);
    driver.write(address, &[0; 128]);
    let values = [ptr::from_ref(&address)];
    // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    let attribute = Attribute { id: 6, padding: 0, value: [1; 16] };
    let config = Config {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
        stream: 2,
        attributes: &raw const attribute,
        count: 1,
    };
    let (all, none) = (values.as_ptr(), ptr::null::<c_void>());
    for _ in 0..3 {
        assert_eq!(call!(driver, cuLaunchKernelEx(&config, kernel, all, none)), SUCCESS);
    }
    assert_eq!(driver.words(address, 32), [3; 32]);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
}

/// Adds the third word of what is aligned to 64 bytes to where the pointer behind it points.
const ALIGNED: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry aligned(.param .align 64 .b8 words[128], .param .u64 to) {
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [words+16];
    ld.global.u64 %rd3, [%rd1];
    add.u64 %rd4, %rd2, %rd3;
    st.global.u64 [%rd1], %rd4;
    ret;
}";

/// Parameters begin at 0x210 of the constant bank of sm_90, where what is aligned to 64 bytes can
/// not be: a buffer is a copy of the bank, a list of parameters is not.
#[test]
fn parameters_are_aligned_by_their_address() {
    let driver = Driver::open();
    let module = driver.load(ALIGNED);
    let function = driver.kernel(module, "aligned");
    let (mut offset, mut bytes) = (0_usize, 0_usize);
    for (index, expected) in [(0_usize, (0x30, 0x80)), (1, (0xb0, 8))] {
        let code = call!(driver, cuFuncGetParamInfo(function, index, &mut offset, &mut bytes));
        assert_eq!((code, (offset, bytes)), (SUCCESS, expected));
    }
    let address = driver.alloc(8);
    driver.write(address, &[0; 8]);
    let none: *const c_void = ptr::null();
    let launch = |values: *const c_void, extra: *const c_void| {
        call!(
            driver,
            cuLaunchKernel(
                function, 1_u32, 1_u32, 1_u32, 1_u32, 1_u32, 1_u32, 0_u32, 0_u64, values, extra
            )
        )
    };
    let words = [0_u64, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let values: [*const c_void; 2] = [words.as_ptr().cast(), ptr::from_ref(&address).cast()];
    assert_eq!(launch(values.as_ptr().cast(), none), SUCCESS);
    let in_buffer = |from: usize| {
        let buffer = [&vec![0; from][..], &words[..], &[address][..]].concat();
        let bytes = size_of_val(&buffer[..]);
        let extra: [*const c_void; 5] = [
            ptr::without_provenance(1),
            buffer.as_ptr().cast(),
            ptr::without_provenance(2),
            ptr::from_ref(&bytes).cast(),
            none,
        ];
        launch(none, extra.as_ptr().cast())
    };
    assert_eq!(in_buffer(0x30 / 8), SUCCESS);
    assert_eq!(in_buffer(0), INVALID_VALUE);
    assert_eq!(driver.words(address, 2), [10, 0]);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
}

#[test]
fn occupancy_is_that_of_an_sm() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let (add_one, scale) = (driver.kernel(module, "add_one"), driver.kernel(module, "scale"));
    let mut blocks = 0_i32;
    let mut fit = |function: u64, threads: i32, shared: usize| {
        let code = call!(
            driver,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads, shared)
        );
        (code, blocks)
    };
    // 2048 threads, 32 blocks, or 228 KiB with 1 KiB beside each block.
    assert_eq!(fit(add_one, 1024, 0), (SUCCESS, 2));
    assert_eq!(fit(add_one, 32, 0), (SUCCESS, 32));
    assert_eq!(fit(add_one, 128, 56 << 10), (SUCCESS, 4));
    assert_eq!(fit(add_one, 128, 228 << 10), (SUCCESS, 0));
    assert_eq!(fit(scale, 65, 0), (SUCCESS, 0));
    assert_eq!(fit(add_one, 0, 0).0, INVALID_VALUE);
    assert_eq!(fit(3, 32, 0).0, INVALID_HANDLE);
    let (mut grid, mut block, none) = (0_i32, 0_i32, ptr::null::<u8>());
    assert_eq!(
        call!(
            driver,
            cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, add_one, none, 0_usize, 0_i32)
        ),
        SUCCESS
    );
    assert_eq!((grid, block), (8, 1024));
    let mut bytes = 0_usize;
    assert_eq!(
        call!(driver, cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, add_one, 2_i32, 128_i32)),
        SUCCESS
    );
    assert_eq!(bytes, 113 << 10);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
}
