//! Batches of vectors.

use kiln::DType;
use kiln::graph::MatmulMath;

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
