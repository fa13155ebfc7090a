//! Entry points by name, the device, and texts of codes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use crate::code::*;
use crate::driver::{Call, Driver, call};

fn entry(driver: &Driver, name: &str, version: i32, flags: u64) -> (i32, *const c_void, u32) {
    let name = CString::new(name).unwrap();
    let (mut found, mut status) = (ptr::null::<c_void>(), 77_u32);
    let code =
        call!(driver, cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status));
    (code, found, status)
}

#[test]
fn functions_are_found_by_name_and_version() {
    let driver = Driver::open();
    let is = |name: &str, version, of: &str| {
        let (code, found, status) = entry(&driver, name, version, 0);
        assert_eq!((code, found, status), (SUCCESS, driver.function(of), 0), "{name} {version}");
    };
    is("cuInit", 2000, "cuInit");
    is("cuMemAlloc", 12000, "cuMemAlloc_v2");
    is("cuCtxSynchronize", 13000, "cuCtxSynchronize");
    is("cuCtxGetDevice", 13000, "cuCtxGetDevice");
    is("cuCtxCreate", 3020, "cuCtxCreate_v2");
    is("cuCtxCreate", 12000, "cuCtxCreate_v3");
    is("cuCtxCreate", 13000, "cuCtxCreate_v4");
    is("cuStreamGetCaptureInfo", 12000, "cuStreamGetCaptureInfo_v2");
    is("cuEventElapsedTime", 12000, "cuEventElapsedTime");
    is("cuEventElapsedTime", 12080, "cuEventElapsedTime_v2");
    is("cuGetProcAddress", 12000, "cuGetProcAddress_v2");
    is("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags");

    // With default streams of threads, where they make a difference.
    let per_thread = |name, of: &str| {
        assert_eq!(entry(&driver, name, 12000, 2).1, driver.function(of), "{name}");
    };
    per_thread("cuMemcpyHtoD", "cuMemcpyHtoD_v2_ptds");
    per_thread("cuLaunchKernel", "cuLaunchKernel_ptsz");
    per_thread("cuMemAlloc", "cuMemAlloc_v2");

    let null = ptr::null();
    assert_eq!(entry(&driver, "cuNoSuchFunction", 12000, 0), (NOT_FOUND, null, 1));
    assert_eq!(entry(&driver, "malloc", 12000, 0), (NOT_FOUND, null, 1));
    assert_eq!(entry(&driver, "cuGetProcAddress", 11000, 0), (NOT_FOUND, null, 2));
    assert_eq!(entry(&driver, "cuInit", 2000, 99).0, INVALID_VALUE);
    let mut found = null;
    let name = c"cuInit".as_ptr();
    assert_eq!(call!(driver, cuGetProcAddress(name, &mut found, 2000_i32, 0_u64)), SUCCESS);
    assert_eq!(found, driver.function("cuInit"));
    let nowhere: *mut u64 = ptr::null_mut();
    assert_eq!(call!(driver, cuGetProcAddress(name, nowhere, 2000_i32, 0_u64)), INVALID_VALUE);

    let (mut table, id) = (1_u64, [0_u8; 16]);
    assert_eq!(call!(driver, cuGetExportTable(&mut table, &id)), NOT_FOUND);
    assert_eq!(table, 0);
}

#[test]
fn what_is_not_there_is_refused() {
    let driver = Driver::open();
    for name in [
        "cuIpcGetMemHandle",
        "cuIpcOpenMemHandle_v2",
        "cuIpcGetEventHandle",
        "cuTexObjectCreate",
        "cuArrayCreate_v2",
        "cuMemCreate",
        "cuGreenCtxCreate",
        "cuImportExternalMemory",
    ] {
        let mut room = [0_u64; 16];
        let arguments = (room.as_mut_ptr(), 0_u64, 0_u64, 0_u64);
        assert_eq!(arguments.call(driver.function(name)), NOT_SUPPORTED, "{name}");
    }
}

#[test]
fn codes_have_names_and_texts() {
    let driver = Driver::open();
    let mut text: *const c_char = ptr::null();
    assert_eq!(call!(driver, cuGetErrorName(2_u32, &mut text)), SUCCESS);
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(call!(driver, cuGetErrorString(719_u32, &mut text)), SUCCESS);
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"unspecified launch failure");
    assert_eq!(call!(driver, cuGetErrorString(12345_u32, &mut text)), INVALID_VALUE);
    assert!(text.is_null());
}

#[test]
fn the_device_is_described() {
    let driver = Driver::open();
    let (mut version, mut count, mut device, mut bytes) = (0, 0, 7, 0_usize);
    assert_eq!(call!(driver, cuDriverGetVersion(&mut version)), SUCCESS);
    assert_eq!(version, 13000);
    assert_eq!(call!(driver, cuDeviceGetCount(&mut count)), SUCCESS);
    assert_eq!(count, 1);
    assert_eq!(call!(driver, cuDeviceGet(&mut device, 0_i32)), SUCCESS);
    assert_eq!(device, 0);
    assert_eq!(call!(driver, cuDeviceGet(&mut device, 1_i32)), INVALID_DEVICE);
    assert_eq!(call!(driver, cuDeviceTotalMem_v2(&mut bytes, 0_i32)), SUCCESS);
    assert_eq!(bytes, 8 << 30);
    let mut name = [1_u8; 64];
    assert_eq!(call!(driver, cuDeviceGetName(name.as_mut_ptr(), 5_i32, 0_i32)), SUCCESS);
    assert_eq!(&name[..6], b"Kiln\0\x01");
    let (mut one, mut other) = ([0_u8; 16], [1_u8; 16]);
    assert_eq!(call!(driver, cuDeviceGetUuid(&mut one, 0_i32)), SUCCESS);
    assert_eq!(call!(driver, cuDeviceGetUuid_v2(&mut other, 0_i32)), SUCCESS);
    assert_eq!(one, other);
    assert_eq!(call!(driver, cuDeviceGetUuid_v2(&mut other, 2_i32)), INVALID_DEVICE);
    let mut bus = [0_u8; 16];
    assert_eq!(call!(driver, cuDeviceGetPCIBusId(bus.as_mut_ptr(), 16_i32, 0_i32)), SUCCESS);
    assert_eq!(call!(driver, cuDeviceGetByPCIBusId(&mut device, bus.as_ptr())), SUCCESS);
    let text = c"0000:01:00.0".as_ptr();
    assert_eq!(call!(driver, cuDeviceGetByPCIBusId(&mut device, text)), INVALID_DEVICE);
    let mut can = 7;
    assert_eq!(call!(driver, cuDeviceCanAccessPeer(&mut can, 0_i32, 0_i32)), SUCCESS);
    assert_eq!(can, 0);
}

#[test]
fn every_attribute_has_a_value() {
    let driver = Driver::open();
    let attribute = |which: u32| {
        let mut value = -7;
        (call!(driver, cuDeviceGetAttribute(&mut value, which, 0_i32)), value)
    };
    // Threads of a block, a warp, SMs, threads of an SM, capability, cooperative launches,
    // clusters.
    for (which, value) in
        [(1, 1024), (10, 32), (16, 4), (39, 2048), (75, 9), (76, 0), (95, 1), (120, 1), (20, 0)]
    {
        assert_eq!(attribute(which), (SUCCESS, value), "{which}");
    }
    for which in 1..=130 {
        let (code, value) = attribute(which);
        assert!(code == SUCCESS && value >= 0, "{which}: {code}, {value}");
    }
    assert_eq!(attribute(0).0, INVALID_VALUE);
    assert_eq!(attribute(1000).0, INVALID_VALUE);
    let nowhere: *mut i32 = ptr::null_mut();
    assert_eq!(call!(driver, cuDeviceGetAttribute(nowhere, 1_u32, 0_i32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuInit(1_u32)), INVALID_VALUE);
}
