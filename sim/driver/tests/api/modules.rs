//! Modules, libraries, their kernels and variables.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::code::*;
use crate::driver::{ADD_ONE, Driver, call};

#[test]
fn modules_have_functions_and_variables() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let (mut function, mut again, mut count) = (0_u64, 0_u64, 0_u32);
    let name = c"add_one".as_ptr();
    assert_eq!(call!(driver, cuModuleGetFunction(&mut function, module, name)), SUCCESS);
    assert_eq!(call!(driver, cuModuleGetFunction(&mut again, module, name)), SUCCESS);
    assert_eq!(function, again);
    let none = c"none".as_ptr();
    assert_eq!(call!(driver, cuModuleGetFunction(&mut again, module, none)), NOT_FOUND);
    assert_eq!(call!(driver, cuModuleGetFunction(&mut again, 1_u64, name)), INVALID_HANDLE);
    assert_eq!(call!(driver, cuModuleGetFunctionCount(&mut count, module)), SUCCESS);
    assert_eq!(count, 2);
    let (mut address, mut bytes) = (0_u64, 0_usize);
    let name = c"counter".as_ptr();
    assert_eq!(
        call!(driver, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name)),
        SUCCESS
    );
    assert_eq!((bytes, driver.words(address, 4)), (16, vec![7, 8, 9, 10]));
    let name = c"offset".as_ptr();
    assert_eq!(
        call!(driver, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name)),
        SUCCESS
    );
    assert_eq!((bytes, driver.words(address, 1)), (4, vec![5]));
    assert_eq!(
        call!(driver, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, none)),
        NOT_FOUND
    );
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), INVALID_HANDLE);
    assert_eq!(driver.launch(function, 1, 0, &[address]), INVALID_HANDLE);
}

#[test]
fn libraries_have_kernels() {
    let driver = Driver::open();
    let (mut library, mut kernel, mut function, mut module) = (0_u64, 0_u64, 0_u64, 0_u64);
    let text = std::ffi::CString::new(ADD_ONE).unwrap();
    let none: *const u8 = ptr::null();
    assert_eq!(
        call!(
            driver,
            cuLibraryLoadData(&mut library, text.as_ptr(), none, none, 0_u32, none, none, 0_u32)
        ),
        SUCCESS
    );
    let name = c"scale".as_ptr();
    assert_eq!(call!(driver, cuLibraryGetKernel(&mut kernel, library, name)), SUCCESS);
    assert_eq!(call!(driver, cuKernelGetFunction(&mut function, kernel)), SUCCESS);
    assert_eq!(call!(driver, cuLibraryGetModule(&mut module, library)), SUCCESS);
    let address = driver.alloc(4);
    driver.write(address, &7_u32.to_le_bytes());
    assert_eq!(driver.launch(function, 1, 0, &[address, 6, 0]), SUCCESS);
    assert_eq!(driver.words(address, 1), [42]);
    // Its parameters, and what else is known of it.
    let (mut offset, mut bytes, mut value, mut count) = (0_usize, 0_usize, 0_i32, 0_usize);
    assert_eq!(
        call!(driver, cuKernelGetParamInfo(kernel, 2_usize, &mut offset, &mut bytes)),
        SUCCESS
    );
    assert_eq!((offset, bytes), (12, 2));
    assert_eq!(
        call!(driver, cuFuncGetParamInfo(function, 3_usize, &mut offset, &mut bytes)),
        INVALID_VALUE
    );
    assert_eq!(call!(driver, cuFuncGetParamCount(function, &mut count)), SUCCESS);
    assert_eq!(count, 3);
    for (which, expected) in [(0_u32, 64), (1, 512), (5, 75), (8, (48 << 10) - 512)] {
        assert_eq!(call!(driver, cuFuncGetAttribute(&mut value, which, function)), SUCCESS);
        assert_eq!(value, expected, "{which}");
    }
    assert_eq!(call!(driver, cuFuncGetAttribute(&mut value, 4_u32, function)), SUCCESS);
    assert!((8..=255).contains(&value), "{value} registers");
    assert_eq!(call!(driver, cuFuncGetAttribute(&mut value, 999_u32, function)), INVALID_VALUE);
    // More shared memory, to what a block may have.
    let most = (227 << 10) - 512_i32;
    assert_eq!(call!(driver, cuKernelSetAttribute(8_u32, most, kernel, 0_i32)), SUCCESS);
    assert_eq!(call!(driver, cuKernelSetAttribute(8_u32, most + 1, kernel, 0_i32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuKernelSetAttribute(8_u32, 1_i32, kernel, 1_i32)), INVALID_DEVICE);
    assert_eq!(call!(driver, cuKernelGetAttribute(&mut value, 8_u32, kernel, 0_i32)), SUCCESS);
    assert_eq!(value, most);
    assert_eq!(call!(driver, cuFuncSetAttribute(function, 0_u32, 1_i32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuFuncSetCacheConfig(function, 9_u32)), INVALID_VALUE);
    let mut text: *const c_char = ptr::null();
    assert_eq!(call!(driver, cuFuncGetName(&mut text, function)), SUCCESS);
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"scale");
    assert_eq!(call!(driver, cuLibraryUnload(library)), SUCCESS);
    assert_eq!(call!(driver, cuKernelGetFunction(&mut function, kernel)), INVALID_HANDLE);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
}

#[test]
fn images_that_are_not_ptx_are_refused() {
    let driver = Driver::open();
    let mut module = 0_u64;
    let mut load = |image: &[u8]| call!(driver, cuModuleLoadData(&mut module, image.as_ptr()));
    assert_eq!(load(b"\x7fELF\x02\x01\x01\0"), NO_BINARY_FOR_GPU);
    assert_eq!(load(b"\x01\x02\x03\x04\0"), INVALID_IMAGE);
    assert_eq!(load(b"\0"), INVALID_IMAGE);
    assert_eq!(load(b"int main() {}\0"), INVALID_PTX);
    assert_eq!(call!(driver, cuModuleLoadData(&mut module, ptr::null::<u8>())), INVALID_VALUE);
    let nowhere = c"/nowhere/at/all.ptx".as_ptr();
    assert_eq!(call!(driver, cuModuleLoad(&mut module, nowhere)), FILE_NOT_FOUND);
    // The log says where.
    let mut log = [1_u8; 64];
    let names = [5_u32, 6];
    let mut values = [log.as_mut_ptr().expose_provenance(), 64];
    let image = c".version 7.0\n.target sm_75\n.address_size 64\n.nonsense\n".as_ptr();
    assert_eq!(
        call!(
            driver,
            cuModuleLoadDataEx(&mut module, image, 2_u32, names.as_ptr(), values.as_mut_ptr())
        ),
        INVALID_PTX
    );
    let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert_eq!(text, "ptx line 4: unknown directive `.nonsense`");
    assert_eq!(values[1], text.len());
}
