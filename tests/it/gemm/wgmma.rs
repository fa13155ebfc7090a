//! Products of warpgroups: what they take, at every edge of a tile, in every setting.

use kiln::DType::{self, *};
use kiln::engine::Operands;
use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Op};
use kiln::{ErrorKind, Kiln, OperationGraph, TensorDesc};

use super::cases::{Case, Fusion, Lay, check, inputs};
use super::fusion::{bias_gelu, not_numbers, rich, two_outputs};
use super::settings::{no_spills, same_bits};
use crate::harness;

const ENGINE: &str = "gemm_wgmma";
const F32: MatmulMath = MatmulMath::F32;

/// The device under test, if it has these products.
fn hopper() -> Option<&'static Kiln> {
    let kiln = harness::kiln();
    let arch = kiln.device().target().arch;
    if arch.to_string() != "sm_90a" {
        println!("skipped: {arch} has no warpgroup MMAs");
    }
    (arch.to_string() == "sm_90a").then_some(kiln)
}

/// Settings for tiles of this size.
fn config([cta_m, cta_n]: [i64; 2], cluster: i64, stages: i64) -> EngineConfig {
    let knobs = [
        ("turns", 0),
        ("cta_m", cta_m),
        ("cta_n", cta_n),
        ("cluster", cluster),
        ("dynamic_m", 0),
        ("group", 4),
        ("raster", 0),
        ("split_k", 1),
        ("stages", stages),
    ];
    EngineConfig::new(ENGINE, &knobs)
}

fn check_at(graph: &OperationGraph, config: &EngineConfig, what: &str) {
    let Some(kiln) = hopper() else { return };
    harness::check(kiln, graph, Some(config), &inputs(graph), &format!("{config}: {what}"));
}

const LAYS: [[Lay; 3]; 5] = [
    [Lay::Rows, Lay::Rows, Lay::Rows],
    [Lay::Rows, Lay::Columns, Lay::Rows],
    [Lay::Columns, Lay::Rows, Lay::Rows],
    [Lay::Columns, Lay::Columns, Lay::Rows],
    [Lay::Columns, Lay::Rows, Lay::Columns],
];

#[test]
fn layouts() {
    for lays in LAYS {
        for (dtype, cluster) in [(F16, 1), (Bf16, 2)] {
            let case = Case::new(F32, [dtype, dtype, dtype], [136, 200, 136]).lays(lays);
            check_at(&case.graph(), &config([64, 128], cluster, 3), &format!("{case:?}"));
        }
    }
}

#[test]
fn types() {
    let cases = [
        (F32, [Bf16, Bf16, DType::F32]),
        (F32, [F16, F16, I8]),
        (MatmulMath::Tf32, [DType::F32, DType::F32, DType::F32]),
        (MatmulMath::Tf32, [F16, F16, Bf16]),
        (MatmulMath::I32, [I8, U8, I32]),
        (MatmulMath::I32, [U8, U8, F16]),
    ];
    for (math, types) in cases {
        let lays = [Lay::Rows, Lay::Columns, Lay::Rows];
        let case = Case::new(math, types, [72, 72, 144]).lays(lays);
        check_at(&case.graph(), &config([128, 64], 1, 3), &format!("{case:?}"));
    }
}

/// One, and one less and more than a tile, a step, a panel; rows of 2 bytes more than a TMA copy
/// can store among them.
#[test]
fn edges() {
    let packed = [Lay::Rows, Lay::Columns, Lay::Rows];
    for [m, n, k] in [[1, 1, 8], [63, 65, 64], [64, 64, 72], [65, 63, 56], [129, 128, 8]] {
        let case = Case::new(F32, [Bf16; 3], [m, n, k]).lays(packed);
        check_at(&case.graph(), &config([64, 64], 1, 3), &format!("{case:?}"));
    }
    for [m, n, k] in [[8, 8, 1], [56, 72, 63], [72, 64, 65], [136, 120, 129]] {
        let case = Case::new(F32, [F16; 3], [m, n, k]).lays([Lay::Columns, Lay::Rows, Lay::Rows]);
        check_at(&case.graph(), &config([128, 64], 2, 4), &format!("{case:?}"));
    }
}

/// More tiles than blocks, more steps than stages: both rings wrap around.
#[test]
fn many_tiles() {
    let tiles = [([64, 64], 1, 0), ([128, 96], 2, 0), ([256, 32], 1, 1), ([64, 128], 2, 1)];
    for (tile, cluster, turns) in tiles {
        let case = Case::new(F32, [Bf16; 3], [520, 200, 328]);
        let case = case.lays([Lay::Columns, Lay::Columns, Lay::Rows]);
        check_at(&case.graph(), &config(tile, cluster, 3).with("turns", turns), "many tiles");
    }
}

#[test]
fn batches() {
    let all: [[&'static [i64]; 2]; 5] =
        [[&[3], &[3]], [&[3], &[1]], [&[1], &[3]], [&[2, 1], &[1, 3]], [&[2, 3], &[2, 3]]];
    for batches in all {
        let case = Case { batches, ..Case::new(F32, [F16; 3], [72, 72, 72]) };
        check_at(&case.graph(), &config([64, 64], 2, 3), &format!("{case:?}"));
    }
}

/// Stored by TMA copies, and staged where they cannot: with operands per element, three outputs
/// or more, rows that are not aligned.
#[test]
fn fusions() {
    let Some(kiln) = hopper() else { return };
    for extents in [[136, 136, 72], [72, 264, 136]] {
        check(kiln, &bias_gelu(extents, Bf16), ENGINE, "bias, gelu");
        check(kiln, &two_outputs(extents, F16), ENGINE, "two outputs");
        check(kiln, &rich(extents, F16), ENGINE, "rich");
        check_at(&swiglu(extents), &config([128, 64], 2, 3), "swiglu");
    }
    let graph = bias_gelu([72, 72, 72], Bf16);
    let text = kiln.sources(&graph, &config([64, 64], 1, 3)).unwrap().remove(0).text;
    assert!(text.contains("store_box(maps.outputs.y"), "{text}");
}

/// A gate and its activation, with a scale per row: two outputs that TMA copies store.
fn swiglu(extents: [i64; 3]) -> OperationGraph {
    let [m, n, k] = extents;
    let mut fusion = Fusion::new((&[m, k], Bf16), (&[k, n], Bf16));
    let scale = fusion.graph.input("scale", &[m, 1], DType::F32);
    let c = fusion.product(fusion.a, fusion.b, F32, Bf16);
    let gate = fusion.unary(Mode::SwishFwd, c, DType::F32);
    let y = fusion.binary(Mode::Mul, [gate, scale], DType::F32);
    fusion.output(c, "c", Bf16);
    fusion.output(y, "y", F16);
    fusion.build()
}

#[test]
fn values_that_are_no_numbers() {
    if let Some(kiln) = hopper() {
        not_numbers(&[kiln], ENGINE, F16, [40, 40, 40]);
    }
}

/// Rows and columns that a batch does not have are 0.
#[test]
fn overridden_rows_and_columns() {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[3, 40, 72], F16);
    let b = graph.input("b", &[1, 72, 72], F16);
    let rows = graph.input("m_override", &[3, 1, 1], I32);
    let columns = graph.input("n_override", &[3, 1, 1], I32);
    let c = graph.tensor(TensorDesc::packed(20, "c", &[3, 40, 72], F16));
    let matmul = Matmul { overrides: [true, true, false], ..Matmul::new(F32) };
    graph.operation_into(Op::Matmul(matmul), &[a, b, rows, columns], &[c]);
    let graph = graph.build().unwrap();
    let mut values = inputs(&graph);
    values.insert(rows, vec![40.0, 17.0, -1.0]);
    values.insert(columns, vec![3.0, 99.0, 72.0]);
    let Some(kiln) = hopper() else { return };
    harness::check(kiln, &graph, Some(&config([64, 64], 1, 3)), &values, "overridden");
}

/// Parts of the depth of every kind: the last one shorter, each of one step, more than stages.
#[test]
fn parts_of_the_depth() {
    let parts = [
        ([136, 72], 136, 2, [64, 64], 1),
        ([65, 200], 456, 4, [128, 128], 1),
        ([264, 136], 504, 8, [64, 64], 2),
    ];
    for ([m, n], k, split_k, tile, cluster) in parts {
        let graph = bias_gelu([m, n, k], Bf16);
        check_at(&graph, &config(tile, cluster, 3).with("split_k", split_k), "parts");
        let batches: [&'static [i64]; 2] = [&[2], &[2]];
        let case = Case { batches, ..Case::new(F32, [F16; 3], [m, n, k]) };
        check_at(&case.graph(), &config([64, 64], 1, 4).with("split_k", split_k), "batches");
    }
}

/// Sums have one order for each number of split-K partials, whatever the other knobs.
#[test]
fn settings_agree() {
    if hopper().is_some() {
        same_bits(&bias_gelu([264, 136, 136], Bf16), ENGINE, 20);
        let packed = [Lay::Rows, Lay::Columns, Lay::Rows];
        let integers = Case::new(MatmulMath::I32, [I8, I8, I32], [136, 72, 272]).lays(packed);
        same_bits(&integers.graph(), ENGINE, 4);
        let tf32 = Case::new(MatmulMath::Tf32, [DType::F32; 3], [136, 72, 72]).lays(packed);
        same_bits(&tf32.graph(), ENGINE, 4);
    }
}

#[test]
fn heuristics_do_not_spill() {
    no_spills(ENGINE, &["h100", "h200", "sim"]);
}

/// Products run on without waiting for each other, which the assembler says where it is not so.
#[test]
fn products_are_not_serialised() {
    let Some(kiln) = hopper() else { return };
    let tiles = [
        ([64, 256], 0),
        ([128, 192], 0),
        ([128, 256], 0),
        ([256, 128], 0),
        ([64, 256], 1),
        ([128, 128], 1),
    ];
    let graphs = [bias_gelu([512, 512, 512], Bf16), two_outputs([512, 512, 512], F16)];
    for (graph, (tile, turns)) in graphs.iter().flat_map(|graph| tiles.map(|tile| (graph, tile))) {
        let config = config(tile, 2, 3).with("turns", turns);
        let plan = kiln.plan_with(graph, &config).unwrap();
        let image = plan.kernels()[0].image();
        assert!(!image.log.contains("wgmma"), "{}", image.log);
        assert_eq!(image.resources.spill_bytes, 0);
        assert!(image.resources.registers <= 255);
    }
}

/// As many products as whole tiles and steps take, no conflict in shared memory, no byte twice from
/// or to memory.
#[test]
fn counts() {
    let kiln = harness::counting();
    let [m, n, k] = [200, 264, 200];
    let packed = [Lay::Rows, Lay::Columns, Lay::Rows];
    for (graph, tile, cluster, turns) in [
        (bias_gelu([m, n, k], Bf16), [128, 64], 2, 0),
        (Case::new(F32, [F16; 3], [m, n, k]).lays(packed).graph(), [128, 96], 1, 1),
        (two_outputs([m, n, k], F16), [64, 128], 1, 1),
        (swiglu([m, n, k]), [256, 64], 1, 0),
    ] {
        let config = config(tile, cluster, 3).with("turns", turns);
        harness::check(&kiln, &graph, Some(&config), &inputs(&graph), "counted");
        let counters = kiln.device().counters().unwrap();
        let [products] = &counters.products[..] else { panic!("{:?}", counters.products) };
        assert_eq!(products.operands, Operands::Half);
        let up = |extent: i64, size: i64| (extent as u64).div_ceil(size as u64);
        let tiles = up(m, tile[0] * cluster) * cluster as u64 * up(n, tile[1]);
        // Each of four warps issues a product of 64 rows, 16 deep.
        let each = 4 * (tile[0] as u64 / 64) * (up(k, 64) * 4);
        assert_eq!(products.warp_instructions, tiles * each, "{config}");
        assert_eq!(harness::conflicts(&counters), 0);
        // Every tensor is moved once, in sectors; it begins in the middle of one.
        let bytes = |of: &TensorDesc| (of.span_bytes().unwrap() + 16).next_multiple_of(32);
        assert_eq!(counters.dram_read_bytes, graph.inputs().map(bytes).sum::<u64>());
        assert_eq!(counters.dram_written_bytes, graph.outputs().map(bytes).sum::<u64>());
    }
}

/// What a part of the depth costs more: sums that go through memory once. The products stay those
/// of whole tiles and steps, every operand is read from memory once.
#[test]
fn counts_of_parts() {
    let kiln = harness::counting();
    let ([m, n, k], split_k) = ([128, 128, 704], 4);
    let graph = bias_gelu([m, n, k], Bf16);
    let config = config([64, 64], 1, 3).with("split_k", split_k);
    let plan = kiln.plan_with(&graph, &config).unwrap();
    let trial = kiln.trial(&plan, &inputs(&graph)).unwrap();
    let counters: Vec<_> = trial.counters.iter().flatten().collect();
    let [multiply, sum] = &counters[..] else { panic!("{} kernels", counters.len()) };
    let [products] = &multiply.products[..] else { panic!("{:?}", multiply.products) };
    let steps = (k as u64).div_ceil(64);
    assert_eq!(products.warp_instructions, 4 * 4 * 4 * steps);
    for counters in [multiply, sum] {
        assert_eq!(harness::conflicts(counters), 0);
        assert!(counters.total.global.sectors * 32 <= counters.total.global.bytes);
    }
    let partials = (split_k * m * n * 4) as u64;
    assert_eq!(multiply.dram_read_bytes, (2 * (m + n) * k) as u64);
    assert_eq!(multiply.dram_written_bytes, partials);
    assert_eq!(sum.total.global.bytes, partials + (2 * m * n) as u64 + 2 * (m * n) as u64);
}

#[test]
fn refusals_name_their_rule() {
    let engine = engine::engine_named(ENGINE).unwrap();
    let refused_for = |target: &str, graph: &OperationGraph, rule: &str| {
        let target = kiln::target::Target::named(target).unwrap();
        let error = engine.support(graph.canonical(), &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let refused = |graph: &OperationGraph, rule: &str| refused_for("h200", graph, rule);
    let case = |types, extents, lays| Case::new(F32, types, extents).lays(lays).graph();
    let rows = [Lay::Rows; 3];
    refused_for("b200", &case([F16; 3], [64, 64, 64], rows), "sm_100a is not sm_90a");
    refused(
        &case([F16, Bf16, F16], [64; 3], rows),
        "a warpgroup has no product of f16 and bf16 in math f32",
    );
    refused(&case([F16; 3], [64, 64, 0], rows), "a TMA copy takes at least one element");
    refused(
        &case([F16; 3], [64, 64, 60], rows),
        "a stride of `a` is 120 bytes, a TMA copy needs multiples of 16",
    );
    refused(
        &case([F16; 3], [64, 64, 64], [Lay::Rows, Lay::Misaligned, Lay::Rows]),
        "`b` is aligned to 2 bytes, a TMA copy needs 16",
    );
    let tf32 = Case::new(MatmulMath::Tf32, [DType::F32; 3], [64; 3]);
    refused(&tf32.graph(), "`b` is not packed along K, as products of f32 need it");
    let batches: [&'static [i64]; 2] = [&[2, 2, 2, 2, 2, 2], &[1, 2, 1, 2, 1, 2]];
    let many = Case { batches, ..Case::new(F32, [F16; 3], [64; 3]) };
    refused(&many.graph(), "`a` has 6 dimensions of batches, a TMA copy 3");
    let mut fusion = Fusion::new((&[64, 64], F16), (&[64, 64], F16));
    let a = fusion.unary(Mode::ReluFwd, fusion.a, F16);
    let c = fusion.product(a, fusion.b, F32, DType::F32);
    let y = fusion.apply(Pointwise::new(Mode::Exp), &[c], DType::F32);
    fusion.output(y, "y", DType::F32);
    let graph = fusion.build();
    let name = &graph.tensor(a).unwrap().name;
    refused(&graph, &format!("operand `{name}` is computed, a TMA copy loads it as it is"));
}

/// Large problems go to warpgroups, small or narrow ones to single warps.
#[test]
fn large_problems_are_taken() {
    let target = kiln::target::Target::named("h200").unwrap();
    let chosen = |extents: [i64; 3]| {
        let graph = Case::new(F32, [Bf16; 3], extents).graph();
        engine::choose(graph.canonical(), &target, &Default::default()).unwrap().engine
    };
    let deep = [128, 128, 16384];
    for extents in [[4096, 4096, 4096], [1024, 1024, 64], [128, 16384, 4096], deep] {
        assert_eq!(chosen(extents), ENGINE, "{extents:?}");
    }
    for extents in [[16, 4096, 4096], [4096, 4096, 32]] {
        assert_eq!(chosen(extents), "gemm_mma", "{extents:?}");
    }
}

/// A smaller setting exists until there is none, and each is legal.
#[test]
fn settings_become_smaller() {
    let target = kiln::target::Target::named("h200").unwrap();
    let graph = bias_gelu([4096, 4096, 4096], Bf16);
    let supported = engine::supported(ENGINE, graph.canonical(), &target).unwrap();
    let mut tiles = Vec::new();
    let mut config = supported.heuristic();
    loop {
        tiles.push(["cta_m", "cta_n"].map(|knob| config.knob(knob).unwrap()));
        let Some(smaller) = supported.smaller(&config) else { break };
        supported.lower(&smaller).unwrap();
        config = smaller;
    }
    assert_eq!(tiles, [[128, 256], [128, 128], [128, 64], [64, 64]]);
}
