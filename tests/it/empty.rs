//! Tensors without elements beside others that have some: each result is written, none is fused
//! into a kernel that has nothing to do.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{
    BnBackwardWeights, Matmul, NormBackward, NormForward, NormMode, Op, Phase, Reduction,
    ReductionOp,
};
use kiln::{DType, OperationGraph};

use crate::harness::{self, Values};

/// Checks a graph whose inputs are made up, and that some result has elements.
#[track_caller]
fn check(graph: &OperationGraph, what: &str) {
    assert!(graph.outputs().any(|tensor| !tensor.is_empty()), "{what}: {graph}");
    let positive = |values: Vec<f64>| values.iter().map(|value| value.abs() + 0.5).collect();
    let inputs: Values =
        graph.inputs().map(|of| (of.uid, positive(harness::fill(of, 3, 1.0)))).collect();
    for kiln in harness::dialects() {
        harness::check(kiln, graph, None, &inputs, what);
    }
}

/// `y = relu(x)` beside `w = x + z`, where only `z` and `w` are empty.
#[test]
fn a_pointwise_result_beside_an_empty_one() {
    let mut graph = OperationGraph::builder();
    let [x, z] = [graph.input("x", &[1, 7], DType::F32), graph.input("z", &[0, 7], DType::F32)];
    let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[x]).unwrap();
    let w = graph.pointwise(Pointwise::new(Mode::Add), &[x, z]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.output(w, "w", DType::F32);
    check(&graph.build().unwrap(), "pointwise");
}

/// Reductions of nothing are their neutral elements, whatever else a graph computes.
#[test]
fn reductions_beside_empty_tensors() {
    for (dims, to) in [([0, 7], [1, 7]), ([7, 0], [7, 1]), ([0, 7], [1, 1]), ([5, 0], [1, 1])] {
        for op in [ReductionOp::Add, ReductionOp::Max, ReductionOp::Mul] {
            let mut graph = OperationGraph::builder();
            let x = graph.input("x", &dims, DType::F32);
            let bias = graph.input("bias", &to, DType::F32);
            let shifted = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
            let sum = graph.reduction(Reduction::new(op), shifted, &to).unwrap();
            let y = graph.pointwise(Pointwise::new(Mode::Add), &[sum, bias]).unwrap();
            let own = graph.pointwise(Pointwise::new(Mode::Neg), &[bias]).unwrap();
            graph.output(shifted, "shifted", DType::F32);
            graph.output(y, "y", DType::F32);
            graph.output(own, "own", DType::F32);
            check(&graph.build().unwrap(), &format!("{op:?} {dims:?} -> {to:?}"));
        }
    }
}

/// A product without rows, columns or depth, with what follows it and beside something else.
#[test]
fn products_beside_empty_tensors() {
    for [m, n, k] in [[0, 5, 6], [4, 0, 6], [4, 5, 0]] {
        for dtype in [DType::F32, DType::F16] {
            let mut graph = OperationGraph::builder();
            let [a, b] = [graph.input("a", &[m, k], dtype), graph.input("b", &[k, n], dtype)];
            let row = graph.input("row", &[1, n], DType::F32);
            let c = graph.matmul(Matmul::default(), a, b).unwrap();
            let sum = graph.reduction(Reduction::new(ReductionOp::Add), c, &[1, n]).unwrap();
            let y = graph.pointwise(Pointwise::new(Mode::Add), &[c, row]).unwrap();
            let own = graph.pointwise(Pointwise::new(Mode::Neg), &[row]).unwrap();
            let [of_a, of_b] = [a, b]
                .map(|of| graph.reduction(Reduction::new(ReductionOp::Add), of, &[1, 1]).unwrap());
            for (uid, name) in
                [(y, "y"), (own, "own"), (sum, "sum"), (of_a, "of_a"), (of_b, "of_b")]
            {
                graph.output(uid, name, DType::F32);
            }
            check(&graph.build().unwrap(), &format!("product {m} x {n} x {k} {dtype}"));
        }
    }
}

/// Norms of nothing, and their gradients.
#[test]
fn norms_beside_empty_tensors() {
    for (mode, dims) in
        [(NormMode::Layer, [0, 7]), (NormMode::Rms, [0, 7]), (NormMode::Batch, [0, 7])]
    {
        let parameters = [1, dims[1]];
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &dims, DType::F32);
        let [scale, bias] =
            ["scale", "bias"].map(|name| graph.input(name, &parameters, DType::F32));
        let epsilon = graph.input("epsilon", &[1, 1], DType::F32);
        let op = NormForward::new(mode, Phase::Training);
        let y = graph.operation(Op::NormForward(op), &[x, scale, bias, epsilon]).unwrap()[0];
        let op = NormBackward { statistics: false, ..NormBackward::new(mode) };
        let gradients = graph.operation(Op::NormBackward(op), &[x, y, scale, epsilon]).unwrap();
        let own = graph.pointwise(Pointwise::new(Mode::Neg), &[scale]).unwrap();
        graph.output(own, "own", DType::F32);
        for (uid, name) in gradients.into_iter().zip(["dx", "dscale", "dbias"]) {
            graph.output(uid, name, DType::F32);
        }
        check(&graph.build().unwrap(), &format!("{mode:?} norm of {dims:?}"));
    }
}

/// The plane of a batch normalisation's gradients divides by the number of values: 0 / 0 is not a
/// number, whatever is made of it.
#[test]
fn the_plane_of_no_values_is_not_a_number() {
    let mut graph = OperationGraph::builder();
    let [x, dy] = ["x", "dy"].map(|name| graph.input(name, &[1, 65, 0, 7], DType::F32));
    let [mean, inverse, scale] =
        ["mean", "inverse", "scale"].map(|name| graph.input(name, &[1, 65, 1, 1], DType::F32));
    let op = Op::BnBackwardWeights(BnBackwardWeights::default());
    let results = graph.operation(op, &[x, dy, mean, inverse, scale]).unwrap();
    let least = graph.reduction(Reduction::new(ReductionOp::Min), results[3], &[1; 4]).unwrap();
    graph.output(least, "least", DType::F32);
    for (uid, name) in results.into_iter().zip(["dscale", "dbias", "of_dy", "of_x", "level"]) {
        graph.output(uid, name, DType::F32);
    }
    check(&graph.build().unwrap(), "the plane of no values");
}
