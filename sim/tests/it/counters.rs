//! Counts against what they are by hand.

use crate::run::{golden, line, params, text};
use kiln_sim::{
    Counters, Device, DeviceConfig, Estimate, InstructionClass, Launch, Limit, Machine, Module,
    Occupancy, Operands, Part, Resources,
};

const TARGETS: [&str; 2] = ["sm_80", "sm_120"];

fn module(target: &str) -> Module {
    Module::load(&text(&format!("cuda/counters.{target}.ptx"))).unwrap()
}

/// The counts of a kernel with buffers of `bytes` each and then `n`, if it takes that.
fn count(target: &str, name: &str, shape: Launch, bytes: &[u64], n: Option<u64>) -> Counters {
    let device = Device::new(DeviceConfig::default());
    let kernel = module(target).kernel(name).unwrap();
    let buffers = bytes.iter().map(|&bytes| device.alloc(bytes).unwrap());
    let arguments: Vec<u64> = buffers.chain(n).collect();
    let shape = Launch { counters: true, ..shape };
    let report = device.launch(&kernel, &shape, &params(&kernel, &arguments)).unwrap();
    *report.counters.unwrap()
}

fn warps(counters: &Counters, class: InstructionClass) -> u64 {
    counters.class(class).warp_instructions
}

#[test]
fn a_copy_by_hand() {
    for target in TARGETS {
        // 4 blocks of 8 warps load and store once.
        let counters = count(target, "copy", line(4, 256), &[4096, 4096], None);
        assert_eq!(warps(&counters, InstructionClass::LoadGlobal), 32);
        assert_eq!(warps(&counters, InstructionClass::StoreGlobal), 32);
        assert_eq!(warps(&counters, InstructionClass::LoadParam), 2 * 32);
        // `ret`, and nothing else that moves control.
        assert_eq!(warps(&counters, InstructionClass::Control), 32);
        let total = counters.total;
        assert_eq!(total.lane_instructions, 32 * total.warp_instructions);
        assert_eq!(total.active_lanes(), 32.0);
        assert_eq!(total.diverged, 0);
        // A warp's 32 words are 128 bytes: 4 sectors, 1 line.
        assert_eq!(total.global.requests, 64);
        assert_eq!(total.global.bytes, 64 * 128);
        assert_eq!(total.global.sectors, 64 * 4);
        assert_eq!(total.global.lines, 64);
        assert_eq!(total.global.sectors_per_request(), 4.0);
        // L1 may hold what is loaded, but not before it came once.
        assert_eq!(total.global.cached_sectors, 32 * 4);
        assert_eq!(total.global.beyond_l1(4096), 2 * 4096);
        assert_eq!(total.global.beyond_l1(1024), 4096 + 1024);
        assert_eq!((counters.dram_read_bytes, counters.dram_written_bytes), (4096, 4096));
    }
    // The 14 instructions of the text from compute_80.
    let counters = count("sm_80", "copy", line(4, 256), &[4096, 4096], None);
    assert_eq!(counters.total.warp_instructions, 14 * 32);
}

#[test]
fn a_strided_copy_by_hand() {
    for target in TARGETS {
        let buffers = [1024 * 64, 4096];
        let counters = count(target, "strided_copy", line(4, 256), &buffers, None);
        let total = counters.total;
        // A lane's word is 64 bytes from the next lane's: 32 sectors, and 2 lanes to a line. The
        // stores are as in the plain copy.
        assert_eq!(total.global.sectors, 32 * 32 + 32 * 4);
        assert_eq!(total.global.lines, 32 * 16 + 32);
        assert_eq!(total.global.bytes, 64 * 128);
        // 1024 sectors for 1024 words.
        assert_eq!((counters.dram_read_bytes, counters.dram_written_bytes), (32 * 1024, 4096));
    }
}

#[test]
fn a_reduction_by_hand() {
    for target in TARGETS {
        let counters = count(target, "reduction", line(2, 256), &[2048, 8], None);
        let total = counters.total;
        // 8 steps, at each of which 8 warps of 2 blocks wait.
        assert_eq!(warps(&counters, InstructionClass::Barrier), 2 * 8 * 8);
        // 128, 64 and 32 threads add as 4, 2 and 1 whole warps, 16 to 1 as a part of one.
        let adds = counters.class(InstructionClass::F32);
        assert_eq!(adds.warp_instructions, 2 * (4 + 2 + 1 + 5));
        assert_eq!(adds.lane_instructions, 2 * (128 + 64 + 32 + 16 + 8 + 4 + 2 + 1));
        // The five parts of a warp, and the thread that writes the sum.
        assert_eq!(total.diverged, 2 * (5 + 1));
        // Two operands of each sum and the result; each sum, and every warp's input.
        assert_eq!(total.shared_loads.requests, 2 * (2 * 12 + 1));
        assert_eq!(total.shared_stores.requests, 2 * (12 + 8));
        assert_eq!(total.shared_loads.conflicts + total.shared_stores.conflicts, 0);
        // 8 warps load 4 sectors each; one lane stores.
        assert_eq!(total.global.requests, 2 * (8 + 1));
        assert_eq!(total.global.sectors, 2 * (8 * 4 + 1));
        assert_eq!(total.global.bytes, 2 * (1024 + 4));
        // The sums of both blocks are in one sector.
        assert_eq!((counters.dram_read_bytes, counters.dram_written_bytes), (2048, 32));
    }
}

fn product(target: &str, name: &str) -> Counters {
    let shape = Launch { grid: [2, 2, 1], block: [32, 8, 1], ..line(1, 1) };
    let shape = Launch { bytes_min: Some(3 * 64 * 64 * 4), ..shape };
    count(target, name, shape, &[64 * 64 * 4; 3], Some(64))
}

#[test]
fn a_product_by_hand() {
    for target in TARGETS {
        let even = product(target, "product_even");
        let total = even.total;
        // 4 blocks of 8 warps go through 2 tiles each.
        let turns = 4 * 8 * 2;
        // A turn loads 4 rows of A's tile and 4 of B's, each of 128 bytes; a warp stores 4 rows.
        assert_eq!(total.global.requests, turns * 8 + 4 * 8 * 4);
        assert_eq!(total.global.sectors, total.global.requests * 4);
        // Every word of A and B is read, by 2 blocks each, and every word of C is written.
        assert_eq!(even.dram_read_bytes, 2 * 64 * 64 * 4);
        assert_eq!(even.dram_written_bytes, 64 * 64 * 4);
        assert_eq!(Some(even.dram_bytes()), even.bytes_min);
        // 64^3 products, all lanes at work.
        let products = even.class(InstructionClass::F32);
        assert_eq!(products.lane_instructions, 64 * 64 * 64);
        assert_eq!(products.warp_instructions, 64 * 64 * 64 / 32);
        // A step of 32 takes 4 words of A, which all lanes share, and 32 of B, one a lane.
        assert_eq!(total.shared_loads.requests, turns * 32 * 5);
        assert_eq!(total.shared_loads.wavefronts, total.shared_loads.requests);
        // The 4 rows of A are stored as columns: 32 words from lane to lane, all in one bank.
        assert_eq!(total.shared_stores.requests, turns * 8);
        assert_eq!(total.shared_stores.wavefronts, turns * (4 * 32 + 4));
        assert_eq!(total.shared_stores.conflicts, turns * 4 * 31);
        // A row of 33 words puts them in 32 banks.
        let padded = product(target, "product_padded").total;
        assert_eq!(padded.shared_stores.wavefronts, turns * 8);
        assert_eq!(padded.shared_stores.conflicts, 0);
        // The conflicts are where the source stores A's tile.
        let worst = even.sources.iter().max_by_key(|s| s.count.shared_stores.conflicts).unwrap();
        assert_eq!((worst.file.as_str(), worst.line), ("counters.cu", 40));
        assert_eq!(worst.count.shared_stores.conflicts, turns * 4 * 31);
    }
}

/// A warp loads 8 or 16 bytes per lane. Of pairs of lanes one or two apart that load the same, the
/// words of both come at once; of lanes four apart that do, they do not.
#[test]
fn pairs_of_lanes_by_hand() {
    let loads = |shared: &str, bytes: u32, first: u32| {
        let (vector, registers) = match bytes {
            8 => ("v2", "{%r2, %r3}"),
            _ => ("v4", "{%r2, %r3, %r4, %r5}"),
        };
        let module = Module::load(&format!(
            ".version 8.0 .target sm_80 .address_size 64
             .visible .entry loads() {{
                 .reg .pred %p<1>;
                 .reg .b32 %r<6>;
                 .shared .align 16 .b8 tile[512];
                 mov.u32 %r0, %tid.x;
                 setp.lt.u32 %p0, %r0, {first};
                 {shared}
                 mul.lo.u32 %r1, %r0, {bytes};
                 mov.u32 %r2, tile;
                 add.s32 %r1, %r1, %r2;
                 @!%p0 ld.shared.{vector}.b32 {registers}, [%r1];
                 ret;
             }}"
        ));
        let device = Device::new(DeviceConfig::default());
        let shape = Launch { counters: true, ..line(1, 32) };
        let kernel = module.unwrap().kernel("loads").unwrap();
        let shared =
            device.launch(&kernel, &shape, &[]).unwrap().counters.unwrap().total.shared_loads;
        (shared.wavefronts, shared.conflicts, shared.paired)
    };
    let alone = "";
    assert_eq!(loads(alone, 16, 0), (4, 0, 0));
    assert_eq!(loads(alone, 8, 0), (2, 0, 0));
    let one_apart = "shr.u32 %r0, %r0, 1;";
    assert_eq!(loads(one_apart, 16, 0), (2, 0, 2));
    assert_eq!(loads(one_apart, 8, 0), (1, 0, 1));
    // A lane that loads nothing is alike to its neighbour.
    assert_eq!(loads(one_apart, 16, 5), (2, 0, 2));
    let two_apart =
        "shr.u32 %r1, %r0, 2; shl.b32 %r1, %r1, 1; and.b32 %r0, %r0, 1; or.b32 %r0, %r0, %r1;";
    assert_eq!(loads(two_apart, 16, 0), (2, 0, 2));
    let four_apart = "and.b32 %r0, %r0, 27;";
    assert_eq!(loads(four_apart, 16, 0), (4, 0, 0));
    // All of them, and those in the way of each other: two of 16 bytes, 256 bytes apart.
    assert_eq!(loads("mov.u32 %r0, 3;", 16, 0), (2, 0, 2));
    let in_one_bank = "and.b32 %r0, %r0, 1; shl.b32 %r0, %r0, 4;";
    assert_eq!(loads(in_one_bank, 16, 0), (4, 2, 2));
}

/// A warp copies 16 bytes per lane; the upper half of its lanes ask for 4 and fill up with zeros.
#[test]
fn asynchronous_copies_by_hand() {
    let module = Module::load(
        ".version 8.0 .target sm_80 .address_size 64
         .visible .entry copies(.param .u64 from) {
             .reg .pred %p<1>;
             .reg .b32 %r<4>;
             .reg .b64 %rd<4>;
             .shared .align 16 .b8 tile[512];
             ld.param.u64 %rd0, [from];
             mov.u32 %r0, %tid.x;
             shl.b32 %r1, %r0, 4;
             cvt.u64.u32 %rd1, %r1;
             add.s64 %rd2, %rd0, %rd1;
             setp.lt.u32 %p0, %r0, 16;
             selp.b32 %r2, 16, 4, %p0;
             mov.u32 %r3, tile;
             add.s32 %r3, %r3, %r1;
             cp.async.cg.shared.global [%r3], [%rd2], 16, %r2;
             cp.async.wait_all;
             ret;
         }",
    )
    .unwrap();
    let device = Device::new(DeviceConfig::default());
    let kernel = module.kernel("copies").unwrap();
    let from = device.alloc(512).unwrap();
    let shape = Launch { counters: true, ..line(1, 32) };
    let report = device.launch(&kernel, &shape, &params(&kernel, &[from])).unwrap();
    let counters = report.counters.unwrap();
    let (global, shared) = (counters.total.global, counters.total.shared_stores);
    assert_eq!((global.requests, global.bytes), (1, 16 * 16 + 16 * 4));
    assert_eq!((global.sectors, global.lines, counters.dram_read_bytes), (16, 4, 512));
    assert_eq!(global.cached_sectors, 0);
    assert_eq!((shared.requests, shared.wavefronts, shared.conflicts), (1, 4, 0));
}

/// Lanes of one copy may read two allocations.
#[test]
fn copies_from_two_allocations() {
    let module = Module::load(
        ".version 8.0 .target sm_80 .address_size 64
         .visible .entry copies(.param .u64 from, .param .u64 other) {
             .reg .pred %p<1>;
             .reg .b32 %r<4>;
             .reg .b64 %rd<4>;
             .shared .align 16 .b8 tile[512];
             ld.param.u64 %rd0, [from];
             ld.param.u64 %rd3, [other];
             mov.u32 %r0, %tid.x;
             shl.b32 %r1, %r0, 4;
             cvt.u64.u32 %rd1, %r1;
             setp.lt.u32 %p0, %r0, 16;
             selp.b64 %rd0, %rd0, %rd3, %p0;
             add.s64 %rd2, %rd0, %rd1;
             mov.u32 %r3, tile;
             add.s32 %r3, %r3, %r1;
             cp.async.cg.shared.global [%r3], [%rd2], 16;
             cp.async.wait_all;
             ret;
         }",
    )
    .unwrap();
    let device = Device::new(DeviceConfig::default());
    let kernel = module.kernel("copies").unwrap();
    let [from, other] = [256, 512].map(|bytes| device.alloc(bytes).unwrap());
    let shape = Launch { counters: true, ..line(1, 32) };
    let report = device.launch(&kernel, &shape, &params(&kernel, &[from, other])).unwrap();
    let counters = report.counters.unwrap();
    let global = counters.total.global;
    assert_eq!((global.bytes, global.sectors, counters.dram_read_bytes), (512, 16, 512));
}

#[test]
fn matrix_products_by_hand() {
    let module = Module::load(
        ".version 8.0 .target sm_80 .address_size 64
         .visible .entry products() {
             .reg .b32 %r<8>;
             .reg .f32 %f<4>;
             mov.b32 %r0, 0;
             mov.f32 %f0, 0f00000000;
             mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
                 {%f0, %f1, %f2, %f3}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%f0, %f0, %f0, %f0};
             mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
                 {%f0, %f1, %f2, %f3}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%f0, %f0, %f0, %f0};
             mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
                 {%r1, %r2, %r3, %r4}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%r0, %r0, %r0, %r0};
             ret;
         }",
    )
    .unwrap();
    let shape = Launch { counters: true, ..line(216, 128) };
    let kernel = module.kernel("products").unwrap();
    let device = Device::new(DeviceConfig::default());
    let counters = *device.launch(&kernel, &shape, &[]).unwrap().counters.unwrap();
    let warps = 216 * 4;
    let of = |operands| counters.products.iter().find(|count| count.operands == operands).unwrap();
    let (half, int8) = (of(Operands::Half), of(Operands::Int8));
    assert_eq!(counters.products.len(), 2);
    assert_eq!((half.warp_instructions, half.multiply_adds), (2 * warps, 2 * warps * 16 * 8 * 16));
    assert_eq!((int8.warp_instructions, int8.multiply_adds), (warps, warps * 16 * 8 * 32));
    // The two f16 products of a warp take as long as the one of twice the rate and depth: 3 x 4096
    // operations at the rate of f16, of all 108 SMs.
    let estimate = Estimate::of(&counters, &Machine::A100, 216, 128, Resources::default());
    let bound = estimate.binds().unwrap();
    assert_eq!(bound.part, Part::Tensor);
    let us = (warps * 3 * 4096) as f64 / 312e12 * 1e6;
    assert!((bound.us - us).abs() < us * 1e-9, "{} {us}", bound.us);
    // Half of the SMs take twice as long.
    let estimate = Estimate::of(&counters, &Machine::A100, 54, 128, Resources::default());
    assert!((estimate.binds().unwrap().us - 2.0 * us).abs() < us * 1e-9);
}

#[test]
fn tables() {
    let counters = product("sm_80", "product_even");
    let resources = Resources { registers: 40, shared_bytes: 8192 };
    let mut text = counters.to_string();
    for machine in Machine::ALL {
        text += &Estimate::of(&counters, &machine, 4, 256, resources).to_string();
    }
    golden("reports/product.txt", &text);
}

#[test]
fn counts_are_the_same_every_time() {
    let run = |workers, seed| {
        let device = Device::new(DeviceConfig { workers, seed, ..DeviceConfig::default() });
        let kernel = module("sm_120").kernel("product_even").unwrap();
        let buffers = [0; 3].map(|_| device.alloc(64 * 64 * 4).unwrap());
        let shape = Launch { grid: [2, 2, 1], block: [32, 8, 1], counters: true, ..line(1, 1) };
        let arguments = [&buffers[..], &[64]].concat();
        device.launch(&kernel, &shape, &params(&kernel, &arguments)).unwrap()
    };
    let first = run(1, 0);
    for (workers, seed) in [(1, 0), (2, 0), (4, 0), (1, 1), (2, 99)] {
        assert_eq!(run(workers, seed), first);
    }
}

#[test]
fn occupancy_by_hand() {
    let of = |threads, registers, shared_bytes| {
        Occupancy::of(&Machine::H100, threads, Resources { registers, shared_bytes })
    };
    // 64 registers of 32 lanes are 2048; a quarter of 65536 holds 8 such warps.
    let full = of(256, 64, 0);
    assert_eq!((full.blocks, full.warps, full.limit), (4, 32, Limit::Registers));
    assert_eq!(full.share, 0.5);
    // 228 KiB over 48 KiB and the 1 KiB that a block costs.
    let shared = of(128, 32, 48 << 10);
    assert_eq!((shared.blocks, shared.warps, shared.limit), (4, 16, Limit::Shared));
    assert_eq!(of(1024, 32, 0).blocks, 2);
    assert_eq!((of(32, 32, 0).blocks, of(32, 32, 0).limit), (32, Limit::Blocks));
    assert_eq!(of(1024, 128, 0).blocks, 0);
}

#[test]
fn an_estimate_by_hand() {
    let counters = count("sm_80", "copy", line(1080, 256), &[1080 * 1024; 2], None);
    let machine = Machine::A100;
    let estimate = Estimate::of(&counters, &machine, 1080, 256, Resources::default());
    let of = |part| estimate.bounds.iter().find(|bound| bound.part == part).unwrap();
    let close = |have: f64, want: f64| assert!((have - want).abs() < want * 1e-9, "{have} {want}");
    // 2 x 1080 KiB at 2.039 TB/s.
    close(of(Part::Dram).us, 2.0 * 1080.0 * 1024.0 / 2.039e12 * 1e6);
    // 8640 warps of 14 instructions, 4 a clock on 108 SMs at 1.41 GHz.
    close(of(Part::Issue).us, 8640.0 * 14.0 / 4.0 / 108.0 / 1.41e9 * 1e6);
    // A load and a store of each warp, a warp a clock.
    close(of(Part::LoadStore).us, 8640.0 * 2.0 / 108.0 / 1.41e9 * 1e6);
    assert_eq!(estimate.binds().unwrap().part, Part::Dram);
    assert_eq!(estimate.binds().unwrap().share, 1.0);
    assert_eq!(estimate.filled, 1.0);
    assert_eq!(Machine::named("rtx4090").unwrap().name, "RTX 4090");
}

/// TMA copies of 208 bytes from the middle of a sector on, there and back.
#[test]
fn bulk_copies_by_hand() {
    let text = ".version 8.6\n.target sm_90a\n.address_size 64\n\
                .visible .entry k(.param .u64 from, .param .u64 to)\n{\n\
                .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd<3>;\n\
                .shared .align 16 .b8 s[208]; .shared .align 8 .b8 full[8];\n\
                ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; add.u64 %rd1, %rd1, 16;\n\
                mov.u32 %r1, s; mov.u32 %r2, full; mbarrier.init.shared.b64 [%r2], 1;\n\
                fence.proxy.async.shared::cta;\n\
                mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 208;\n\
                cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes \
                [%r1], [%rd1], 208, [%r2];\n\
                WAIT: mbarrier.try_wait.parity.shared.b64 %p, [%r2], 0; @!%p bra WAIT;\n\
                cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 208;\n\
                cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nret;\n}\n";
    let device = Device::new(DeviceConfig::default());
    let kernel = Module::load(text).unwrap().kernel("k").unwrap();
    let [from, to] = [0; 2].map(|_| device.alloc(256).unwrap());
    let shape = Launch { counters: true, ..line(1, 1) };
    let report = device.launch(&kernel, &shape, &params(&kernel, &[from, to])).unwrap();
    let counters = report.counters.unwrap();
    // Bytes 16 to 223 are of sectors 0 to 6, bytes 0 to 207 too: of two lines each.
    let global = counters.total.global;
    assert_eq!((global.requests, global.bytes, global.sectors, global.lines), (2, 416, 14, 4));
    assert_eq!((counters.dram_read_bytes, counters.dram_written_bytes), (7 * 32, 7 * 32));
    // What comes goes to shared memory, what goes does not.
    let copies = counters.total.copies;
    assert_eq!((global.cached_sectors, copies.bytes, copies.cluster_bytes), (0, 208, 0));
}

/// The first of two blocks casts 64 bytes of memory to both, then each lane of a warp sends four
/// bytes to the other block.
#[test]
fn copies_within_a_cluster_by_hand() {
    let text = ".version 8.6\n.target sm_90a\n.address_size 64\n\
                .visible .entry k(.param .u64 from) .reqnctapercluster 2 .explicitcluster\n{\n\
                .reg .pred %p<3>; .reg .b16 %rs1; .reg .b32 %r<9>; .reg .b64 %rd<3>;\n\
                .shared .align 16 .b8 s[192]; .shared .align 8 .b8 full[8];\n\
                ld.param.u64 %rd1, [from]; mov.u32 %r1, s; mov.u32 %r2, full;\n\
                mov.u32 %r3, %tid.x; mov.u32 %r4, %cluster_ctarank; mov.u16 %rs1, 3;\n\
                setp.eq.u32 %p0, %r3, 0; setp.eq.and.u32 %p1, %r4, 0, %p0;\n\
                @%p0 mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;\n\
                @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 192;\n\
                barrier.cluster.arrive; barrier.cluster.wait;\n\
                @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes\
                .multicast::cluster [%r1], [%rd1], 64, [%r2], %rs1;\n\
                xor.b32 %r5, %r4, 1; shl.b32 %r6, %r3, 2; add.u32 %r6, %r6, %r1;\n\
                add.u32 %r6, %r6, 64; mapa.shared::cluster.u32 %r7, %r6, %r5;\n\
                mapa.shared::cluster.u32 %r8, %r2, %r5;\n\
                st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r7], %r3, [%r8];\n\
                WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;\n\
                barrier.cluster.arrive; barrier.cluster.wait;\nret;\n}\n";
    let device = Device::new(DeviceConfig::default());
    let kernel = Module::load(text).unwrap().kernel("k").unwrap();
    let from = device.alloc(64).unwrap();
    let shape = Launch { counters: true, ..line(2, 32) };
    let report = device.launch(&kernel, &shape, &params(&kernel, &[from])).unwrap();
    let counters = report.counters.unwrap();
    let copies = counters.total.copies;
    assert_eq!((copies.bytes, copies.cluster_bytes), (2 * 64 + 2 * 128, 2 * 128));
    assert_eq!(copies.cluster_sectors, 2 * 4);
    assert_eq!((counters.total.global.bytes, counters.dram_read_bytes), (64, 64));
}
