//! Products of warpgroups: what they take, at every edge of a tile, in every setting.

use kiln::DType::*;
use kiln::engine::{self, EngineConfig, Operands};
use kiln::graph::MatmulMath;
use kiln::{Kiln, TensorDesc};

use super::cases::{Case, Lay, inputs};
use super::fusion::{bias_gelu, from_file, two_outputs, weight_gradients};
use super::settings::no_spills;
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
        ("ping_pong", 0),
        ("cta_m", cta_m),
        ("cta_n", cta_n),
        ("cluster", cluster),
        ("dynamic_k", 0),
        ("dynamic_m", 0),
        ("group", 4),
        ("raster", 0),
        ("split_k", 1),
        ("stages", stages),
    ];
    EngineConfig::new(ENGINE, &knobs)
}

/// Outputs that lie as TMA copies need it are stored by them.
#[test]
fn outputs_are_stored_by_bulk_copies() {
    let Some(kiln) = hopper() else { return };
    let graph = bias_gelu([72, 72, 72], Bf16);
    let text = kiln.sources(&graph, &config([64, 64], 1, 3)).unwrap().remove(0).text;
    assert!(text.contains("tma_store(maps.outputs.y"), "{text}");
}

#[test]
fn heuristics_do_not_spill() {
    no_spills(ENGINE, &["h100", "h200", "sim"]);
}

/// Products run on without waiting for each other, which the assembler says where it is not so.
#[test]
fn products_are_not_serialised() {
    if hopper().is_none() {
        return;
    }
    let tiles = [
        ([64, 256], 0),
        ([128, 192], 0),
        ([128, 256], 0),
        ([256, 128], 0),
        ([64, 256], 1),
        ([128, 128], 1),
    ];
    let extents = [512; 3];
    let [of_a, of_b] = ["columns", "rows"].map(|lay| weight_gradients(extents, F16, lay));
    let graphs = [bias_gelu(extents, Bf16), two_outputs(extents, F16), of_a, of_b];
    let all = graphs.iter().flat_map(|graph| tiles.map(|tile| (graph, tile))).collect();
    for (graph, (tile, ping_pong)) in harness::sampled(all, 5) {
        let config = config(tile, 2, 3).with("ping_pong", ping_pong);
        let image = harness::assembled_for(graph, &config).remove(0);
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
    for (graph, tile, cluster, ping_pong) in [
        (bias_gelu([m, n, k], Bf16), [128, 64], 2, 0),
        (Case::new(F32, [F16; 3], [m, n, k]).lays(packed).graph(), [128, 96], 1, 1),
        (two_outputs([m, n, k], F16), [64, 128], 1, 1),
        (from_file("gated", [m, n, k], Bf16), [256, 64], 1, 0),
    ] {
        let config = config(tile, cluster, 3).with("ping_pong", ping_pong);
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

/// Large problems go to warpgroups, small or narrow ones to single warps.
#[test]
fn large_problems_are_taken() {
    let target = kiln::target::Target::named("h200").unwrap();
    let chosen = |extents: [i64; 3]| {
        let graph = Case::new(F32, [Bf16; 3], extents).graph();
        engine::choose(graph.canonical(), &target, &Default::default()).unwrap().engine
    };
    let deep = [128, 128, 16384];
    let short = [4096, 4096, 32];
    for extents in [[4096, 4096, 4096], [1024, 1024, 64], short, [128, 16384, 4096], deep] {
        assert_eq!(chosen(extents), ENGINE, "{extents:?}");
    }
    assert_eq!(chosen([16, 4096, 4096]), "gemm_mma");
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
