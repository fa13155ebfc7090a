//! Registers: the pool of `setmaxnreg`, and how many blocks fit.

use crate::run::{device, line};
use kiln_sim::{ErrorKind, Kernel, Launch, Module};

/// Two warpgroups, of which the first gives registers back and the second takes some.
fn exchange(fewer: u32, more: u32) -> Kernel {
    let text = format!(
        ".version 8.6 .target sm_90a .address_size 64
         .visible .entry test() .maxntid 256, 1, 1 .minnctapersm 1 {{
             .reg .b32 %r<1>; .reg .pred %p<1>;
             mov.u32 %r0, %tid.x;
             setp.ge.u32 %p0, %r0, 128;
             @%p0 bra SECOND;
             setmaxnreg.dec.sync.aligned.u32 {fewer};
             ret;
         SECOND:
             setmaxnreg.inc.sync.aligned.u32 {more};
             ret;
         }}"
    );
    Module::load(&text).unwrap().kernel("test").unwrap()
}

#[test]
fn a_pool_that_adds_up_serves_all() {
    let device = device();
    for (registers, fewer, more) in [(168, 40, 232), (128, 24, 232), (128, 128, 128)] {
        let shape = Launch { registers, ..line(1, 256) };
        assert!(device.launch(&exchange(fewer, more), &shape, &[]).is_ok(), "{registers}");
    }
}

#[test]
fn a_pool_that_does_not_add_up_hangs() {
    let shape = Launch { registers: 128, ..line(1, 256) };
    let error = device().launch(&exchange(40, 232), &shape, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    let text = error.to_string();
    // Three warps took 104 each of the 4 times 88.
    assert!(text.contains("setmaxnreg.inc of a warp of 128 registers, 40 are free"), "{text}");
}

#[test]
fn more_is_not_asked_for_by_less() {
    let shape = Launch { registers: 128, ..line(1, 256) };
    for (fewer, more, expected) in [
        (136, 232, "setmaxnreg.dec to 136 registers of 128"),
        (40, 120, "setmaxnreg.inc to 120 registers of 128"),
    ] {
        let text = device().launch(&exchange(fewer, more), &shape, &[]).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn directives_say_what_a_thread_starts_with() {
    // 256 threads may have 256 registers each, as far as is known.
    assert!(device().launch(&exchange(40, 248), &line(1, 256), &[]).is_ok());
    assert!(device().launch(&exchange(40, 256), &line(1, 256), &[]).is_ok());
    let shape = line(1, 256);
    assert!(device().launch(&exchange(256, 256), &shape, &[]).is_ok());
}

#[test]
fn registers_bound_what_fits() {
    let empty = ".version 8.6 .target sm_90\n.address_size 64 .visible .entry test() { ret; }";
    let kernel = Module::load(empty).unwrap().kernel("test").unwrap();
    let device = device();
    let count = device.config().sm_count;
    let grid = |blocks: u32, registers: u32| {
        let shape = Launch { cooperative: true, registers, ..line(blocks, 256) };
        device.launch(&kernel, &shape, &[]).map_err(|error| error.to_string())
    };
    assert!(grid(8 * count, 0).is_ok());
    assert!(grid(8 * count, 32).is_ok());
    // 256 threads of 33 registers take 40 each.
    assert!(grid(6 * count, 33).is_ok());
    let refused = grid(6 * count + 1, 33).unwrap_err();
    assert!(refused.contains(&format!("{} fit", 6 * count)), "{refused}");
    let shape = Launch { registers: 72, ..line(1, 1024) };
    let refused = device.launch(&kernel, &shape, &[]).unwrap_err().to_string();
    assert!(refused.contains("1024 threads of 72 registers take 73728 of 65536"), "{refused}");
}

#[test]
fn clusters_of_16_are_asked_for() {
    let empty = ".version 8.6 .target sm_90\n.address_size 64 .visible .entry test() { ret; }";
    let kernel = Module::load(empty).unwrap().kernel("test").unwrap();
    let shape = Launch { cluster: [16, 1, 1], ..line(16, 32) };
    let refused = device().launch(&kernel, &shape, &[]).unwrap_err().to_string();
    assert!(refused.contains("16 blocks in a cluster, more than 8"), "{refused}");
    let shape = Launch { non_portable_cluster: true, ..shape };
    assert!(device().launch(&kernel, &shape, &[]).is_ok());
}
