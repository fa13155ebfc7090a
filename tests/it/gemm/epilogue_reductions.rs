//! Epilogue reductions: next to a result that is stored, or alone.

use kiln::DType::{self, *};
use kiln::device::Counters;
use kiln::engine;
use kiln::expr::{Math, Mode};
use kiln::graph::{MatmulMath, Reduction, ReductionOp};
use kiln::target::Target;
use kiln::{OperationGraph, TensorDesc};

use super::cases::{Fusion, check, heuristic, inputs};
use super::fusion::reduced_everywhere;
use crate::harness::{self, conflicts};

/// What is left of batches, rows and columns.
#[derive(Debug, Clone, Copy)]
struct Kept([bool; 3]);

const ROWS: Kept = Kept([true, true, false]);
const COLUMNS_OF_ALL: Kept = Kept([false, false, true]);
const MATRICES: Kept = Kept([true, false, false]);

/// `y = gelu(a b + bias)`, of a type, and these reductions of it.
fn reduced(
    [batches, m, n, k]: [i64; 4],
    [operands, of]: [DType; 2],
    reductions: &[(ReductionOp, Kept)],
) -> OperationGraph {
    let mut fusion = Fusion::new((&[batches, m, k], operands), (&[batches, k, n], operands));
    let bias = fusion.graph.input("bias", &[1, 1, n], operands);
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, DType::F32);
    let biased = fusion.binary(Mode::Add, [c, bias], DType::F32);
    let y = fusion.unary(Mode::GeluFwd, biased, of);
    fusion.output(y, "y", of);
    for (at, (op, Kept(kept))) in reductions.iter().enumerate() {
        let dims = std::iter::zip([batches, m, n], kept);
        let dims: Vec<i64> = dims.map(|(extent, kept)| if *kept { extent } else { 1 }).collect();
        let value = fusion.graph.reduction(Reduction::new(*op), y, &dims).unwrap();
        fusion.output(value, &format!("value{at}"), if at == 1 { F16 } else { DType::F32 });
    }
    fusion.build()
}

/// One kernel for every M leaves as many partials as there are row tiles.
#[test]
fn one_kernel_reduces_any_m() {
    use ReductionOp::*;
    let reductions = [(Max, ROWS), (Avg, COLUMNS_OF_ALL), (Add, MATRICES)];
    let graph = |rows: i64| reduced([2, rows, 72, 40], [Bf16, DType::F32], &reductions);
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

/// Reductions in double precision of a GEMM in single precision.
#[test]
fn f64_reductions_of_an_f32_gemm() {
    let mut fusion = Fusion::new((&[40, 24], DType::F32), (&[24, 48], DType::F32));
    let c = fusion.product(fusion.a, fusion.b, MatmulMath::F32, DType::F32);
    let op = Reduction { op: ReductionOp::Add, math: Math::F64 };
    let sum = fusion.graph.reduction(op, c, &[40, 1]).unwrap();
    fusion.output(sum, "sum", F64);
    fusion.output(c, "c", DType::F32);
    check(harness::kiln(), &fusion.build(), "gemm_simt", "double precision");
}

/// The whole graph is one part: the GEMM, and a kernel for each reduction. What is stored is not
/// read again: the first kernel moves every tensor once, and the partials, one for as many rows or
/// columns as a warp finishes at once.
#[test]
fn epilogue_reductions_are_fused() {
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
    let partials = 4 * (128 * 128 / 32 + 128 * 128 / 16 + 128 * 128 / 512);
    let written = counters[0].dram_written_bytes;
    assert!((y..=y + partials).contains(&written), "{written}");
}

/// With split-K, reductions stay part of the graph: the split-K reduction leaves their partials
/// behind.
#[test]
fn split_k_keeps_epilogue_reductions_fused() {
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
