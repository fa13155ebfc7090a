//! What gradients of attention cost, counted: products of the tiles that are attended to, operands
//! read once for each tile, no conflict, and no register in memory.

use kiln::device::Counters;
use kiln::engine::{self, EngineConfig};
use kiln::graph::{Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath};
use kiln::kernel::Grid;
use kiln::target::Target;
use kiln::{DType, reference};

use crate::attention::backward_cases::{self, ENGINES};
use crate::attention::cases::{Case, Storage};
use crate::attention::counters::{attends, tiles};
use crate::attention::registers::operations;
use crate::harness::{self, Values, conflicts};

const SHAPE: AttentionShape = AttentionShape {
    batches: 1,
    heads: 2,
    kv_heads: 1,
    queries: 256,
    keys: 256,
    depth: 64,
    width: 64,
};

fn case(band: Band, shape: AttentionShape) -> Case {
    let op = Attention { band, ..Attention::new(MatmulMath::F32) };
    let storage = [Storage { alignment: 256, ..Storage::packed(DType::F16) }; 4];
    backward_cases::case_of(AttentionBackward::new(op), shape, storage, [true; 4], 1)
}

/// The settings of each way to sum dQ, with tiles of so many keys and queries for dK and dV.
fn forms(cta_k: i64, step_q: i64) -> [(&'static str, EngineConfig); 3] {
    let of = |rest: &str| {
        format!("attention_backward_mma{{cta_k={cta_k}, {rest}, step_q={step_q}}}").parse().unwrap()
    };
    [
        ("own", of("cta_q=128, dq=0, step_k=32")),
        ("ordered", of("cta_q=0, dq=1, step_k=0")),
        ("unordered", of("cta_q=0, dq=2, step_k=0")),
    ]
}

/// Where dQ has a kernel of its own, S, dP and dQ in that, and S, dP, dK and dV in the other;
/// five products of each tile where blocks of keys add to dQ.
#[test]
fn products_are_those_of_tiles_that_are_attended_to() {
    let odd = AttentionShape { queries: 200, keys: 230, ..SHAPE };
    for (shape, left, right) in [
        (SHAPE, None, None),
        (SHAPE, None, Some(0)),
        (odd, None, Some(0)),
        (odd, Some(70), Some(0)),
        (odd, Some(10), Some(10)),
        (odd, Some(20), None),
    ] {
        let band = Band { diagonal: Diagonal::BottomRight, left, right };
        let case = case(band, shape);
        let of_tiles = |cta_q: i64, cta_k: i64| {
            (shape.heads * tiles(&shape, cta_q, cta_k, attends(&shape, band)) * cta_q * cta_k * 64)
                as u64
        };
        for (form, config) in forms(64, 32) {
            let want = match form {
                "own" => vec![0, 3 * of_tiles(128, 32), 4 * of_tiles(32, 64)],
                _ => vec![0, 5 * of_tiles(32, 64), 0],
            };
            let counts = harness::count_each(&case.graph, &config, &case.inputs);
            let done =
                |of: &Counters| -> u64 { of.products.iter().map(|of| of.multiply_adds).sum() };
            assert_eq!(counts.iter().map(done).collect::<Vec<_>>(), want, "{config} {band:?}");
            let conflicts: Vec<u64> = counts.iter().map(conflicts).collect();
            assert_eq!(conflicts, [0, 0, 0], "{config} {band:?}");
        }
    }
}

/// So do products of tf32, and of heads of which two warps share keys; no access to shared memory
/// waits for a bank.
#[test]
fn products_of_every_kind_have_no_conflicts() {
    use DType::{Bf16, F32};
    use MatmulMath::Tf32;
    for (math, dtype, depth, width, cta_k, step_q) in [
        (Tf32, F32, 64, 64, 64, 32),
        (Tf32, F32, 128, 96, 32, 16),
        (MatmulMath::F32, Bf16, 256, 256, 32, 32),
        (MatmulMath::F32, Bf16, 192, 128, 32, 16),
    ] {
        let shape = AttentionShape { queries: 128, keys: 128, depth, width, ..SHAPE };
        let storage = [Storage { alignment: 256, ..Storage::packed(dtype) }; 4];
        let op = AttentionBackward::new(Attention::new(math));
        let case = backward_cases::case_of(op, shape, storage, [true; 4], 1);
        let scores = (shape.heads * shape.queries * shape.keys) as u64;
        let [depth, width] = [depth, width].map(|of| of as u64);
        for (form, config) in forms(cta_k, step_q) {
            let config =
                if form == "own" { config.with("cta_q", 64).with("step_k", 16) } else { config };
            let counts = harness::count_each(&case.graph, &config, &case.inputs);
            let done =
                |of: &Counters| -> u64 { of.products.iter().map(|of| of.multiply_adds).sum() };
            let want = match form {
                "own" => [0, scores * (2 * depth + width), scores * 2 * (depth + width)],
                _ => [0, scores * (3 * depth + 2 * width), 0],
            };
            let what = format!("{config} {dtype} {depth} {width}");
            assert_eq!(counts.iter().map(done).collect::<Vec<_>>(), want, "{what}");
            let conflicts: Vec<u64> = counts.iter().map(conflicts).collect();
            assert_eq!(conflicts, [0, 0, 0], "{what}");
        }
    }
}

/// A block reads its tile of keys once, and all queries that attend to it once; what is added to dQ
/// is as much as its tile.
#[test]
fn tiles_are_read_once_for_a_tile() {
    let case = case(Band::default(), SHAPE);
    let bytes = |heads: i64| 2 * (heads * 256 * 64) as u64;
    let (of_queries, of_keys) = (2 * bytes(2), 2 * bytes(1));
    // lse and delta of every query.
    let rows = 2 * 4 * 2 * 256;
    // Two tiles of keys read all queries of both heads.
    let of_dk_dv = of_keys + 2 * (of_queries + rows) + of_keys;
    // In f32.
    let dq = 2 * bytes(2);
    for (form, config) in forms(128, 64) {
        let counts = harness::count_each(&case.graph, &config, &case.inputs);
        let [delta, first, second] = &counts[..] else { panic!("{config}: three kernels") };
        let moved = |of: &Counters| of.total.global.bytes;
        match form {
            "own" => {
                // Two tiles of queries of two heads read all keys, four lanes what a row needs.
                let want = of_queries + 4 * rows + 4 * of_keys + bytes(2);
                assert_eq!(moved(first), want);
                assert_eq!(moved(second), of_dk_dv);
                // Tensors of the least alignment may take a sector more.
                let least = of_keys + of_queries + rows;
                assert!((least..=least + 64).contains(&second.dram_read_bytes));
                assert_eq!(second.dram_written_bytes, of_keys);
            }
            "ordered" => {
                // Two tickets, and for each of 8 tiles of dQ two blocks that count; what waits
                // reads a counter again and again.
                assert!(moved(first) >= of_dk_dv + 2 * dq + 2 * 4 + 8 * (2 + 1) * 4);
                assert_eq!(first.dram_written_bytes, of_keys + dq + 64);
                assert!(moved(second) >= dq + bytes(2));
            }
            _ => {
                assert_eq!(moved(first), of_dk_dv + 2 * dq);
                assert_eq!(moved(second), dq + bytes(2));
                assert_eq!(moved(delta), of_queries + rows / 2 + dq);
            }
        }
    }
}

/// Whichever blocks and warps run first, dQ is added in one order, and no block waits for ever.
#[test]
fn orders_of_blocks_change_no_bit() {
    let shape =
        AttentionShape { batches: 2, heads: 4, kv_heads: 2, queries: 150, keys: 170, ..SHAPE };
    let plain = Band::default();
    for band in [
        plain,
        Band { right: Some(0), diagonal: Diagonal::BottomRight, ..plain },
        Band { left: Some(40), right: Some(5), ..plain },
        Band { left: Some(30), diagonal: Diagonal::BottomRight, ..plain },
    ] {
        let case = case(band, shape);
        let expected = reference::evaluate(&case.graph, &case.inputs).unwrap();
        for (form, config) in forms(32, 16) {
            let mut first: Option<Values> = None;
            for seed in 0..4 {
                let kiln = harness::simulated_by_turns("sim", seed).expect("the simulator opens");
                let plan = kiln.plan_with(&case.graph, &config).unwrap();
                let results = harness::run_plan(kiln, &plan, &case.inputs).unwrap();
                let what = format!("{config}, seed {seed}");
                harness::compare_with(&expected, &case.graph, &case.inputs, &results, &what);
                let first = first.get_or_insert_with(|| results.clone());
                assert!(form == "unordered" || *first == results, "{what}");
            }
        }
    }
}

/// On FP32 cores, with heads of whole warps of elements.
#[test]
fn shared_memory_has_no_conflicts() {
    let storage = [Storage { alignment: 256, ..Storage::packed(DType::F32) }; 4];
    let op = Attention { bias: true, ..Attention::new(MatmulMath::F32) };
    let op = AttentionBackward { dbias: true, ..AttentionBackward::new(op) };
    let shape = AttentionShape { queries: 64, keys: 64, ..SHAPE };
    let case = backward_cases::case_of(op, shape, storage, [true; 4], 1);
    for config in [
        "attention_backward_simt{cta_k=16, cta_q=16}",
        "attention_backward_simt{cta_k=32, cta_q=32}",
    ] {
        let counters = harness::count(&case.graph, Some(&config.parse().unwrap()), &case.inputs);
        assert_eq!(conflicts(&counters), 0, "{config}");
    }
}

/// Gradients of what is broadcast strongly keep every SM busy: several blocks share a tile, each
/// with a part of the queries, and another kernel adds up their sums in order.
#[test]
fn broadcast_operands_have_blocks_for_all_sms() {
    let shape = AttentionShape { batches: 3, queries: 90, keys: 70, depth: 16, width: 16, ..SHAPE };
    // It has four, as many as this shape has blocks for.
    let target = &Target::sim();
    for (what, slopes, broadcast) in [
        ("slopes of heads", true, [true; 4]),
        ("one number", false, [false; 4]),
        ("a number of each key", false, [false, false, false, true]),
        ("a number of each query", false, [false, false, true, false]),
        ("a number of each head and query", false, [false, true, true, false]),
    ] {
        let op = Attention { slopes, bias: !slopes, ..Attention::new(MatmulMath::F32) };
        let op =
            AttentionBackward { dslopes: slopes, dbias: !slopes, ..AttentionBackward::new(op) };
        for (engine, dtype) in ENGINES.into_iter().zip([DType::F16, DType::F16, DType::F64]) {
            let mut op = op.clone();
            if dtype == DType::F64 {
                op.forward.math = MatmulMath::F64;
            }
            let storage = [Storage::packed(dtype); 4];
            let case = backward_cases::case_of(op, shape, storage, broadcast, 1);
            let supported = engine::supported(engine, case.graph.canonical(), target).unwrap();
            let config = supported.heuristic();
            let kernels = supported.lower(&config).unwrap().kernels;
            let [.., own, combine] = &kernels[..] else { panic!("{what}: kernels") };
            assert_eq!(combine.spec.entry, "attention_backward_combine", "{what}: {config}");
            let Grid::Fixed(blocks) = own.launch.grid else { panic!("{what}: a fixed grid") };
            let blocks = blocks.count();
            assert!(blocks >= target.sm_count, "{what}: {config}: {blocks} blocks");
            let kiln = harness::kiln();
            let results = || harness::run(kiln, &case.graph, Some(&config), &case.inputs).unwrap();
            harness::check(kiln, &case.graph, Some(&config), &case.inputs, what);
            assert_eq!(results(), results(), "{what}: {config}");
        }
    }
}

/// A sample: `KILN_TEST_ALL=1` (`make spills`) compiles all.
#[test]
fn defaults_spill_nothing() {
    let mut graphs = Vec::new();
    let (half, tf32) = ((DType::Bf16, MatmulMath::F32), (DType::F32, MatmulMath::Tf32));
    for (depth, width, (dtype, math)) in [
        (64, 64, half),
        (96, 96, half),
        (128, 128, half),
        (192, 128, half),
        (256, 256, half),
        (64, 64, tf32),
        (128, 128, tf32),
    ] {
        let shape = AttentionShape {
            batches: 2,
            heads: 32,
            kv_heads: 8,
            queries: 2048,
            keys: 2048,
            depth,
            width,
        };
        let [_, causal, model, all, _, _, dropped, _] = operations(&shape);
        for op in [causal, model, dropped, all] {
            let (bias, sinks) = (op.bias, op.sinks);
            let op = Attention { math, ..op };
            let op = AttentionBackward { dbias: bias, dsinks: sinks, ..AttentionBackward::new(op) };
            let storage = [Storage::packed(dtype); 4];
            graphs.push(backward_cases::graph(&op, shape, storage, [true; 4]));
        }
    }
    let targets = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];
    let sources = harness::default_sources(&ENGINES, &targets, &graphs);
    harness::compile_without_spills(&harness::sampled(sources, 16));
}
