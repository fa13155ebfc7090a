//! Dual GEMMs: two that share A, in one kernel, as in SwiGLU.

use kiln::DType::*;
use kiln::TensorDesc;
use kiln::engine;
use kiln::target::Target;

use super::cases::{heuristic, inputs};
use super::fusion::swiglu;
use crate::harness;

/// The whole graph is one kernel on every GPU with tensor cores, on Hopper one of warpgroups.
#[test]
fn dual_gemms_are_fused() {
    for (name, engine) in [("a100", "gemm_mma"), ("h200", "gemm_wgmma"), ("b200", "gemm_mma")] {
        let target = Target::named(name).unwrap();
        let graph = swiglu([4096, 11008, 4096], Bf16, true);
        let parts = engine::partition(&graph, &target, &Default::default()).unwrap();
        let [part] = &parts[..] else { panic!("{name}: {parts:?}") };
        assert_eq!(part.config.engine, engine, "{name}");
        let lowering = part.supported(&target).unwrap().lower(&part.config).unwrap();
        assert_eq!((lowering.kernels.len(), lowering.scratch.len()), (1, 0), "{name}");
    }
}

/// As many multiply-adds as whole tiles of both take, no bank conflict, every operand read from
/// memory once; every tile of A is loaded once for both GEMMs.
#[test]
fn multiply_adds_bytes_and_conflicts_of_dual_gemms() {
    let kiln = harness::counting();
    let [m, n, k] = [128, 128, 192];
    for (engine, by_columns) in
        [("gemm_mma", false), ("gemm_mma", true), ("gemm_wgmma", false), ("gemm_wgmma", true)]
    {
        let graph = swiglu([m, n, k], Bf16, by_columns);
        let config = heuristic(&kiln, &graph, engine).with("cta_m", 64).with("cta_n", 64);
        let config = match engine {
            "gemm_mma" => config.with("warp_m", 32).with("warp_n", 32),
            _ => config.with("ping_pong", 0).with("cluster", 1),
        };
        let plan = kiln.plan_with(&graph, &config).unwrap();
        harness::check(&kiln, &graph, Some(&config), &inputs(&graph), "counted");
        let trial = kiln.trial(&plan, &inputs(&graph)).unwrap();
        let counters = trial.counters[0].as_ref().unwrap();
        let [products] = &counters.products[..] else { panic!("{:?}", counters.products) };
        assert_eq!(products.multiply_adds, 2 * (m * n * k) as u64, "{config}");
        let total = &counters.total;
        assert_eq!((total.shared_loads.conflicts, total.shared_stores.conflicts), (0, 0));
        let bytes = |of: &TensorDesc| of.span_bytes().unwrap();
        assert_eq!(counters.dram_read_bytes, graph.inputs().map(bytes).sum::<u64>(), "{config}");
        assert_eq!(counters.dram_written_bytes, 2 * (m * n) as u64);
        if engine == "gemm_mma" {
            // 2 x 2 tiles: each loads its rows of x and its columns of both weights.
            let loaded = 2 * (m * k + 2 * k * n) * 2;
            // Each lane has the bias of its 8 columns for all rows of its warp's 32 x 32 tile.
            let lanes = m / 32 * (n / 32) * 32;
            let epilogue = lanes * 8 * 2 + 2 * (m * n);
            assert_eq!(total.global.bytes, (loaded + epilogue) as u64, "{config}");
        }
    }
}

#[test]
fn heuristics_of_dual_gemms_do_not_spill() {
    let graphs = |extents| vec![swiglu(extents, Bf16, true), swiglu(extents, F16, false)];
    let extents = [[4096, 11008, 4096], [64, 256, 128]];
    let graphs: Vec<_> = extents.into_iter().flat_map(graphs).collect();
    let targets = ["a100", "rtx4090", "h200", "b200", "rtx5090"];
    let mut sources = harness::default_sources(&["gemm_mma"], &targets, &graphs);
    sources.extend(harness::default_sources(&["gemm_wgmma"], &["h200"], &graphs));
    harness::compile_without_spills(&sources);
}
