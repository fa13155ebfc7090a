//! Linking of PTX.

use std::ffi::CStr;
use std::ptr;

use crate::code::*;
use crate::driver::{Driver, call};

/// Calls a function of another module, which has a variable of the same name as one here.
const CALLER: &str = "
.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 own = 30; // local to `caller`
.extern .func (.param .b32 result) other(.param .b32 value);
.visible .entry caller(.param .u64 values) {
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [values];
    ld.global.u32 %r1, [own];
    {
        .param .b32 value;
        .param .b32 result;
        st.param.b32 [value], %r1;
        call.uni (result), other, (value);
        ld.param.b32 %r2, [result];
    }
    st.global.u32 [%rd1], %r2;
    ret;
}
";
const CALLED: &str = "
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 own[4] = {12, 0, 0, 0};
.weak .func (.param .b32 result) twice(.param .b32 value) {
    .reg .b32 %r<2>;
    ld.param.b32 %r1, [value];
    st.param.b32 [result], %r1;
    ret;
}
.visible .func (.param .b32 result) other(.param .b32 value) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [value];
    ld.global.u32 %r2, [own];
    add.u32 %r3, %r1, %r2;
    st.param.b32 [result], %r3;
    ret;
}
";
/// The weak function once more.
const WEAK: &str = "
.version 7.0
.target sm_75
.address_size 64
.weak .func (.param .b32 result) twice(.param .b32 value) {
    .reg .b32 %r<2>;
    ld.param.b32 %r1, [value];
    st.param.b32 [result], %r1;
    ret;
}
";

fn add(driver: &Driver, state: u64, kind: u32, data: &[u8]) -> i32 {
    let none: *const u8 = ptr::null();
    let (start, bytes) = (data.as_ptr(), data.len());
    call!(driver, cuLinkAddData_v2(state, kind, start, bytes, c"x".as_ptr(), 0_u32, none, none))
}

/// `cuLinkAddData` has eight arguments, of which the last are options.
fn begin(driver: &Driver) -> u64 {
    let (mut state, none) = (0_u64, ptr::null::<u8>());
    assert_eq!(call!(driver, cuLinkCreate_v2(0_u32, none, none, &mut state)), SUCCESS);
    state
}

#[test]
fn modules_are_linked() {
    let driver = Driver::open();
    let state = begin(&driver);
    for text in [CALLER, CALLED, WEAK] {
        assert_eq!(add(&driver, state, 1, text.as_bytes()), SUCCESS);
    }
    let (mut image, mut bytes) = (ptr::null::<u8>(), 0_usize);
    assert_eq!(call!(driver, cuLinkComplete(state, &mut image, &mut bytes)), SUCCESS);
    let text = unsafe { CStr::from_ptr(image.cast()) };
    assert_eq!(text.to_bytes_with_nul().len(), bytes);
    let mut module = 0_u64;
    assert_eq!(call!(driver, cuModuleLoadData(&mut module, image)), SUCCESS);
    assert_eq!(call!(driver, cuLinkDestroy(state)), SUCCESS);
    assert_eq!(call!(driver, cuLinkDestroy(state)), INVALID_HANDLE);
    let address = driver.alloc(4);
    assert_eq!(driver.launch(driver.kernel(module, "caller"), 1, 0, &[address]), SUCCESS);
    assert_eq!(driver.words(address, 1), [42]);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
}

#[test]
fn what_cannot_be_linked_is_refused() {
    let driver = Driver::open();
    let state = begin(&driver);
    assert_eq!(add(&driver, state, 0, b"\x7fELF\x02\x01\x01\0"), NO_BINARY_FOR_GPU);
    assert_eq!(add(&driver, state, 9, CALLED.as_bytes()), INVALID_VALUE);
    assert_eq!(add(&driver, 1, 1, CALLED.as_bytes()), INVALID_HANDLE);
    // A function that is called and nowhere defined.
    assert_eq!(add(&driver, state, 1, CALLER.as_bytes()), SUCCESS);
    let (mut image, mut bytes) = (ptr::null::<u8>(), 0_usize);
    assert_eq!(call!(driver, cuLinkComplete(state, &mut image, &mut bytes)), INVALID_PTX);
    assert_eq!(call!(driver, cuLinkDestroy(state)), SUCCESS);
}
