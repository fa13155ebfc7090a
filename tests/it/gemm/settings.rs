//! Knobs: settings that do not change the order of sums give the same bits, all are right, and
//! those of the heuristic compile for every architecture without a spilled register.

use kiln::DType;
use kiln::engine;
use kiln::graph::MatmulMath;
use kiln::target::Target;

use super::cases::{Case, heuristic, inputs};
use super::fusion::{bias_gelu, prologues, reduced_everywhere, rich, weight_gradients};
use crate::harness::{self, Values};

/// In whatever order tiles are walked, each is computed once and the same: 5 x 3 tiles of both
/// batches, in groups that divide neither, also where rows are counted at run time.
#[test]
fn every_order_of_tiles_gives_the_same_bits() {
    let case = Case::new(MatmulMath::F32, [DType::F16; 3], [260, 136, 40]);
    let graph = Case { batches: [&[2], &[2]], ..case }.graph();
    let (kiln, inputs) = (harness::kiln(), inputs(&graph));
    for name in ["gemm_simt", "gemm_mma", "gemm_wgmma"] {
        let target = kiln.device().target();
        let Ok(supported) = engine::supported(name, graph.canonical(), target) else { continue };
        let knobs = supported.knobs();
        let values = |name: &str| {
            let knob = knobs.iter().find(|knob| knob.name == name).expect("engines share it");
            knob.values.clone()
        };
        let chosen = supported.heuristic().with("cta_m", 64).with("cta_n", 64).with("split_k", 1);
        let mut first: Option<Values> = None;
        for (group, raster) in
            values("group").into_iter().flat_map(|group| [(group, 0), (group, 1)])
        {
            for dynamic_m in values("dynamic_m") {
                let config = chosen.clone().with("group", group).with("raster", raster);
                let config = config.with("dynamic_m", dynamic_m);
                let actual = harness::run(kiln, &graph, Some(&config), &inputs).unwrap();
                harness::compare(&graph, &inputs, &actual, &config.to_string());
                let bits = |of: &Values| of[&3].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let first = first.get_or_insert_with(|| actual.clone());
                assert_eq!(bits(&actual), bits(first), "{config}");
            }
        }
    }
}

/// For a large and a small shape, of the graphs that the engine takes.
pub fn no_spills(engine: &str, targets: &[&str]) {
    let graphs = [[4096, 4096, 4096], [256, 512, 1024]].map(|extents| {
        let half = bias_gelu(extents, DType::Bf16);
        let reduced = reduced_everywhere(extents, DType::Bf16);
        let sums = ["columns", "rows"].map(|lay| weight_gradients(extents, DType::F16, lay));
        let own = [half, prologues(extents, DType::F16), rich(extents, DType::F16), reduced];
        own.into_iter().chain(sums).collect::<Vec<_>>()
    });
    let (mut graphs, target) = (graphs.concat(), Target::named(targets[0]).unwrap());
    graphs.retain(|graph| engine::supported(engine, graph.canonical(), &target).is_ok());
    let sources = harness::default_sources(&[engine], targets, &graphs);
    harness::compile_without_spills(&sources);
}

#[test]
fn simt_heuristics_do_not_spill() {
    no_spills("gemm_simt", &["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"]);
}

#[test]
fn mma_heuristics_do_not_spill() {
    no_spills("gemm_mma", &["a100", "rtx4090", "h200", "b200", "rtx5090"]);
    no_spills("gemm_mma", &["t4"]);
}

/// Matrices of more than 2^31 elements count in 64 bits; too large to run, they compile.
#[test]
fn large_matrices_compile() {
    let target = Target::named("h200").unwrap();
    let graph = rich([1 << 20, 1 << 14, 4096], DType::F16);
    for name in ["gemm_mma", "gemm_simt"] {
        let supported = engine::supported(name, graph.canonical(), &target).unwrap();
        let sources = harness::sources(name, &*supported, &supported.heuristic());
        let text = &sources[0].1.text;
        assert!(text.contains("using index_t = long long;"), "{text}");
        harness::assembled(&sources);
    }
}

/// The heuristic's settings are legal for every shape and target.
#[test]
fn heuristics_are_legal() {
    for name in Target::names() {
        let target = Target::named(name).unwrap();
        for m in [1, 7, 64, 300, 5000] {
            for n in [1, 40, 1000, 50257] {
                for k in [0, 1, 64, 4096] {
                    let case = Case::new(MatmulMath::F32, [DType::F16; 3], [m, n, k]);
                    let graph = case.graph();
                    let chosen =
                        engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
                    let supported =
                        engine::supported(&chosen.engine, graph.canonical(), &target).unwrap();
                    supported.lower(&chosen).unwrap();
                    let (rules, reasons) = (supported.heuristic(), supported.reasons());
                    supported.lower(&rules).unwrap();
                    assert_eq!(reasons.len(), rules.knobs().count());
                    for (reason, (knob, value)) in reasons.iter().zip(rules.knobs()) {
                        assert!(reason.starts_with(&format!("{knob}={value}: ")), "{reason}");
                    }
                }
            }
        }
    }
}

/// Products with next to nothing but depth are split into parts that are not empty, whatever the
/// number of steps, and counted without overflow.
#[test]
fn deep_products_are_split() {
    for name in Target::names() {
        let target = Target::named(name).unwrap();
        for k in [8256, 65536, 65537, 1 << 50] {
            for [a, b] in [[DType::F16; 2], [DType::F32; 2]] {
                let graph = Case::new(MatmulMath::F32, [a, b, DType::F32], [8, 8, k]).graph();
                for engine in engine::engines() {
                    let Ok(supported) = engine.support(graph.canonical(), &target) else {
                        continue;
                    };
                    let config = supported.heuristic();
                    supported.lower(&config).unwrap();
                    assert!(config.knob("split_k").unwrap() > 1, "{config} of {k} on {name}");
                }
            }
        }
    }
}

/// Of the time of all SMs, split-K partials leave little idle: by the geometric mean
/// of 49 small products 0.85 of it is work where the depth is 4096, 0.87 where it is 65536. With
/// powers of two up to 16 it was 0.71; blocks that take parts of two tiles (stream-K) would reach
/// 1, less what they leave behind.
#[test]
fn parts_of_the_depth_keep_multiprocessors_busy() {
    let target = Target::named("a100").unwrap();
    let (sms, sides) = (u64::from(target.sm_count), [64, 128, 256, 384, 512, 768, 1024]);
    for k in [4096, 65536] {
        let mut logarithms = Vec::new();
        for [m, n] in sides.into_iter().flat_map(|m| sides.map(|n| [m, n])) {
            let graph = Case::new(MatmulMath::F32, [DType::F16; 3], [m, n, k]).graph();
            let supported = engine::supported("gemm_mma", graph.canonical(), &target).unwrap();
            let config = supported.heuristic();
            let knob = |name: &str| config.knob(name).unwrap() as u64;
            let tiles = (m as u64).div_ceil(knob("cta_m")) * (n as u64).div_ceil(knob("cta_n"));
            let (steps, parts) = ((k as u64).div_ceil(knob("cta_k")), knob("split_k"));
            let rounds = (tiles * parts).div_ceil(sms);
            let busiest = rounds * steps.div_ceil(parts);
            logarithms.push(((tiles * steps) as f64 / (sms * busiest) as f64).ln());
        }
        let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
        assert!((0.8..=1.0).contains(&mean), "{mean} of the time for a depth of {k}");
    }
}

/// A smaller setting exists until there is none, and each is legal.
#[test]
fn settings_become_smaller() {
    let graph = bias_gelu([4096, 4096, 4096], DType::F32);
    let target = Target::named("a100").unwrap();
    let supported = engine::supported("gemm_simt", graph.canonical(), &target).unwrap();
    let mut config = heuristic(harness::kiln(), &graph, "gemm_simt");
    for (knob, value) in [("cta_m", 128), ("cta_n", 128), ("thread_m", 8), ("thread_n", 8)] {
        config = config.with(knob, value);
    }
    let mut steps = 0;
    while let Some(smaller) = supported.smaller(&config) {
        supported.lower(&smaller).unwrap();
        config = smaller;
        steps += 1;
    }
    assert_eq!(steps, 2, "{config}");
}
