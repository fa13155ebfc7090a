//! How kernels, launches and modules fail: the exact texts.

use crate::run::{device, launch, line, params};
use kiln_sim::{Device, DeviceConfig, Error, ErrorKind, Launch, Module};

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// A kernel `k` with a pointer parameter in `%rd1`, its body from line 8 on.
fn module(body: &str) -> Module {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 p)\n{{\n.reg .pred %p<4>; .reg .b32 %r<9>; \
         .reg .b64 %rd<9>;\nld.param.u64 %rd1, [p];\n{body}\nret;\n}}\n"
    );
    Module::load(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn fail(device: &Device, body: &str, shape: Launch, argument: u64) -> Error {
    let kernel = module(body).kernel("k").unwrap();
    device.launch(&kernel, &shape, &params(&kernel, &[argument])).unwrap_err()
}

#[track_caller]
fn check(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!(error.to_string(), text);
    assert_eq!(error.kind(), kind);
}

#[test]
fn out_of_bounds_names_the_allocation() {
    let device = device();
    let buffer = device.alloc(100).unwrap();
    let body = "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n\
                ld.global.u32 %r2, [%rd3];";
    check(
        &fail(&device, body, line(2, 32), buffer),
        ErrorKind::OutOfBounds,
        "load of 4 bytes at 0x100000000064 is out of bounds: 4 bytes past the end of the \
         allocation of 100 bytes at 0x100000000000; kernel `k`, block (0, 0, 0), thread (25, 0, \
         0), ptx line 11: `ld.global.u32 %r2, [%rd3];`",
    );
    let before = fail(&device, "st.global.u32 [%rd1+-4], 1;", line(1, 1), buffer);
    check(
        &before,
        ErrorKind::OutOfBounds,
        "store of 4 bytes at 0xffffffffffc is out of bounds: 4 bytes before the start of the \
         allocation of 100 bytes at 0x100000000000; kernel `k`, block (0, 0, 0), thread (0, 0, \
         0), ptx line 8: `st.global.u32 [%rd1+-4], 1;`",
    );
    assert_eq!(before.line(), Some(8));
    assert_eq!(before.place().unwrap().thread, [0, 0, 0]);
}

#[test]
fn freed_memory_is_named() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    device.free(buffer).unwrap();
    check(
        &fail(&device, "atom.global.add.u32 %r1, [%rd1], 1;", line(1, 1), buffer),
        ErrorKind::UseAfterFree,
        "atomic of 4 bytes at 0x100000000000 is out of bounds: it is in the freed allocation of \
         64 bytes at 0x100000000000; kernel `k`, block (0, 0, 0), thread (0, 0, 0), ptx line 8: \
         `atom.global.add.u32 %r1, [%rd1], 1;`",
    );
}

#[test]
fn misaligned_accesses() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    check(
        &fail(&device, "ld.global.v2.u32 {%r1, %r2}, [%rd1+4];", line(1, 1), buffer),
        ErrorKind::Misaligned,
        "load of 8 bytes at 0x100000000004 is not aligned to 8 bytes; kernel `k`, block (0, 0, \
         0), thread (0, 0, 0), ptx line 8: `ld.global.v2.u32 {%r1, %r2}, [%rd1+4];`",
    );
}

#[test]
fn shared_memory_has_an_end() {
    let body = ".shared .align 4 .b8 s[8];\nst.shared.u32 [s+8], 1;";
    check(
        &fail(&device(), body, line(1, 1), 0),
        ErrorKind::OutOfBounds,
        "store of 4 bytes at shared offset 0x8 is out of bounds: 4 bytes past the end of the \
         shared memory of 8 bytes; kernel `k`, block (0, 0, 0), thread (0, 0, 0), ptx line 9: \
         `st.shared.u32 [s+8], 1;`",
    );
}

#[test]
fn traps_and_source_lines() {
    let text = format!(
        "{HEAD}.visible .entry k()\n{{\n.reg .pred %p<2>; .reg .b32 %r<2>;\n.loc 1 12 3\n\
         mov.u32 %r1, %tid.y;\nsetp.eq.u32 %p1, %r1, 2;\n.loc 1 14 3\n@%p1 trap;\nret;\n}}\n\
         .file 1 \"k.cu\"\n"
    );
    let kernel = Module::load(&text).unwrap().kernel("k").unwrap();
    let shape = Launch { grid: [1, 3, 1], block: [5, 4, 1], ..Launch::default() };
    check(
        &device().launch(&kernel, &shape, &[]).unwrap_err(),
        ErrorKind::Trap,
        "trap; kernel `k`, block (0, 0, 0), thread (0, 2, 0), ptx line 11: `@%p1 trap;` (k.cu:14)",
    );
}

#[test]
fn divergent_barriers() {
    let body = "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 8;\n@%p1 bra A;\nbar.sync 0;\nret;\n\
                A:\nbar.sync 0;";
    check(
        &fail(&device(), body, line(1, 32), 0),
        ErrorKind::DivergentBarrier,
        "threads wait for each other, at ptx lines 11, 14; kernel `k`, block (0, 0, 0), thread \
         (8, 0, 0), ptx line 11: `bar.sync 0;`",
    );
    let members = "mov.u32 %r1, %tid.x;\nshfl.sync.idx.b32 %r2, %r1, 0, 31, 1;";
    check(
        &fail(&device(), members, line(1, 32), 0),
        ErrorKind::DivergentBarrier,
        "the member mask 0x00000001 lacks lane 1; kernel `k`, block (0, 0, 0), thread (1, 0, 0), \
         ptx line 9: `shfl.sync.idx.b32 %r2, %r1, 0, 31, 1;`",
    );
}

#[test]
fn hangs_are_found_and_report_where() {
    let body = "L:\nld.acquire.gpu.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;";
    for workers in [1, 2] {
        let device = Device::new(DeviceConfig { workers, ..DeviceConfig::default() });
        let flag = device.alloc(4).unwrap();
        let error = fail(&device, body, line(8, 256), flag);
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        let text = error.to_string();
        assert!(text.starts_with("every thread waits or polls and none makes progress, at ptx"));
        assert!(text.contains("kernel `k`, block ("), "{text}");
    }
}

#[test]
fn waits_that_end_by_a_clock_end() {
    let body = "mov.u64 %rd2, %globaltimer;\nL:\nld.acquire.gpu.global.u32 %r1, [%rd1];\n\
                mov.u64 %rd3, %globaltimer;\nsub.u64 %rd3, %rd3, %rd2;\n\
                setp.gt.u64 %p1, %rd3, 10000000000;\n@%p1 trap;\n\
                setp.eq.u32 %p1, %r1, 0;\n@%p1 bra L;";
    for workers in [1, 2] {
        let device = Device::new(DeviceConfig { workers, ..DeviceConfig::default() });
        let flag = device.alloc(4).unwrap();
        let error = fail(&device, body, line(8, 256), flag);
        assert_eq!(error.kind(), ErrorKind::Trap, "{error}");
    }
}

#[test]
fn bad_launches() {
    let device = device();
    let kernel = module("").kernel("k").unwrap();
    let refuse = |shape: Launch, bytes: usize| {
        let error = device.launch(&kernel, &shape, &vec![0; bytes]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadLaunch);
        error.to_string()
    };
    let shape = line(1, 1);
    assert_eq!(
        refuse(line(0, 1), 8),
        "failed to launch `k`: grid (0, 1, 1) is not within (2147483647, 65535, 65535)"
    );
    assert_eq!(
        refuse(line(1, 1025), 8),
        "failed to launch `k`: block (1025, 1, 1) is not within 1024 threads"
    );
    assert_eq!(refuse(shape, 4), "failed to launch `k`: 4 bytes of parameters instead of 8");
    assert_eq!(
        refuse(Launch { shared_bytes: 1 << 20, ..shape }, 8),
        "failed to launch `k`: 1048576 bytes of shared memory of 232448"
    );
    assert_eq!(
        refuse(Launch { cooperative: true, ..line(1000, 1) }, 8),
        "failed to launch `k`: a cooperative grid of 1000 blocks; 128 fit"
    );
    let text = format!("{HEAD}.visible .entry k()\n.maxntid 64, 2, 1\n{{\nret;\n}}\n");
    let bounded = Module::load(&text).unwrap().kernel("k").unwrap();
    let error = device.launch(&bounded, &line(1, 129), &[]).unwrap_err();
    assert_eq!(error.to_string(), "failed to launch `k`: 129 threads where .maxntid allows 128");
}

#[test]
fn modules_that_are_refused() {
    let refuse = |body: &str| {
        let text = format!("{HEAD}.visible .entry k()\n{{\n.reg .b32 %r<4>;\n{body}\n}}\n");
        Module::load(&text).unwrap_err()
    };
    check(
        &refuse("frobnicate.b32 %r1, %r2;"),
        ErrorKind::Unsupported,
        "ptx line 7: unknown opcode `frobnicate`",
    );
    check(
        &refuse("add.blue.s32 %r1, %r2, %r3;"),
        ErrorKind::Unsupported,
        "ptx line 7: `add.blue.s32` has an unknown modifier `.blue`",
    );
    check(
        &refuse("add.s32 %r1, %r2, %r9;"),
        ErrorKind::Parse,
        "ptx line 7: unknown register `%r9`",
    );
    check(
        &refuse("add.s32 %r1, %r2;"),
        ErrorKind::Unsupported,
        "ptx line 7: `add.s32` has 2 operands instead of 3",
    );
    check(&refuse("bra NOWHERE;"), ErrorKind::Parse, "ptx line 7: unknown label `NOWHERE`");
    check(&refuse("add.s32 %r1 %r2;"), ErrorKind::Parse, "ptx line 7: expected `,`, found `%r2`");
    let empty = Module::load("").unwrap_err();
    check(&empty, ErrorKind::Parse, "ptx line 1: expected `.version`, found the end of the text");
}

#[test]
fn other_launches_go_on_after_a_failure() {
    let device = device();
    let buffer = device.alloc(64).unwrap();
    fail(&device, "trap;", line(1, 1), buffer);
    let kernel = module("st.global.u32 [%rd1], 7;").kernel("k").unwrap();
    launch(&device, &kernel, line(1, 1), &[buffer]);
    assert_eq!(crate::run::download::<u32>(&device, buffer, 1), [7]);
}
