//! The device's memory, from the host's side.

use crate::run::{device, download, upload};
use kiln_sim::{Device, DeviceConfig, ErrorKind};

#[test]
fn allocations_are_aligned_and_apart() {
    let device = device();
    let addresses: Vec<u64> = [0, 1, 100, 256, 4097].map(|n| device.alloc(n).unwrap()).to_vec();
    assert!(addresses.iter().all(|address| address % 256 == 0));
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] > 4096));
    addresses.into_iter().for_each(|address| device.free(address).unwrap());
}

#[test]
fn memory_keeps_bytes_at_any_offset() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    assert_eq!(download::<u8>(&device, buffer, 64), [0; 64]);
    let bytes: Vec<u8> = (1..=13).collect();
    for offset in 0..9 {
        device.fill(buffer, 0xee, 64).unwrap();
        device.write(buffer + offset, &bytes).unwrap();
        let mut want = [0xee; 64];
        want[offset as usize..][..13].copy_from_slice(&bytes);
        assert_eq!(download::<u8>(&device, buffer, 64), want);
        assert_eq!(download::<u8>(&device, buffer + offset, 13), bytes);
    }
    device.fill(buffer + 3, 0x11, 2).unwrap();
    assert_eq!(download::<u8>(&device, buffer + 2, 4), [0xee, 0x11, 0x11, 0xee]);
}

#[test]
fn ranges_must_be_inside_one_allocation() {
    let device = device();
    let buffer = upload(&device, &[1_u32, 2]);
    let error = device.write(buffer + 4, &[0; 5]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownAddress);
    assert_eq!(
        error.to_string(),
        "failed to write 5 bytes at 0x100000000004: 1 bytes past the end of the allocation of 8 \
         bytes at 0x100000000000"
    );
    assert_eq!(
        device.free(buffer + 4).unwrap_err().to_string(),
        "failed to free 0x100000000004: no allocation begins there"
    );
    device.free(buffer).unwrap();
    let error = device.read(buffer, &mut [0; 4]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to read 4 bytes at 0x100000000000: it is in the freed allocation of 8 bytes at \
         0x100000000000"
    );
}

#[test]
fn the_budget_is_kept_and_given_back() {
    let device = Device::new(DeviceConfig { memory_bytes: 1000, ..DeviceConfig::default() });
    let buffer = device.alloc(900).unwrap();
    let error = device.alloc(101).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "failed to allocate 101 bytes: 100 of 1000 left");
    device.free(buffer).unwrap();
    device.alloc(1000).unwrap();
}

#[test]
fn large_allocations_cost_nothing_until_touched() {
    let device = device();
    let buffer = device.alloc(4 << 30).unwrap();
    device.write(buffer + (3 << 30), &[1, 2, 3]).unwrap();
    assert_eq!(download::<u8>(&device, buffer + (3 << 30), 4), [1, 2, 3, 0]);
}
