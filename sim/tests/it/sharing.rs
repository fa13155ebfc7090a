//! What the checks see of clusters, and of units that read and write shared memory on their own:
//! each clean kernel beside what breaks when one thing is left out.

use crate::run::{line, params, upload};
use kiln_sim::{Checks, Device, DeviceConfig, Finding, FindingKind, Kernel, Launch, Module};

/// A kernel with a pointer in `%rd1`, its thread in `%r1`, its rank in `%r2`, the other block's
/// rank in `%r3`, and 4 KiB of shared memory at `s`, `%r4` into which is its thread's 16 bytes,
/// `%r5` the same place in the other block. The barrier `b`, in the other block `%r6`, is ready.
fn kernel(body: &str) -> Kernel {
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 o)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<19>; .reg .f32 %f<9>; .reg .b64 %rd<9>;\n\
         .shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 b;\nld.param.u64 %rd1, [o];\n\
         mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1;\n\
         shl.b32 %r4, %r1, 4; mov.u32 %r7, s; add.u32 %r4, %r4, %r7; mov.u32 %r8, b;\n\
         mov.u32 %r9, %cluster_nctarank; sub.u32 %r9, %r9, 1; and.b32 %r3, %r3, %r9;\n\
         mapa.shared::cluster.u32 %r5, %r4, %r3; mapa.shared::cluster.u32 %r6, %r8, %r3;\n\
         setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0; setp.ne.u32 %p3, %r1, %r1;\n\
         @%p1 mbarrier.init.shared.b64 [b], 1;\n@%p1 fence.mbarrier_init.release.cluster;\n\
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n\
         {body}\nret;\n}}\n"
    );
    Module::load(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernel("k").unwrap()
}

/// What all checks find in a cluster of so many blocks of 128 threads, for each of 20 seeds.
fn findings(body: &str, blocks: u32) -> Vec<Vec<Finding>> {
    let kernel = kernel(body);
    let run = |seed| {
        let device = Device::new(DeviceConfig { seed, ..DeviceConfig::default() });
        let buffer = upload(&device, &[7_u32; 1024]);
        let cluster = [blocks, 1, 1];
        let shape = Launch { cluster, checks: Checks::ALL, ..line(2 * blocks, 128) };
        let report = device.launch(&kernel, &shape, &params(&kernel, &[buffer]));
        report.unwrap_or_else(|error| panic!("seed {seed}: {error}")).findings
    };
    (0..20).map(run).collect()
}

#[track_caller]
fn clean(body: &str, blocks: u32) {
    for found in findings(body, blocks) {
        assert!(found.is_empty(), "{}", found[0]);
    }
}

/// Every seed finds the kind and nothing else; one finding has these words.
#[track_caller]
fn racy(body: &str, blocks: u32, kind: FindingKind, words: &str) {
    for (seed, found) in findings(body, blocks).iter().enumerate() {
        let texts: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert!(found.iter().all(|finding| finding.kind == kind), "seed {seed}: {texts:#?}");
        assert!(texts.iter().any(|text| text.contains(words)), "seed {seed}: {texts:#?}");
    }
}

const SYNC: &str = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;\n";
const RELAXED: &str = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n";
const STORE: &str = "st.shared.u32 [%r4], %r1;\n";
const STORE_PEER: &str = "st.shared::cluster.u32 [%r5], %r1;\n";
const LOAD: &str = "ld.shared.u32 %r10, [%r4];\n";
const LOAD_PEER: &str = "ld.shared::cluster.u32 %r10, [%r5];\n";

#[test]
fn a_cluster_barrier_orders_shared_memory() {
    let race = FindingKind::SharedRace;
    clean(&[STORE, SYNC, LOAD_PEER, SYNC].concat(), 2);
    clean(&[STORE_PEER, SYNC, LOAD, SYNC].concat(), 2);
    // Within one block it is a barrier too.
    clean(&[STORE, SYNC, "ld.shared.u32 %r10, [s];\n", SYNC, STORE].concat(), 2);
    let fenced = ["fence.acq_rel.cluster;\n", RELAXED].concat();
    clean(&[STORE, &fenced, LOAD_PEER, SYNC].concat(), 2);
    racy(&[STORE, RELAXED, LOAD_PEER, SYNC].concat(), 2, race, "use barrier.cluster");
    racy(&[STORE, SYNC, LOAD_PEER, RELAXED, STORE].concat(), 2, race, "use barrier.cluster");
    let other = "add.u32 %r11, %r1, 1; st.shared.u32 [%r4], %r11;\n";
    racy(&[STORE_PEER, BAR, other, SYNC].concat(), 2, race, "use barrier.cluster");
    // Two warps of one block, in the other's memory.
    let first = "mapa.shared::cluster.u32 %r11, %r7, %r3; mov.u32 %r12, %r1;\n\
                 st.shared::cluster.u32 [%r11], %r12;\n";
    let found = findings(&[first, SYNC].concat(), 2);
    assert!(found.iter().flatten().any(|finding| finding.subject.contains("of block (1, 0, 0)")));
}

#[test]
fn a_cluster_barrier_orders_global_memory() {
    let address = "shl.b32 %r10, %r1, 2; cvt.u64.u32 %rd2, %r10; add.s64 %rd2, %rd1, %rd2;\n\
                   mov.u32 %r11, %ctaid.x; shr.u32 %r11, %r11, 1; mul.wide.u32 %rd3, %r11, 512;\n\
                   add.s64 %rd2, %rd2, %rd3;\n";
    let store = "@%p2 st.global.u32 [%rd2], %r1;\n";
    let load = "@!%p2 ld.global.u32 %r12, [%rd2];\n";
    clean(&[address, store, SYNC, load].concat(), 2);
    let race = FindingKind::GlobalRace;
    racy(&[address, store, RELAXED, load].concat(), 2, race, "nothing orders the two blocks");
}

/// Waits for the first phase of the block's own barrier.
const WAIT: &str = "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [b], 0;\n\
                    @!%p4 bra W;\n";

#[test]
fn barriers_in_memory_order_blocks() {
    // The other block's warp 0 writes; its lane 0 says so.
    let send = |arrive: &str| {
        format!(
            "setp.lt.u32 %p5, %r1, 32; @!%p5 bra SENT; st.shared::cluster.u32 [%r5], %r1;\n\
             bar.warp.sync 0xffffffff;\n@%p1 mbarrier.{arrive}.shared::cluster.b64 _, [%r6];\n\
             SENT:\n"
        )
    };
    let read = "setp.lt.u32 %p5, %r1, 32; @%p5 ld.shared.u32 %r10, [%r4];\n";
    clean(&[&send("arrive.release.cluster"), WAIT, read, SYNC].concat(), 2);
    clean(&[&send("arrive"), WAIT, read, SYNC].concat(), 2);
    let relaxed = send("arrive.relaxed.cluster");
    let race = FindingKind::SharedRace;
    racy(&[&relaxed, WAIT, read, SYNC].concat(), 2, race, "use barrier.cluster");
}

#[test]
fn asynchronous_stores_are_waited_for() {
    let send = "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd4, [b], 512;\n\
                st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r1, [%r6];\n";
    clean(&[send, WAIT, LOAD, SYNC].concat(), 2);
    let race = FindingKind::SharedRace;
    racy(&[STORE, send, WAIT, SYNC].concat(), 2, race, "use barrier.cluster");
    // Given back through a barrier, the words may be sent again.
    let again = "fence.acq_rel.cluster;\n";
    clean(&[STORE, SYNC, send, WAIT, LOAD, again, SYNC, STORE].concat(), 2);
}

#[test]
fn a_multicast_is_seen_where_it_lands() {
    let expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd4, [b], 2048;\n";
    let cast = "and.pred %p6, %p1, %p2;\n@%p6 cp.async.bulk.shared::cluster.global\
                .mbarrier::complete_tx::bytes.multicast::cluster [s], [%rd1], 2048, [b], 3;\n";
    let cast = cast.replace("[b], 3;", "[b], %rs1;");
    let mask = ".reg .b16 %rs<2>; mov.u16 %rs1, 3;\n";
    clean(&[mask, expect, SYNC, &cast, WAIT, LOAD, SYNC].concat(), 2);
    let race = FindingKind::SharedRace;
    let early = [mask, expect, SYNC, &cast, "@!%p2 st.shared.u32 [%r4], 1;\n", WAIT, SYNC].concat();
    racy(&early, 2, race, "use barrier.cluster");
}

/// Fills shared memory, and issues the product of the 64x16 halves at `s` and the 16x8 at
/// `s+2048`.
const PRODUCT: &str = "mov.u32 %r10, 0; st.shared.v4.u32 [%r4], {%r10, %r10, %r10, %r10};\n\
    st.shared.v4.u32 [%r4+2048], {%r10, %r10, %r10, %r10};\nfence.proxy.async.shared::cta;\n\
    bar.sync 0;\nmov.u64 %rd2, 0x1000080000; mov.u64 %rd3, 0x1000080080;\n\
    mov.b32 %f0, 0f00000000; mov.b32 %f1, %f0; mov.b32 %f2, %f0; mov.b32 %f3, %f0;\n\
    wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 \
    {%f0, %f1, %f2, %f3}, %rd2, %rd3, %p3, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n";
const PRODUCT_WAIT: &str = "wgmma.wait_group.sync.aligned 0;\n";
const BAR: &str = "bar.sync 0;\n";

#[test]
fn operands_stay_until_their_product_is_waited_for() {
    let refill = "st.shared.u32 [%r4+2048], 1;\n";
    let race = FindingKind::SharedRace;
    clean(&[PRODUCT, PRODUCT_WAIT, BAR, refill].concat(), 1);
    // A warp's own rows are its own: any of its lanes may fill them again.
    clean(&[PRODUCT, PRODUCT_WAIT, "st.shared.u32 [%r4], 1;\n"].concat(), 1);
    // A product of a later group may be under way still.
    let other = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;\n";
    clean(&[PRODUCT, other, BAR, refill].concat(), 1);
    // What it does not read may be written.
    clean(&[PRODUCT, "@%p1 st.shared.u32 [s+2304], 1;\n", PRODUCT_WAIT].concat(), 1);
    let words = "reads until a wgmma.wait_group";
    racy(&[PRODUCT, BAR, refill, PRODUCT_WAIT].concat(), 1, race, words);
    racy(&[PRODUCT, BAR, refill, BAR, PRODUCT_WAIT].concat(), 1, race, words);
    let one = "wgmma.wait_group.sync.aligned 1;\n";
    racy(&[PRODUCT, one, BAR, refill, PRODUCT_WAIT].concat(), 1, race, words);
    // Without a barrier other warps may not have issued theirs, which a fence must precede, too.
    for found in findings(&[PRODUCT, PRODUCT_WAIT, refill].concat(), 1) {
        assert!(found.iter().any(|finding| finding.kind == race));
    }

    let copy = "@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd4, [b], 256;\n\
                @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s+2048], \
                [%rd1], 256, [b];\n";
    clean(&[PRODUCT, PRODUCT_WAIT, BAR, copy, WAIT].concat(), 1);
    racy(&[PRODUCT, BAR, copy, PRODUCT_WAIT, WAIT].concat(), 1, race, words);
}

#[test]
fn sources_stay_until_their_copy_has_read_them() {
    let store = "fence.proxy.async.shared::cta;\nbar.sync 0;\n\
                 mul.wide.u32 %rd2, %r1, 0; mov.u32 %r11, %ctaid.x; mul.wide.u32 %rd2, %r11, 512;\n\
                 add.s64 %rd2, %rd1, %rd2;\n\
                 @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 512;\n\
                 @%p1 cp.async.bulk.commit_group;\n";
    let wait = "@%p1 cp.async.bulk.wait_group.read 0;\n";
    let race = FindingKind::SharedRace;
    let fill = "st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1};\n";
    clean(&[fill, store, wait, BAR, STORE].concat(), 1);
    let words = "reads until a cp.async.bulk.wait_group.read";
    let again = "add.u32 %r12, %r1, 5; st.shared.u32 [%r4], %r12;\n";
    racy(&[fill, store, BAR, again, BAR, wait].concat(), 1, race, words);
}

/// Lanes that read and write a part of a word each do not meet; one that takes the whole word does.
#[test]
fn parts_of_a_word_have_lanes_of_their_own() {
    for (bits, bytes) in [(16, 2), (8, 1)] {
        let place = format!(
            "mov.u32 %r10, %ctaid.x; shl.b32 %r10, %r10, 7; add.u32 %r10, %r10, %r1;\n\
             mul.wide.u32 %rd2, %r10, {bytes}; add.s64 %rd2, %rd1, %rd2;\n\
             and.b64 %rd3, %rd2, -4;\n"
        );
        let load = format!("ld.global.u{bits} %r11, [%rd2];\n");
        let store = format!("st.global.u{bits} [%rd2], %r11;\n");
        let word = "ld.global.u32 %r12, [%rd3];\n";
        clean(&[&place[..], &load, &store, &load].concat(), 1);
        clean(&[&place[..], &load, &store, "bar.warp.sync 0xffffffff;\n", word].concat(), 1);
        let race = FindingKind::WarpRace;
        racy(&[&place[..], &load, &store, word].concat(), 1, race, "load of 4 bytes");
        racy(&[&place[..], word, &load, &store].concat(), 1, race, "load of 4 bytes");
    }
}
