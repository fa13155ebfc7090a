//! Memory: allocated, copied, filled, asked about.

use std::ffi::c_void;
use std::ptr;

use crate::code::*;
use crate::driver::{ADD_ONE, Driver, call};

#[test]
fn allocations_are_freed_once() {
    let driver = Driver::open();
    let (mut free, mut total, mut after) = (0_usize, 0_usize, 0_usize);
    assert_eq!(call!(driver, cuMemGetInfo_v2(&mut free, &mut total)), SUCCESS);
    let address = driver.alloc(1 << 20);
    assert_eq!(call!(driver, cuMemGetInfo_v2(&mut after, &mut total)), SUCCESS);
    assert_eq!((total, free - after), (8 << 30, 1 << 20));
    let (mut base, mut bytes) = (0_u64, 0_usize);
    let inside = address + 1000;
    assert_eq!(call!(driver, cuMemGetAddressRange_v2(&mut base, &mut bytes, inside)), SUCCESS);
    assert_eq!((base, bytes), (address, 1 << 20));
    assert_eq!(call!(driver, cuMemFree_v2(address + 4)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    assert_eq!(call!(driver, cuMemFree_v2(address)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2(0_u64)), SUCCESS);
    assert_eq!(call!(driver, cuMemGetAddressRange_v2(&mut base, &mut bytes, address)), NOT_FOUND);
    assert_eq!(call!(driver, cuMemAlloc_v2(&mut base, 0_usize)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemAlloc_v2(&mut base, 9_usize << 30)), 2);
    let mut pitch = 0_usize;
    let sizes = (100_usize, 3_usize);
    assert_eq!(
        call!(driver, cuMemAllocPitch_v2(&mut base, &mut pitch, sizes.0, sizes.1, 4_u32)),
        SUCCESS
    );
    assert_eq!(pitch, 512);
    assert_eq!(call!(driver, cuMemFree_v2(base)), SUCCESS);
    assert_eq!(
        call!(driver, cuMemAllocPitch_v2(&mut base, &mut pitch, sizes.0, sizes.1, 3_u32)),
        INVALID_VALUE
    );
}

#[test]
fn copies_go_every_way() {
    let driver = Driver::open();
    let (one, other) = (driver.alloc(64), driver.alloc(64));
    let data: Vec<u8> = (0..64).collect();
    driver.write(one, &data);
    assert_eq!(call!(driver, cuMemcpyDtoD_v2(other, one, 64_usize)), SUCCESS);
    assert_eq!(driver.read(other, 64), data);
    // One address space: each side by its address alone.
    let mut back = [0_u8; 16];
    assert_eq!(call!(driver, cuMemcpy(back.as_mut_ptr(), other + 8, 16_usize)), SUCCESS);
    assert_eq!(back[..], data[8..24]);
    assert_eq!(call!(driver, cuMemcpyAsync(one, back.as_ptr(), 16_usize, 0_u64)), SUCCESS);
    assert_eq!(driver.read(one, 16), data[8..24]);
    let mut host = [0_u8; 16];
    assert_eq!(call!(driver, cuMemcpy(host.as_mut_ptr(), back.as_ptr(), 16_usize)), SUCCESS);
    assert_eq!(host, back);
    // Beyond an allocation, and from where none is.
    assert_eq!(call!(driver, cuMemcpyDtoD_v2(other + 1, one, 64_usize)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemcpyHtoD_v2(one, ptr::null::<u8>(), 4_usize)), INVALID_VALUE);
    let (to, big) = (host.as_mut_ptr(), 1_usize << 40);
    assert_eq!(call!(driver, cuMemcpyHtoD_v2(one, to, big)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemcpyDtoD_v2(one, other, usize::MAX)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemsetD32_v2(one, 1_u32, usize::MAX)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemsetD32_v2(one, 0x0102_0304_u32, 17_usize)), INVALID_VALUE);
    assert_ne!(driver.read(one, 4), [4, 3, 2, 1]);
    let at = host.as_mut_ptr();
    assert_eq!(call!(driver, cuMemHostRegister_v2(at, usize::MAX, 0_u32)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemcpyDtoH_v2(to, one, big)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemcpyDtoH_v2(to, 0x1234_u64, 4_usize)), INVALID_VALUE);
    let stream = 0x77_u64;
    assert_eq!(call!(driver, cuMemcpyHtoDAsync_v2(one, to, 4_usize, stream)), INVALID_HANDLE);
    for address in [one, other] {
        assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
    }
}

/// A side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side2d {
    x: usize,
    y: usize,
    memory: u32,
    host: *const c_void,
    device: u64,
    array: u64,
    pitch: usize,
}

#[repr(C)]
struct Plane {
    from: Side2d,
    to: Side2d,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Side3d {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory: u32,
    host: *const c_void,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

#[repr(C)]
struct Volume {
    from: Side3d,
    to: Side3d,
    width: usize,
    height: usize,
    depth: usize,
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

#[test]
fn planes_are_copied_row_by_row() {
    let driver = Driver::open();
    let address = driver.alloc(256);
    assert_eq!(call!(driver, cuMemsetD8_v2(address, 0_u8, 256_usize)), SUCCESS);
    // 3 rows of 4 bytes, from the second column of rows of 6, to the third of rows of 16.
    let data: Vec<u8> = (0..18).collect();
    let host = data.as_ptr().cast();
    let from = Side2d { x: 1, y: 0, memory: HOST, host, device: 0, array: 0, pitch: 6 };
    let to = Side2d {
        x: 2,
        y: 1,
        memory: DEVICE,
        host: ptr::null(),
        device: address,
        array: 0,
        pitch: 16,
    };
    let plane = Plane { from, to, width: 4, height: 3 };
    assert_eq!(call!(driver, cuMemcpy2D_v2(&plane)), SUCCESS);
    let mut expected = vec![0_u8; 64];
    for row in 0..3 {
        for column in 0..4 {
            expected[(row + 1) * 16 + 2 + column] = data[row * 6 + 1 + column];
        }
    }
    assert_eq!(driver.read(address, 64), expected);
    let narrow = Plane { from: Side2d { pitch: 3, ..from }, to, width: 4, height: 3 };
    assert_eq!(call!(driver, cuMemcpy2D_v2(&narrow)), INVALID_VALUE);
    let array = Plane { from: Side2d { memory: ARRAY, ..from }, to, width: 4, height: 3 };
    assert_eq!(call!(driver, cuMemcpy2D_v2(&array)), NOT_SUPPORTED);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
}

#[test]
fn volumes_are_copied_plane_by_plane() {
    let driver = Driver::open();
    let address = driver.alloc(24);
    let data: Vec<u8> = (0..60).collect();
    let side = Side3d {
        x: 0,
        y: 0,
        z: 0,
        level: 0,
        memory: HOST,
        host: data.as_ptr().cast(),
        device: 0,
        array: 0,
        reserved: 0,
        pitch: 5,
        height: 4,
    };
    // 2 planes of 3 rows of 4 bytes from 3 planes of 4 rows of 5, one in from each edge.
    let from = Side3d { x: 1, y: 1, z: 1, ..side };
    let to = Side3d { memory: DEVICE, device: address, pitch: 4, height: 3, ..side };
    let volume = Volume { from, to, width: 4, height: 3, depth: 2 };
    assert_eq!(call!(driver, cuMemcpy3D_v2(&volume)), SUCCESS);
    let mut expected = Vec::new();
    for z in 1..3 {
        for y in 1..4 {
            expected.extend(&data[z * 20 + y * 5 + 1..][..4]);
        }
    }
    assert_eq!(driver.read(address, 24), expected);
    let far = Volume { from: Side3d { z: usize::MAX, ..to }, to, width: 4, height: 3, depth: 2 };
    assert_eq!(call!(driver, cuMemcpy3D_v2(&far)), INVALID_VALUE);
    let level = Volume { from: Side3d { level: 1, ..from }, to, width: 4, height: 3, depth: 2 };
    assert_eq!(call!(driver, cuMemcpy3D_v2(&level)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
}

#[test]
fn fills_repeat_values_of_each_size() {
    let driver = Driver::open();
    let address = driver.alloc(64);
    assert_eq!(call!(driver, cuMemsetD32_v2(address, 0x0403_0201_u32, 16_usize)), SUCCESS);
    assert_eq!(driver.read(address + 4, 6), [1, 2, 3, 4, 1, 2]);
    assert_eq!(call!(driver, cuMemsetD16_v2(address + 2, 0xbbaa_u16, 2_usize)), SUCCESS);
    assert_eq!(driver.read(address, 8), [1, 2, 0xaa, 0xbb, 0xaa, 0xbb, 3, 4]);
    assert_eq!(call!(driver, cuMemsetD8Async(address, 9_u8, 3_usize, 0_u64)), SUCCESS);
    assert_eq!(driver.read(address, 4), [9, 9, 9, 0xbb]);
    let rows = (8_usize, 2_usize, 3_usize);
    assert_eq!(call!(driver, cuMemsetD2D8_v2(address, rows.0, 7_u8, rows.1, rows.2)), SUCCESS);
    assert_eq!(driver.read(address + 8, 4), [7, 7, 3, 4]);
    assert_eq!(call!(driver, cuMemsetD32_v2(address + 2, 0_u32, 1_usize)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemsetD8_v2(address, 0_u8, 65_usize)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
}

/// Memory of the host that kernels use in place: allocated, managed, and registered.
#[test]
fn kernels_use_memory_of_the_host() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let add_one = driver.kernel(module, "add_one");
    let mut place: *mut u32 = ptr::null_mut();
    assert_eq!(call!(driver, cuMemHostAlloc(&mut place, 64_usize, 2_u32)), SUCCESS);
    assert!(place.addr().is_multiple_of(4096));
    let words = unsafe { std::slice::from_raw_parts_mut(place, 16) };
    words.fill(41);
    let (mut address, mut flags) = (0_u64, 0_u32);
    assert_eq!(call!(driver, cuMemHostGetDevicePointer_v2(&mut address, place, 0_u32)), SUCCESS);
    assert_eq!(call!(driver, cuMemHostGetFlags(&mut flags, place)), SUCCESS);
    assert_eq!(flags, 2);
    assert_eq!(driver.launch(add_one, 16, 0, &[address]), SUCCESS);
    assert_eq!(words, [42; 16]);
    assert_eq!(call!(driver, cuMemFree_v2(address)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFreeHost(place)), SUCCESS);
    assert_eq!(call!(driver, cuMemFreeHost(place)), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemHostAlloc(&mut place, 64_usize, 64_u32)), INVALID_VALUE);

    let mut managed = 0_u64;
    assert_eq!(call!(driver, cuMemAllocManaged(&mut managed, 8_usize, 1_u32)), SUCCESS);
    let words: *mut u32 = ptr::with_exposed_provenance_mut(managed as usize);
    unsafe { words.write(1) };
    unsafe { words.add(1).write(2) };
    assert_eq!(driver.launch(add_one, 2, 0, &[managed]), SUCCESS);
    assert_eq!(unsafe { (words.read(), words.add(1).read()) }, (2, 3));
    assert_eq!(call!(driver, cuMemFree_v2(managed)), SUCCESS);
    assert_eq!(call!(driver, cuMemAllocManaged(&mut managed, 8_usize, 3_u32)), INVALID_VALUE);

    let mut own = vec![5_u32; 1000];
    let at = own.as_mut_ptr();
    assert_eq!(call!(driver, cuMemHostRegister_v2(at, 4000_usize, 0_u32)), SUCCESS);
    assert_eq!(call!(driver, cuMemHostRegister_v2(at, 4000_usize, 0_u32)), ALREADY_REGISTERED);
    assert_eq!(call!(driver, cuMemHostGetDevicePointer_v2(&mut address, at, 0_u32)), SUCCESS);
    assert_eq!(driver.launch(add_one, 1000, 0, &[address]), SUCCESS);
    assert_eq!(call!(driver, cuMemHostUnregister(at)), SUCCESS);
    assert_eq!(call!(driver, cuMemHostUnregister(at)), NOT_REGISTERED);
    assert_eq!(own, [6; 1000]);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
}

#[test]
fn pointers_have_attributes() {
    let driver = Driver::open();
    let address = driver.alloc(128);
    let (mut kind, mut start, mut bytes) = (0_u32, 0_u64, 0_usize);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut kind, 2_u32, address + 8)), SUCCESS);
    assert_eq!(kind, 2);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut start, 11_u32, address + 8)), SUCCESS);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut bytes, 12_u32, address + 8)), SUCCESS);
    assert_eq!((start, bytes), (address, 128));
    // The device has no pointer of the host, and a pointer of the host alone no kind.
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut start, 4_u32, address)), INVALID_VALUE);
    let own = ptr::from_ref(&driver);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut kind, 2_u32, own)), INVALID_VALUE);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut kind, 999_u32, address)), INVALID_VALUE);
    // Several at once, null where there is none.
    let which = [2_u32, 4];
    let mut host = 7_u64;
    let to = [(&raw mut kind).cast::<c_void>(), (&raw mut host).cast()];
    kind = 0;
    assert_eq!(
        call!(driver, cuPointerGetAttributes(2_u32, which.as_ptr(), to.as_ptr(), address)),
        SUCCESS
    );
    assert_eq!((kind, host), (2, 0));
    let mut place = 0_u64;
    assert_eq!(call!(driver, cuMemAllocHost_v2(&mut place, 16_usize)), SUCCESS);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut kind, 2_u32, place)), SUCCESS);
    assert_eq!(kind, 1);
    assert_eq!(call!(driver, cuPointerGetAttribute(&mut start, 4_u32, place + 4)), SUCCESS);
    assert_eq!(start, place + 4);
    assert_eq!(call!(driver, cuMemFreeHost(place)), SUCCESS);
    assert_eq!(call!(driver, cuMemFree_v2(address)), SUCCESS);
}
