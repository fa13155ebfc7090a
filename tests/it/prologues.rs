//! Prologues of products: kernels of their own where that takes less time, by the cost model, on
//! every class of target, with the results that the reference bounds.

use kiln::engine::{self, Mode, Selection};
use kiln::expr::{self, Pointwise};
use kiln::graph::{Matmul, Rng};
use kiln::target::Target;
use kiln::{DType, OperationGraph};

use crate::{golden, harness};

/// What is in front of a product.
#[derive(Debug, Clone, Copy)]
enum Prologue {
    None,
    Relu,
    Gelu,
    /// A dropout of A.
    Dropout,
    /// Weights of 8 bits and scales of columns.
    Dequantise,
    /// Both operands are in f32, the product is not.
    Cast,
}

/// `C = prologue(A) prologue(B)`.
fn product(extents: [i64; 3], dtype: DType, of: Prologue) -> OperationGraph {
    longer(extents, dtype, of, 0)
}

/// The same with so many functions behind each prologue, which make kernels of it where products
/// are small.
fn longer([m, n, k]: [i64; 3], dtype: DType, of: Prologue, functions: usize) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let stored = if matches!(of, Prologue::Cast) { DType::F32 } else { dtype };
    let weights = if matches!(of, Prologue::Dequantise) { DType::I8 } else { stored };
    let mut a = graph.input("a", &[m, k], stored);
    let mut b = graph.input("b", &[k, n], weights);
    let mut apply = |mode, operands: &[i64]| {
        let uid = graph.pointwise(Pointwise::new(mode), operands).expect("valid");
        graph.name(uid, "", dtype);
        uid
    };
    match of {
        Prologue::None => {}
        Prologue::Relu => a = apply(expr::Mode::ReluFwd, &[a]),
        Prologue::Gelu => a = apply(expr::Mode::GeluApproxTanhFwd, &[a]),
        Prologue::Cast => {
            [a, b] = [a, b].map(|of| apply(expr::Mode::Identity, &[of]));
        }
        Prologue::Dequantise => {
            let scales = graph.input("scales", &[1, n], DType::F32);
            b = graph.pointwise(Pointwise::new(expr::Mode::Mul), &[b, scales]).expect("valid");
            graph.name(b, "", dtype);
        }
        Prologue::Dropout => {
            let offset = graph.scalar("offset", 2, DType::I64);
            let keep = graph.rng(Rng::bernoulli(0.9), &[offset], &[m, k]).expect("valid");
            let scaled = Pointwise::new(expr::Mode::Mul).alphas(1.0 / 0.9, 1.0);
            a = graph.pointwise(scaled, &[a, keep]).expect("valid");
            graph.name(a, "", dtype);
        }
    }
    let computed = match of {
        Prologue::None => [false, false],
        Prologue::Dequantise => [false, true],
        Prologue::Cast => [true, true],
        _ => [true, false],
    };
    for (operand, _) in [&mut a, &mut b].into_iter().zip(computed).filter(|(_, is)| *is) {
        for _ in 0..functions {
            let op = Pointwise::new(expr::Mode::TanhFwd).alphas(1.2, 1.0);
            *operand = graph.pointwise(op, &[*operand]).expect("valid");
            graph.name(*operand, "", dtype);
        }
    }
    let c = graph.matmul(Matmul::default(), a, b).expect("valid");
    graph.output(c, "c", dtype);
    graph.build().expect("valid")
}

const TARGETS: [&str; 6] = ["t4", "a100", "l40s", "h200", "b200", "rtx5090"];

fn engines(graph: &OperationGraph, target: &str, selection: &Selection) -> Vec<String> {
    let target = Target::named(target).expect("known");
    let parts = engine::partition(graph, &target, selection).expect("supported");
    parts.into_iter().map(|part| part.config.engine.into_owned()).collect()
}

/// Which prologues are kernels of their own.
#[test]
fn prologues_are_apart_where_that_pays() {
    let mut lines = Vec::new();
    for extents in [[16, 4096, 4096], [512, 512, 512], [2048, 2048, 2048], [8192, 4096, 4096]] {
        for of in [
            Prologue::None,
            Prologue::Relu,
            Prologue::Gelu,
            Prologue::Dropout,
            Prologue::Dequantise,
            Prologue::Cast,
        ] {
            let graph = product(extents, DType::F16, of);
            for target in TARGETS {
                let engines = engines(&graph, target, &Selection::default()).join(", ");
                lines.push(format!("{extents:?} {of:?} {target}: {engines}"));
            }
        }
    }
    golden::assert_golden("prologues", &lines.join("\n"));
}

/// Where nothing may be in memory between kernels, or the least demanding settings are asked for,
/// they stay.
#[test]
fn prologues_stay_where_they_must() {
    let graph = product([2048, 2048, 2048], DType::Bf16, Prologue::Gelu);
    assert_eq!(engines(&graph, "h200", &Selection::default()), ["pointwise", "gemm_wgmma"]);
    let without = "workspace".parse().expect("known");
    let selection = Selection { without, ..Selection::default() };
    assert_eq!(engines(&graph, "h200", &selection), ["gemm_mma"]);
    let selection = Selection { mode: Mode::Fallback, ..Selection::default() };
    assert_eq!(engines(&graph, "h200", &selection), ["gemm_simt"]);
    let selection = Selection { mode: Mode::B, ..Selection::default() };
    assert_eq!(engines(&graph, "h200", &selection), ["pointwise", "gemm_wgmma"]);
}

/// Prologues of either operand and of both.
#[test]
fn results_are_those_of_the_graph() {
    let mut apart = 0;
    let all = [Prologue::Relu, Prologue::Cast, Prologue::Dropout, Prologue::Dequantise];
    for (at, of) in all.into_iter().enumerate() {
        for (turn, target) in TARGETS.into_iter().enumerate() {
            // Three of the targets, by turns.
            if (at + turn) % 2 > 0 && !harness::all_are_wanted() {
                continue;
            }
            let mode = [Mode::A, Mode::B][(at + turn) / 2 % 2];
            let kiln = harness::simulated_by(target, (at + turn) as u64, mode);
            let Some(kiln) = kiln else { continue };
            let dtype = [DType::F16, DType::Bf16][turn % 2];
            let m = if matches!(of, Prologue::Dequantise) { 2048 } else { 65 };
            let graph = longer([m, 2112 - m, 72], dtype, of, 40);
            let plan = kiln.plan(&graph).expect("supported");
            apart += usize::from(plan.parts().len() > 1);
            let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 5, 1.0))).collect();
            let results = harness::run_plan(kiln, &plan, &inputs).expect("runs");
            harness::compare(&graph, &inputs, &results, &format!("{target}: {of:?}"));
        }
    }
    assert!(apart >= 10 || harness::kiln().device().kind() != "sim", "{apart} of 12");
}
