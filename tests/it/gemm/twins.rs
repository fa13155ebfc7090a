//! Two products of one matrix in one kernel: a gate and what it opens.

use kiln::DType::{self, *};
use kiln::engine;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Reduction, ReductionOp};
use kiln::target::Target;
use kiln::{Config, ErrorKind, Kiln, OperationGraph, TensorDesc};

use super::cases::{Fusion, check, heuristic, inputs};
use super::settings::same_bits;
use crate::harness;

const F32: MatmulMath = MatmulMath::F32;

/// A product of another name than the first.
fn second(fusion: &mut Fusion, [a, b]: [i64; 2], dtype: DType) -> i64 {
    let product = fusion.graph.matmul(Matmul::new(F32), a, b).unwrap();
    fusion.graph.name(product, "second", dtype);
    product
}

/// `y = swish(x gate) * (x up + bias)`, weights by rows or columns.
pub fn swiglu([m, n, k]: [i64; 3], dtype: DType, by_columns: bool) -> OperationGraph {
    let mut fusion = Fusion::new((&[m, k], dtype), (&[1, n], dtype));
    let (x, bias) = (fusion.a, fusion.b);
    let strides = if by_columns { vec![1, k] } else { vec![n, 1] };
    let [gate, up] = [(20, "gate"), (21, "up")].map(|(uid, name)| {
        let weights = TensorDesc::packed(uid, name, &[k, n], dtype);
        fusion.graph.tensor(TensorDesc { strides: strides.clone(), ..weights })
    });
    let gate = fusion.product(x, gate, F32, DType::F32);
    let up = second(&mut fusion, [x, up], dtype);
    let opened = fusion.unary(Mode::SwishFwd, gate, DType::F32);
    let biased = fusion.binary(Mode::Add, [up, bias], DType::F32);
    let y = fusion.binary(Mode::Mul, [opened, biased], DType::F32);
    fusion.output(y, "y", dtype);
    fusion.build()
}

/// Both products stored, of batches, and the sum of one along rows.
fn both_stored(batches: i64, [m, n, k]: [i64; 3]) -> OperationGraph {
    let mut fusion = Fusion::new((&[batches, m, k], F16), (&[batches, k, n], F16));
    let other = fusion.graph.input("other", &[batches, k, n], F16);
    let (x, first) = (fusion.a, fusion.b);
    let c = fusion.product(x, first, F32, F16);
    let d = second(&mut fusion, [x, other], DType::F32);
    let sum = Reduction::new(ReductionOp::Add);
    let sum = fusion.graph.reduction(sum, d, &[batches, m, 1]).unwrap();
    fusion.output(c, "c", F16);
    fusion.output(d, "d", DType::F32);
    fusion.output(sum, "sum", DType::F32);
    fusion.build()
}

fn hopper() -> bool {
    harness::kiln().device().target().arch.to_string() == "sm_90a"
}

#[test]
fn mma_edges() {
    for kiln in harness::dialects() {
        for extents in [[1, 8, 8], [17, 40, 24], [64, 128, 64], [130, 72, 136]] {
            for by_columns in [false, true] {
                let what = format!("{extents:?} {by_columns}");
                check(kiln, &swiglu(extents, Bf16, by_columns), "gemm_mma", &what);
            }
        }
        check(kiln, &both_stored(2, [33, 40, 24]), "gemm_mma", "both stored");
    }
}

#[test]
fn wgmma_edges() {
    if !hopper() {
        return;
    }
    for extents in [[1, 8, 8], [72, 40, 72], [64, 128, 64], [130, 200, 136]] {
        for by_columns in [false, true] {
            let graph = swiglu(extents, F16, by_columns);
            check(harness::kiln(), &graph, "gemm_wgmma", &format!("{extents:?} {by_columns}"));
        }
    }
    check(harness::kiln(), &both_stored(2, [72, 136, 72]), "gemm_wgmma", "both stored");
}

#[test]
fn settings_agree() {
    same_bits(&swiglu([66, 72, 136], F16, false), "gemm_mma", 12);
    if hopper() {
        same_bits(&swiglu([136, 136, 136], Bf16, false), "gemm_wgmma", 10);
        same_bits(&swiglu([136, 136, 136], Bf16, true), "gemm_wgmma", 6);
    }
}

/// The whole graph is one kernel on every GPU with tensor cores, on Hopper one of warpgroups.
#[test]
fn gates_are_fused() {
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

/// As many products as whole tiles of both take, no conflict, every operand read from memory once;
/// every tile of A is loaded once for both products.
#[test]
fn counts() {
    let device = Some("sim".parse().unwrap());
    let kiln = Kiln::open(Config { device, count: true, ..Config::default() }).unwrap();
    let [m, n, k] = [128, 128, 192];
    for (engine, by_columns) in
        [("gemm_mma", false), ("gemm_mma", true), ("gemm_wgmma", false), ("gemm_wgmma", true)]
    {
        let graph = swiglu([m, n, k], Bf16, by_columns);
        let config = heuristic(&kiln, &graph, engine).with("cta_m", 64).with("cta_n", 64);
        let config = match engine {
            "gemm_mma" => config.with("warp_m", 32).with("warp_n", 32),
            _ => config.with("turns", 0).with("cluster", 1),
        };
        let plan = kiln.plan_with(&graph, &config).unwrap();
        harness::check(&kiln, &graph, Some(&config), &inputs(&graph), "counted");
        println!(
            "{:?}",
            kiln.device().counters().map(|c| (c.dram_read_bytes, c.total.global.bytes))
        );
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
            let epilogue = 2 * (m * n) + 2 * (m * n);
            assert_eq!(total.global.bytes, (loaded + epilogue) as u64, "{config}");
        }
    }
}

#[test]
fn heuristics_do_not_spill() {
    let graphs = |extents| vec![swiglu(extents, Bf16, true), swiglu(extents, F16, false)];
    let extents = [[4096, 11008, 4096], [64, 256, 128]];
    let graphs: Vec<_> = extents.into_iter().flat_map(graphs).collect();
    let targets = ["a100", "rtx4090", "h200", "b200", "rtx5090"];
    let mut sources = harness::default_sources(&["gemm_mma"], &targets, &graphs);
    sources.extend(harness::default_sources(&["gemm_wgmma"], &["h200"], &graphs));
    harness::compile_without_spills(&sources);
}

#[test]
fn refusals_name_their_rule() {
    let target = Target::named("h200").unwrap();
    let refused = |engine: &str, graph: &OperationGraph, rule: &str| {
        let error = engine::supported(engine, graph.canonical(), &target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let graph = swiglu([64; 3], F16, false);
    refused("gemm_simt", &graph, "two products are multiplied by tensor cores only");
    let two = |strides: [Vec<i64>; 2], shared: bool| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[8, 8], F16);
        let [up, down] = std::array::from_fn(|at| {
            let tensor = TensorDesc::packed(20 + at as i64, ["up", "down"][at], &[8, 8], F16);
            graph.tensor(TensorDesc { strides: strides[at].clone(), ..tensor })
        });
        let first = graph.matmul(Matmul::new(F32), x, up).unwrap();
        let second = graph.matmul(Matmul::new(F32), if shared { x } else { up }, down).unwrap();
        let y = graph.pointwise(Pointwise::new(Mode::Mul), &[first, second]).unwrap();
        graph.output(y, "y", F16);
        graph.build().unwrap()
    };
    let (rows, columns) = (vec![8, 1], vec![1, 8]);
    let rule = "the graph has more than one product";
    refused("gemm_mma", &two([rows.clone(), rows.clone()], false), rule);
    let rule = "`up` and `down` lie differently, which are multiplied at once";
    refused("gemm_mma", &two([rows, columns], true), rule);
}
