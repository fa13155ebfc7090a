//! Operands passed by value, in every place of every operation: the kernels compile and are right.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Op, Reduction, ReductionOp};
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

fn check(graph: &OperationGraph, inputs: &Values, what: &str) {
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        for engine in kiln::engine::engines() {
            let Ok(supported) = engine.support(graph.canonical(), target) else { continue };
            let config = supported.heuristic();
            harness::check(kiln, graph, Some(&config), inputs, &format!("{what}: {config}"));
        }
        harness::check(kiln, graph, None, inputs, what);
    }
}

/// Each override alone and all of them, before and behind every extent.
#[test]
fn overrides_by_value() {
    for given in [[true, false, false], [false, true, false], [false, false, true], [true; 3]] {
        for dtype in [DType::F32, DType::F16] {
            let mut graph = OperationGraph::builder();
            let [a, b] = [graph.input("a", &[9, 12], dtype), graph.input("b", &[12, 10], dtype)];
            let mut operands = vec![a, b];
            for (name, _) in ["m", "n", "k"].iter().zip(given).filter(|(_, given)| *given) {
                operands.push(graph.scalar(name, 2, DType::I32));
            }
            let op = Matmul { overrides: given, ..Matmul::default() };
            let c = graph.operation(Op::Matmul(op), &operands).unwrap()[0];
            graph.output(c, "c", DType::F32);
            let graph = graph.build().unwrap();
            for extent in [-1.0, 0.0, 5.0, 40.0] {
                let value = |tensor: &TensorDesc| match tensor.by_value {
                    true => vec![extent],
                    false => harness::fill(tensor, 5, 1.0),
                };
                let inputs = graph.inputs().map(|tensor| (tensor.uid, value(tensor))).collect();
                check(&graph, &inputs, &format!("{given:?} = {extent}, {dtype}"));
            }
        }
    }
}

/// Both operands of a product, of one element, and what follows it.
#[test]
fn operands_of_products_by_value() {
    for [by_value_a, by_value_b] in [[true, false], [false, true], [true, true]] {
        let mut graph = OperationGraph::builder();
        let mut operand = |name, dims: [i64; 2], by_value| match by_value {
            true => graph.scalar(name, 2, DType::F32),
            false => graph.input(name, &dims, DType::F32),
        };
        let a = operand("a", [5, 1], by_value_a);
        let b = operand("b", [1, 6], by_value_b);
        let c = graph.matmul(Matmul::default(), a, b).unwrap();
        let alpha = graph.scalar("alpha", 2, DType::F32);
        let y = graph.pointwise(Pointwise::new(Mode::Mul), &[c, alpha]).unwrap();
        graph.output(y, "y", DType::F32);
        let graph = graph.build().unwrap();
        let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 5, 1.0))).collect();
        check(&graph, &inputs, &format!("{by_value_a} {by_value_b}"));
    }
}

/// What is reduced is one value, and what its sum is added to.
#[test]
fn operands_of_reductions_by_value() {
    for op in [ReductionOp::Add, ReductionOp::Max, ReductionOp::Norm2] {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[3, 70], DType::F32);
        let [factor, shift] = ["factor", "shift"].map(|name| graph.scalar(name, 2, DType::F64));
        let scaled = graph.pointwise(Pointwise::new(Mode::Mul), &[x, factor]).unwrap();
        let sum = graph.reduction(Reduction::new(op), scaled, &[3, 1]).unwrap();
        let y = graph.pointwise(Pointwise::new(Mode::Add), &[sum, shift]).unwrap();
        graph.output(y, "y", DType::F32);
        let graph = graph.build().unwrap();
        let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 5, 1.0))).collect();
        check(&graph, &inputs, &format!("{op:?}"));
    }
}

/// A reduction of one value that is passed by value alone.
#[test]
fn a_reduction_of_a_value() {
    let mut graph = OperationGraph::builder();
    let x = graph.scalar("x", 2, DType::F32);
    let y = graph.reduction(Reduction::new(ReductionOp::Norm1), x, &[1, 1]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let inputs = graph.inputs().map(|of| (of.uid, vec![-2.5])).collect();
    check(&graph, &inputs, "one value");
}
