//! Batches of vectors, and residuals in place of results.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath};
use kiln::{DType, OperationGraph};

use super::cases::{Case, check};
use crate::harness;

const F32: MatmulMath = MatmulMath::F32;

/// A matrix per row of the batch: the batches become the rows of one product.
#[test]
fn batches_of_vectors_are_one_product() {
    let case = Case::new(F32, [DType::F32, DType::F32, DType::F32], [1, 40, 20]);
    let graph = Case { batches: [&[4, 10], &[1, 1]], ..case }.graph();
    let config = super::cases::heuristic(harness::kiln(), &graph, "gemm_simt");
    let text = harness::kiln().sources(&graph, &config).unwrap().remove(0).text;
    // A constant that nothing reads is not rendered: there is one batch.
    assert!(text.contains("M = 40;") && !text.contains("BATCHES"), "{text}");
    check(harness::kiln(), &graph, "gemm_simt", "rows");
}

/// A residual is read where the sum is written, by the thread that writes it: both may be one.
#[test]
fn residuals_may_be_where_results_are() {
    for (dtype, [m, n, k], least) in [
        (DType::Bf16, [130, 72, 64], 3),
        (DType::F16, [1, 8, 512], 2),
        (DType::F32, [33, 7, 40], 1),
    ] {
        let mut graph = OperationGraph::builder();
        let a = graph.input("a", &[m, k], dtype);
        let b = graph.input("b", &[k, n], dtype);
        let bias = graph.input("bias", &[1, n], dtype);
        let before = graph.input("before", &[m, n], dtype);
        let c = graph.matmul(Matmul::default(), a, b).unwrap();
        let c = graph.pointwise(Pointwise::new(Mode::Add), &[c, bias]).unwrap();
        let y = graph.pointwise(Pointwise::new(Mode::Add), &[c, before]).unwrap();
        graph.output(y, "y", dtype);
        let engines = ["gemm_simt", "gemm_mma", "gemm_wgmma"];
        harness::check_added_in_place(&graph.build().unwrap(), &engines, least);
    }
}
