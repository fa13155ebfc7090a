//! Reductions of what follows a product, next to what is stored of it or alone.

use kiln::DType::{self, *};
use kiln::device::Counters;
use kiln::engine;
use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{MatmulMath, Reduction, ReductionOp};
use kiln::target::Target;
use kiln::{ErrorKind, OperationGraph, TensorDesc};

use super::cases::{Fusion, check, heuristic, inputs};
use super::settings::settings;
use crate::harness::{self, conflicts};

/// What is left of batches, rows and columns.
#[derive(Debug, Clone, Copy)]
struct Kept([bool; 3]);

const ROWS: Kept = Kept([true, true, false]);
const COLUMNS: Kept = Kept([true, false, true]);
const COLUMNS_OF_ALL: Kept = Kept([false, false, true]);
const ROWS_OF_ALL: Kept = Kept([false, true, false]);
const MATRICES: Kept = Kept([true, false, false]);
const NOTHING: Kept = Kept([false, false, false]);

/// `y = gelu(a b + bias)`, of a type, and these reductions of it.
fn reduced(
    [batches, m, n, k]: [i64; 4],
    [operands, of]: [DType; 2],
    stored: bool,
    exits: &[(ReductionOp, Kept)],
) -> OperationGraph {
    let mut fusion = Fusion::new((&[batches, m, k], operands), (&[batches, k, n], operands));
    let bias = fusion.graph.input("bias", &[1, 1, n], operands);
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, DType::F32);
    let biased = fusion.binary(Mode::Add, [c, bias], DType::F32);
    let y = fusion.unary(Mode::GeluFwd, biased, of);
    if stored {
        fusion.output(y, "y", of);
    }
    for (at, (op, Kept(kept))) in exits.iter().enumerate() {
        let dims = std::iter::zip([batches, m, n], kept);
        let dims: Vec<i64> = dims.map(|(extent, kept)| if *kept { extent } else { 1 }).collect();
        let value = fusion.graph.reduction(Reduction::new(*op), y, &dims).unwrap();
        fusion.output(value, &format!("value{at}"), if at == 1 { F16 } else { DType::F32 });
    }
    fusion.build()
}

/// The result and its sums along rows, along columns, and its greatest magnitude.
pub fn reduced_everywhere([m, n, k]: [i64; 3], dtype: DType) -> OperationGraph {
    use ReductionOp::*;
    reduced([1, m, n, k], [dtype; 2], true, &[(Add, ROWS), (Amax, NOTHING), (Add, COLUMNS)])
}

fn edges(engine: &str, operands: DType, k: i64) {
    use ReductionOp::*;
    let exits = [(Add, ROWS), (Amax, NOTHING), (Norm2, COLUMNS), (Max, ROWS), (Avg, COLUMNS)];
    for kiln in harness::dialects() {
        for [m, n] in [[1, 72], [72, 8], [15, 17], [64, 64], [65, 136], [130, 200]] {
            let n = if engine == "gemm_wgmma" { n / 8 * 8 } else { n };
            if engine == "gemm_wgmma" && kiln.device().target().arch.to_string() != "sm_90a" {
                continue;
            }
            let what = format!("{m} x {n}");
            let graph = reduced([1, m, n, k], [operands, DType::F32], true, &exits);
            check(kiln, &graph, engine, &what);
            let graph = reduced([1, m, n, k], [operands, Bf16], false, &exits[..2]);
            check(kiln, &graph, engine, &what);
        }
    }
}

#[test]
fn simt_edges() {
    edges("gemm_simt", DType::F32, 19);
}

#[test]
fn mma_edges() {
    edges("gemm_mma", Bf16, 40);
}

#[test]
fn wgmma_edges() {
    edges("gemm_wgmma", Bf16, 72);
}

/// Every reduction, of batches that are distinguished or not.
#[test]
fn batches() {
    let all = [ROWS, COLUMNS, COLUMNS_OF_ALL, ROWS_OF_ALL, MATRICES, NOTHING];
    for kiln in harness::dialects() {
        for (at, op) in ReductionOp::ALL.into_iter().enumerate() {
            let exits = [(op, all[at % 6]), (op, all[(at + 1) % 6]), (op, all[(at + 3) % 6])];
            let graph = reduced([3, 33, 40, 16], [F16, DType::F32], at % 2 == 0, &exits);
            for engine in ["gemm_mma", "gemm_simt"] {
                check(kiln, &graph, engine, &format!("{op:?}"));
            }
        }
    }
}

/// Settings change the order of sums, two runs do not.
fn every_setting(engine: &str, operands: DType, extents: [i64; 4], count: usize) {
    use ReductionOp::*;
    let exits = [(Add, ROWS), (Avg, COLUMNS_OF_ALL), (Norm1, NOTHING)];
    let graph = reduced(extents, [operands, DType::F32], true, &exits);
    let inputs = inputs(&graph);
    let (kiln, mut ran) = (harness::kiln(), 0);
    for config in settings(&graph, engine, count) {
        let plan = harness::planned(&graph, &config);
        let actual = harness::run_plan(kiln, &plan, &inputs).unwrap();
        harness::compare(&graph, &inputs, &actual, &config.to_string());
        let again = harness::run_plan(kiln, &plan, &inputs).unwrap();
        for (uid, values) in &actual {
            let same = std::iter::zip(values, &again[uid]).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{config}: tensor {uid} has other bits");
        }
        ran += 1;
    }
    println!("{ran} settings ran");
    assert!(ran * 4 >= count * 3, "{ran} settings of {count} ran");
}

/// Where the depth is split, what adds up its parts goes on with the epilogue.
fn edges_of_parts(engine: &str, operands: DType, k: i64) {
    use ReductionOp::*;
    let exits = [(Add, ROWS), (Amax, NOTHING), (Norm2, COLUMNS), (Max, ROWS), (Avg, COLUMNS)];
    for [m, n] in [[1, 72], [72, 8], [15, 17], [65, 136], [130, 200]] {
        let n = if engine == "gemm_wgmma" { n / 8 * 8 } else { n };
        let graph = reduced([2, m, n, k], [operands, DType::F32], true, &exits);
        let mut config = heuristic(harness::kiln(), &graph, engine).with("split_k", 2);
        if engine == "gemm_wgmma" {
            config = config.with("turns", 0);
        }
        let what = format!("{m} x {n}");
        harness::check(harness::kiln(), &graph, Some(&config), &inputs(&graph), &what);
    }
}

#[test]
fn simt_parts() {
    edges_of_parts("gemm_simt", F64, 37);
    edges_of_parts("gemm_simt", DType::F32, 37);
}

#[test]
fn mma_parts() {
    edges_of_parts("gemm_mma", Bf16, 72);
}

#[test]
fn wgmma_parts() {
    if harness::kiln().device().target().arch.to_string() == "sm_90a" {
        edges_of_parts("gemm_wgmma", Bf16, 136);
    }
}

#[test]
fn simt_settings() {
    every_setting("gemm_simt", DType::F32, [2, 66, 70, 20], 10);
}

#[test]
fn mma_settings() {
    every_setting("gemm_mma", F16, [2, 66, 72, 40], 16);
}

#[test]
fn wgmma_settings() {
    if harness::kiln().device().target().arch.to_string() == "sm_90a" {
        every_setting("gemm_wgmma", Bf16, [2, 72, 136, 72], 10);
    }
}

/// One kernel for every number of rows leaves as many parts as there are.
#[test]
fn rows_are_counted() {
    use ReductionOp::*;
    let exits = [(Max, ROWS), (Avg, COLUMNS_OF_ALL), (Add, MATRICES)];
    let graph = |rows: i64| reduced([2, rows, 72, 40], [Bf16, DType::F32], true, &exits);
    for kiln in harness::dialects() {
        let config = heuristic(kiln, &graph(64), "gemm_mma").with("dynamic_m", 1);
        let first = kiln.sources(&graph(64), &config).unwrap();
        for rows in [2, 33, 65] {
            let graph = graph(rows);
            let sources = kiln.sources(&graph, &config).unwrap();
            assert!(std::iter::zip(&first, &sources).all(|(a, b)| a.text == b.text));
            harness::check(kiln, &graph, Some(&config), &inputs(&graph), &format!("{rows} rows"));
        }
    }
}

/// Sums of double precision behind a product of single precision.
#[test]
fn precise_sums() {
    let mut fusion = Fusion::new((&[40, 24], DType::F32), (&[24, 48], DType::F32));
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, DType::F32);
    let op = Reduction { op: ReductionOp::Add, math: Math::F64 };
    let sum = fusion.graph.reduction(op, c, &[40, 1]).unwrap();
    fusion.output(sum, "sum", F64);
    fusion.output(c, "c", DType::F32);
    check(harness::kiln(), &fusion.build(), "gemm_simt", "double precision");
}

/// The whole graph is one part: the product, and a kernel for each reduction. What is stored is not
/// read again: the first kernel moves every tensor once, and the parts, of which there is one for
/// so many rows or columns as a warp finishes at once.
#[test]
fn reductions_are_fused() {
    let graph = reduced_everywhere([128, 128, 64], Bf16);
    let kiln = harness::counting();
    let plan = kiln.plan(&graph).unwrap();
    assert_eq!((plan.parts().len(), plan.kernels().len()), (1, 4));
    let trial = kiln.trial(&plan, &inputs(&graph)).unwrap();
    let counters: Vec<&Counters> = trial.counters.iter().flatten().collect();
    assert_eq!(counters.len(), 4);
    let bytes = |tensor: &TensorDesc| tensor.span_bytes().unwrap();
    let read: u64 = graph.inputs().map(bytes).sum();
    assert_eq!(counters[0].dram_read_bytes, read);
    assert_eq!(conflicts(counters[0]), 0);
    // At most one for 32 columns of a row, for 16 rows of a column, for both.
    let y = 128 * 128 * 2;
    let parts = 4 * (128 * 128 / 32 + 128 * 128 / 16 + 128 * 128 / 512);
    let written = counters[0].dram_written_bytes;
    assert!((y..=y + parts).contains(&written), "{written}");
}

/// Where the depth of few tiles is shared, reductions stay part of the graph: the kernel that adds
/// up the split-K partials leaves theirs behind.
#[test]
fn deep_products_are_fused() {
    let target = Target::named("h200").unwrap();
    for (extent, splits) in [(4096, false), (64, true)] {
        let graph = reduced_everywhere([extent, extent, 16384], Bf16);
        let chosen = engine::partition(&graph, &target, &Default::default()).unwrap();
        let [part] = &chosen[..] else { panic!("{extent}: {chosen:?}") };
        assert_eq!(part.config.knob("split_k").unwrap() > 1, splits, "{extent}: {}", part.config);
        let kernels = part.supported(&target).unwrap().lower(&part.config).unwrap().kernels;
        assert_eq!(kernels.len(), if splits { 5 } else { 4 });
    }
}

#[test]
fn refusals_name_their_rule() {
    let target = harness::kiln().device().target();
    let refused = |graph: &OperationGraph, rule: &str| {
        let error = engine::supported("gemm_simt", graph.canonical(), target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let some = Kept([true, true, true]);
    let graph = reduced([2, 8, 8, 8], [F16, DType::F32], true, &[(ReductionOp::Add, some)]);
    refused(&graph, "`value0` reduces neither rows nor columns");

    let mut fusion = Fusion::new((&[8, 8], F16), (&[8, 8], F16));
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, DType::F32);
    let sum = fusion.graph.reduction(Reduction::new(ReductionOp::Add), c, &[8, 1]).unwrap();
    fusion.graph.name(sum, "sum", DType::F32);
    let y = fusion.apply(Pointwise::new(Mode::Div), &[c, sum], DType::F32);
    fusion.output(y, "y", DType::F32);
    refused(&fusion.build(), "`sum` is read, which is reduced behind the product");

    let mut fusion = Fusion::new((&[8, 8], F16), (&[8, 8], F16));
    let a = fusion.unary(Mode::Exp, fusion.a, F16);
    let sum = fusion.graph.reduction(Reduction::new(ReductionOp::Add), a, &[8, 1]).unwrap();
    let c = fusion.product(a, fusion.b, MatmulMath::F32, DType::F32);
    fusion.output(sum, "sum", DType::F32);
    fusion.output(c, "c", DType::F32);
    let graph = fusion.build();
    let name = graph.tensor(a).unwrap().name.clone();
    let rule = format!("`{name}` is a result and an operand of the product is computed from it");
    refused(&graph, &rule);
}
