//! The device's memory, from the host's side.

#![allow(unsafe_code, reason = "kernels use memory of the test")]

use crate::run::{device, download, upload};
use kiln_sim::{Checks, Device, DeviceConfig, ErrorKind, Launch, Module};
use std::ptr::NonNull;

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

/// Doubles a word, and adds a constant.
const DOUBLE: &str = "
    .version 8.0 .target sm_80 .address_size 64
    .const .align 4 .u32 more = 3;
    .visible .global .align 8 .u64 table[3] = {1, more, 5};
    .visible .entry double(.param .u64 at) {
        .reg .b32 %r<4>; .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [at];
        ld.global.u32 %r1, [%rd1];
        ld.const.u32 %r2, [more];
        mad.lo.u32 %r3, %r1, 2, %r2;
        st.global.u32 [%rd1], %r3;
        ret;
    }";

/// Runs the kernel with every check; returns how much they found.
fn double(device: &Device, address: u64) -> usize {
    let module = Module::load(DOUBLE).unwrap();
    let launch = Launch { checks: Checks::ALL, ..Launch::default() };
    let kernel = module.kernel("double").unwrap();
    device.launch(&kernel, &launch, &address.to_le_bytes()).unwrap().findings.len()
}

#[test]
fn kernels_use_memory_of_the_host_in_place() {
    let device = device();
    let own = device.alloc_host(6).unwrap();
    assert_eq!((own % 4096, device.allocation(own + 5)), (0, Some((own, 6))));
    assert_eq!(device.used_bytes(), 0);
    let word: *mut u32 = std::ptr::with_exposed_provenance_mut(own as usize);
    // SAFETY: the device allocated it for both, and no kernel runs.
    unsafe { word.write(10) };
    assert_eq!(double(&device, own), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { word.read() }, 23);
    device.free(own).unwrap();

    let mut words = [7_u32, 8];
    let start = NonNull::from(&mut words[1]).cast::<u8>();
    // SAFETY: the array outlives the mapping, and the test waits for the kernel.
    let mapped = unsafe { device.map_host(start, 4) }.unwrap();
    // SAFETY: refused.
    let again = unsafe { device.map_host(start, 4) }.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::UnknownAddress);
    // SAFETY: refused.
    let odd = unsafe { device.map_host(start.add(1), 1) }.unwrap_err();
    assert!(odd.to_string().ends_with(": it is not aligned to 4 bytes"), "{odd}");
    assert_eq!(double(&device, mapped), 0);
    device.free(mapped).unwrap();
    assert_eq!(words, [7, 19]);
}

#[test]
fn copies_on_the_device_carry_what_was_not_written() {
    let device = device();
    let (from, to) = (device.alloc(200_000).unwrap(), device.alloc(200_000).unwrap());
    device.write(from + 65_534, &[1, 2, 3, 4]).unwrap();
    device.fill(to, 9, 200_000).unwrap();
    device.copy(from, to, 200_000).unwrap();
    assert_eq!(download::<u8>(&device, to + 65_533, 6), [0, 1, 2, 3, 4, 0]);
    assert_eq!(double(&device, to + 65_536), 1);
    device.write(from + 65_538, &[0; 2]).unwrap();
    device.copy(from + 65_536, to + 65_536, 4).unwrap();
    assert_eq!(double(&device, to + 65_536), 0);
    let error = device.copy(from, to + 199_999, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownAddress);
}

#[test]
fn variables_of_a_module_are_found_by_name() {
    let device = device();
    let module = Module::load(DOUBLE).unwrap();
    let (more, bytes) = device.variable(&module, "more").unwrap().unwrap();
    assert_eq!((bytes, download::<u8>(&device, more, 4)), (4, vec![3, 0, 0, 0]));
    let (table, bytes) = device.variable(&module, "table").unwrap().unwrap();
    let words = [1, more, 5].map(u64::to_le_bytes).concat();
    assert_eq!((bytes, download::<u8>(&device, table, 24)), (24, words));
    assert_eq!(device.variable(&module, "double").unwrap(), None);
    let kernel = module.kernel("double").unwrap();
    assert_eq!((kernel.target(), kernel.const_bytes(), kernel.local_bytes()), ("sm_80", 4, 0));
}

#[test]
fn managed_variables_are_the_hosts_too() {
    let declared = |attribute: &str| {
        format!(
            ".version 8.0 .target sm_90 .address_size 64
             .visible .global {attribute} .align 4 .u32 counts[3] = {{ 7, 8 }};
             .visible .global .align 4 .u32 own;
             .visible .entry count() {{
                 .reg .b32 %r<3>; .reg .b64 %rd<3>;
                 mov.u64 %rd1, counts;
                 ld.global.u32 %r1, [%rd1+4];
                 add.u32 %r2, %r1, 1;
                 st.global.u32 [%rd1+8], %r2;
                 ret;
             }}"
        )
    };
    let module = Module::load(&declared(".attribute(.managed)")).unwrap();
    assert!(module.is_managed("counts") && !module.is_managed("own"));
    let device = device();
    let (address, bytes) = device.variable(&module, "counts").unwrap().unwrap();
    assert_eq!(bytes, 12);
    let counts = std::ptr::with_exposed_provenance_mut::<u32>(address as usize);
    // SAFETY: a managed variable of three words, which no kernel uses now.
    let words = || unsafe { [0, 1, 2].map(|index| counts.add(index).read()) };
    assert_eq!(words(), [7, 8, 0]);
    // SAFETY: as above.
    unsafe { counts.add(1).write(41) };
    let launch = Launch { checks: Checks::ALL, ..Launch::default() };
    let report = device.launch(&module.kernel("count").unwrap(), &launch, &[]).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(words(), [7, 41, 42]);
    for (attribute, at) in [
        (".attribute(.unified)", "`.managed`, of a variable in global memory"),
        (".attribute .managed", "`(`"),
    ] {
        let error = Module::load(&declared(attribute)).unwrap_err().to_string();
        assert!(error.contains(at), "{error}");
    }
}

/// A fuzzer's text: shared memory that no kernel uses, of which the host has as little.
#[test]
#[cfg(target_os = "linux")]
fn unused_shared_variables_take_no_memory() {
    let text = "
        .version 8.3
        .target sm_90
        .address_size 64
        .shared .align 8 .b8 cell[4294967295];
        .visible .entry test() { ret; }
    ";
    let module = Module::load(text).unwrap();
    device().launch(&module.kernel("test").unwrap(), &Launch::default(), &[]).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").trim().parse().unwrap();
    assert!(most < 3 << 20, "the tests had {most} kB at a time");
}
