//! Barriers in memory, copies and clusters used against their rules: the exact texts.

use crate::run::{device, line};
use kiln_sim::{Checks, ErrorKind, Launch, Module, TensorMap, TensorType, Tiled};

/// The message of a body that fails, whether it is checked or not; `%r1` is a barrier's address and
/// `%r2` 1 KiB of shared memory.
fn fail(body: &str, shape: Launch) -> (ErrorKind, String) {
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64 .global .align 16 .b8 g[16];\n\
         .visible .entry k()\n{{\n.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>; \
         .shared .align 8 .b8 b[16]; .shared .align 128 .b8 s[1024];\n\
         mov.u32 %r1, b; mov.u32 %r2, s; mov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    );
    let module = Module::load(&text).unwrap_or_else(|error| panic!("{error}"));
    let [plain, checked] = [Checks::NONE, Checks::ALL].map(|checks| {
        let shape = Launch { checks, counters: checks == Checks::ALL, ..shape };
        let error = device().launch(&module.kernel("k").unwrap(), &shape, &[]).unwrap_err();
        (error.kind(), error.to_string().split("; kernel").next().unwrap().to_string())
    });
    assert_eq!(plain, checked);
    plain
}

#[track_caller]
fn check(body: &str, want: &str) {
    assert_eq!(fail(body, line(1, 1)), (ErrorKind::Misuse, want.to_string()));
}

const INIT: &str = "mbarrier.init.shared.b64 [%r1], 2;";

#[test]
fn barriers_in_memory() {
    check(
        "mbarrier.arrive.shared.b64 %rd1, [%r1];",
        "mbarrier at shared offset 0x0: it is not initialised",
    );
    check(
        "mbarrier.init.shared.b64 [%r1], 0;",
        "mbarrier at shared offset 0x0: count 0 is not within 1 and 1048575",
    );
    check(
        &format!("{INIT} mbarrier.arrive.shared.b64 %rd1, [%r1], 3;"),
        "mbarrier at shared offset 0x0: 3 arrivals where 2 are pending",
    );
    check(
        &format!("{INIT} mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 2;"),
        "mbarrier at shared offset 0x0: an arrival with .noComplete completes the phase",
    );
    check(
        &format!(
            "{INIT} mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 1048575; \
             mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 1;"
        ),
        "mbarrier at shared offset 0x0: a tx-count of 1048576 bytes is not within 1048575 either \
         way",
    );
    check(
        &format!(
            "{INIT} mbarrier.inval.shared.b64 [%r1]; mbarrier.try_wait.parity.shared.b64 \
                  %p1, [%r1], 0;"
        ),
        "mbarrier at shared offset 0x0: it is not initialised",
    );
    check(
        &format!("{INIT} mov.u64 %rd1, 5; mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;"),
        "the state is not one that an arrival gave",
    );
    let (kind, text) = fail("mbarrier.init.shared.b64 [%r1+4], 1;", line(1, 1));
    assert_eq!(kind, ErrorKind::Misaligned);
    assert_eq!(text, "mbarrier of 8 bytes at 0x4 is not aligned to 8 bytes");
    let (kind, text) =
        fail("add.u32 %r1, %r1, 65536; mbarrier.arrive.shared.b64 %rd1, [%r1];", line(1, 1));
    assert_eq!(kind, ErrorKind::OutOfBounds);
    assert_eq!(
        text,
        "mbarrier of 8 bytes at shared offset 0x10000 is out of bounds: 64392 bytes past the end \
         of the shared memory of 1152 bytes"
    );
    let endless =
        format!("{INIT} L: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; @!%p1 bra L;");
    let (kind, text) = fail(&endless, line(1, 1));
    assert_eq!(kind, ErrorKind::Deadlock);
    assert_eq!(text, "every thread waits or polls and none makes progress, at ptx lines 8");
}

#[test]
fn phases_and_counts() {
    // Two phases by state and parity; the pending count is of before the arrival.
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 o)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .shared .align 8 .b8 b[8];\nmov.u32 \
         %r1, b; ld.param.u64 %rd9x, [o];\n{INIT} mbarrier.arrive.shared.b64 %rd1, [%r1]; \
         mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1; mbarrier.arrive_drop.shared.b64 %rd2, \
         [%r1]; mbarrier.test_wait.shared.b64 %p2, [%r1], %rd1; \
         mbarrier.test_wait.parity.shared.b64 %p3, [%r1], 0; \
         mbarrier.test_wait.parity.shared.b64 %p4, [%r1], 1; mbarrier.arrive.shared.b64 %rd3, \
         [%r1]; mbarrier.test_wait.parity.shared.b64 %p5, [%r1], 1; mbarrier.pending_count.b64 \
         %r2, %rd2; mbarrier.pending_count.b64 %r3, %rd3;\nselp.u32 %r4, 1, 0, %p1; selp.u32 %r5, \
         2, 0, %p2; add.u32 %r4, %r4, %r5; selp.u32 %r5, 4, 0, %p3; add.u32 %r4, %r4, %r5; \
         selp.u32 %r5, 8, 0, %p4; add.u32 %r4, %r4, %r5; selp.u32 %r5, 16, 0, %p5; add.u32 %r4, \
         %r4, %r5;\nst.global.v4.u32 [%rd9x], {{%r2, %r3, %r4, %r1}};\nret;\n}}\n"
    );
    let text = text.replace("%rd9x", "%rd8");
    let module = Module::load(&text).unwrap_or_else(|error| panic!("{error}"));
    let device = device();
    let out = crate::run::upload(&device, &[0_u32; 4]);
    crate::run::launch(&device, &module.kernel("k").unwrap(), line(1, 1), &[out]);
    let got = crate::run::download::<u32>(&device, out, 3);
    // After the drop one arrival is enough: phase 1 is over too.
    assert_eq!(got, [1, 1, 2 + 4 + 16]);
}

#[test]
fn copies() {
    check(
        "mov.u64 %rd1, 0; mov.u32 %r3, 9; cp.async.ca.shared.global [%r2], [%rd1], 8, %r3;",
        "cp.async of 8 bytes with a src-size of 9",
    );
    check(
        "mov.u64 %rd1, g; mov.u32 %r3, 9; cp.async.ca.shared.global [%r2], [%rd1], 8, %r3;",
        "cp.async of 8 bytes with a src-size of 9",
    );
    let (kind, _) = fail("cp.async.cg.shared.global [%r2+8], [%rd1], 16, 0;", line(1, 1));
    assert_eq!(kind, ErrorKind::Misaligned);
    let (kind, text) = fail(
        "add.u32 %r2, %r2, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];",
        line(1, 32),
    );
    assert_eq!(kind, ErrorKind::Misaligned);
    assert_eq!(text, "ldmatrix of 16 bytes at 0x88 is not aligned to 16 bytes");
    check(
        &format!(
            "{INIT} mov.u32 %r3, 24; mov.u64 %rd1, 0; \
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], \
             %r3, [%r1];"
        ),
        "a TMA copy of 24 bytes, not a multiple of 16",
    );
    check(
        "mov.u64 %rd1, 1099511627776; cp.async.bulk.tensor.1d.global.shared::cta.bulk_group \
         [%rd1, {%r0}], [%r2];",
        "tensor map at 0x10000000000, in shared or local memory",
    );
}

#[test]
fn damaged_tensor_maps() {
    let text = ".version 8.6\n.target sm_90a\n.address_size 64\n\
        .visible .entry k(.param .align 64 .b8 map[128])\n{\n.reg .b64 %rd1; .reg .b32 %r1;\n\
        .shared .align 128 .b8 s[1024];\nmov.u32 %r1, s; mov.u64 %rd1, map; \
        cvta.param.u64 %rd1, %rd1;\ncp.async.bulk.tensor.2d.global.shared::cta.bulk_group \
        [%rd1, {0, 0}], [%r1]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nret;\n}\n";
    let kernel = Module::load(text).unwrap().kernel("k").unwrap();
    let device = device();
    let map = TensorMap::encode_tiled(&Tiled {
        data_type: TensorType::F32,
        address: device.alloc(4096).unwrap(),
        dims: &[32, 16],
        strides: &[128],
        box_dims: &[16, 8],
        element_strides: &[1, 1],
        interleave: Default::default(),
        swizzle: Default::default(),
        l2_promotion: Default::default(),
        fill: Default::default(),
    });
    let map = *map.unwrap().bytes();
    device.launch(&kernel, &line(1, 1), &map).unwrap();
    for at in 0..128 {
        for byte in [0, 1, 3, 6, 0x7f, 0x80, 0xff] {
            let mut damaged = map;
            damaged[at] = byte;
            // It copies something, or is told from a map; a box of no rows is none.
            if let Err(error) = device.launch(&kernel, &line(1, 1), &damaged) {
                assert!(error.place().is_some(), "{error}");
            }
        }
    }
    for (at, byte) in [(5, 0), (5, 6), (6, 4), (32, 0), (33, 0xff), (34, 0), (53, 0)] {
        let mut damaged = map;
        damaged[at] = byte;
        let error = device.launch(&kernel, &line(1, 1), &damaged).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misuse, "byte {at}");
        assert!(error.to_string().starts_with("no tensor map at 0x"), "byte {at}: {error}");
    }
}

#[test]
fn clusters() {
    check(
        "mov.u32 %r3, 1; mapa.shared::cluster.u32 %r4, %r2, %r3;",
        "mapa to block 1 of a cluster of 1",
    );
    check("barrier.cluster.wait;", "barrier.cluster.wait without barrier.cluster.arrive");
    check(
        "barrier.cluster.arrive; barrier.cluster.arrive;",
        "barrier.cluster.arrive again without barrier.cluster.wait",
    );
    let pair = |grid: u32, cluster: [u32; 3]| Launch { cluster, ..line(grid, 32) };
    let (kind, text) = fail(
        "mov.u32 %r3, %cluster_ctarank; setp.eq.u32 %p1, %r3, 0; @%p1 bra END; \
         barrier.cluster.arrive; barrier.cluster.wait; END: bar.sync 1, 64;",
        pair(2, [2, 1, 1]),
    );
    assert_eq!(kind, ErrorKind::DivergentBarrier, "{text}");
    assert_eq!(
        fail("", pair(3, [2, 1, 1])).1,
        "failed to launch `k`: grid (3, 1, 1) is not a multiple of cluster (2, 1, 1)"
    );
    assert_eq!(
        fail("", pair(32, [32, 1, 1])).1,
        "failed to launch `k`: cluster (32, 1, 1) is not within 16 blocks"
    );
}

#[test]
fn forms_that_are_refused() {
    let refuse = |body: &str| {
        let text = format!(
            ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{{\n.reg .b32 \
             %r<9>; .reg .b64 %rd<9>;\n{body}\nret;\n}}\n"
        );
        Module::load(&text).unwrap_err().to_string()
    };
    assert_eq!(
        refuse("multimem.red.global.add.f32 [%rd1], %r1;"),
        "ptx line 7: `multimem.red.global.add.f32` is not supported: memory of several devices is \
         not simulated"
    );
    assert_eq!(
        refuse(
            "mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 {%r1, %r1, %r1, %r1}, {%r1, %r1}, \
             {%r1}, {%r1, %r1, %r1, %r1};"
        ),
        "ptx line 7: `mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32` is not a supported form"
    );
    assert_eq!(
        refuse("cp.async.cg.shared.global [%r1], [%rd1], 8;"),
        "ptx line 7: `cp.async.cg.shared.global` is not a supported form"
    );
    assert_eq!(
        refuse("prefetch.global.L3 [%rd1];"),
        "ptx line 7: `prefetch.global.L3` is not a supported form"
    );
    assert_eq!(
        refuse("setmaxnreg.inc.sync.aligned.u32 100;"),
        "ptx line 7: `setmaxnreg.inc.sync.aligned.u32` has no count that is a multiple \
         of 8 from 24 to 256"
    );
}

/// A `printf` of a text, with its arguments at this address.
fn printed(text: &str, arguments: &str) -> String {
    let bytes: Vec<String> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
    let (count, bytes) = (bytes.len(), bytes.join(", "));
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 values);\n\
         .global .align 1 .b8 text[{count}] = {{{bytes}}};\n.visible .entry k()\n{{\n\
         .reg .b32 %r<2>; .reg .b64 %rd<3>;\nmov.u64 %rd1, text; cvta.global.u64 %rd1, %rd1;\n\
         mov.u64 %rd2, {arguments};\n{{\n.param .b64 p; .param .b64 q; .param .b32 n;\n\
         st.param.b64 [p], %rd1; st.param.b64 [q], %rd2;\ncall.uni (n), vprintf, (p, q);\n}}\n\
         ret;\n}}\n"
    );
    let kernel = Module::load(&text).unwrap().kernel("k").unwrap();
    let error = device().launch(&kernel, &line(1, 1), &[]).unwrap_err();
    error.to_string().split("; kernel").next().unwrap().to_string()
}

/// Addresses around which arithmetic wraps, and fields that no memory holds.
#[test]
fn printf_of_what_is_nowhere() {
    for arguments in ["0xffffffffffffffff", "0xfffffffffffffffc", "0"] {
        let error = printed("%d", arguments);
        assert!(error.contains("printf"), "{error}");
    }
    for text in ["%99999999999999999999d", "%65536d", "%.70000f"] {
        let words = "printf of a field of more than 65535 characters";
        assert!(printed(text, "0").contains(words), "{text}");
    }
}
