//! Gradients of products of 16-bit operands: on tensor cores, whatever type the product has, and
//! near those of the same values in double precision.

use kiln::engine::{self, Mode, Selection};
use kiln::expr::{self, Pointwise};
use kiln::graph::{
    Convolution, ConvolutionPass, GraphBuilder, Matmul, MatmulMath, Op, Vjp, Window,
};
use kiln::target::Target;
use kiln::{DType, OperationGraph, reference};

use crate::harness::{self, Values};
use crate::vjp;

fn math(dtype: DType) -> MatmulMath {
    if dtype == DType::F64 { MatmulMath::F64 } else { MatmulMath::F32 }
}

fn pointwise(mode: expr::Mode, dtype: DType) -> Pointwise {
    if dtype == DType::F64 { vjp::f64s(mode) } else { Pointwise::new(mode) }
}

/// A layer whose product and what follows are computed in a wider type.
fn layer(dtype: DType, product: impl FnOnce(&mut GraphBuilder) -> i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let c = product(&mut graph);
    let y = graph.pointwise(pointwise(expr::Mode::GeluFwd, dtype), &[c]).unwrap();
    graph.output(y, "y", dtype);
    graph.build().unwrap()
}

fn dense(dtype: DType, width: i64) -> OperationGraph {
    layer(dtype, |graph| {
        let x = graph.input("x", &[2 * width, width], dtype);
        let w = graph.input("w", &[width, 64], dtype);
        let bias = graph.input("bias", &[1, 64], dtype);
        let c = graph.matmul(Matmul::new(math(dtype)), x, w).unwrap();
        graph.pointwise(pointwise(expr::Mode::Add, dtype), &[c, bias]).unwrap()
    })
}

fn convolved(dtype: DType, width: i64) -> OperationGraph {
    layer(dtype, |graph| {
        let x = graph.input("x", &[1, width, 8, 8], dtype);
        let w = graph.input("w", &[width, width, 3, 3], dtype);
        let window =
            Window { pre_paddings: vec![1; 2], post_paddings: vec![1; 2], ..Window::unit(2) };
        let op = Convolution::new(ConvolutionPass::Forward, math(dtype), window);
        graph.operation(Op::Convolution(op), &[x, w]).unwrap()[0]
    })
}

/// Values of a graph's inputs, and of its backward graph's.
fn values(graph: &OperationGraph, vjp: &Vjp) -> [Values; 2] {
    let mut given = vjp::filled(graph, false);
    vjp::round(graph.inputs(), &mut given);
    let mut backward = vjp::backward_inputs(vjp, &given, &vjp::gradients(vjp));
    vjp::round(vjp.backward.inputs(), &mut backward);
    [given, backward]
}

#[test]
fn they_are_on_tensor_cores() {
    for (dtype, mode) in [(DType::Bf16, Mode::A), (DType::F16, Mode::B)] {
        for build in [dense, convolved] {
            let graph = build(dtype, 128);
            let vjp = vjp::all(&graph);
            for name in ["a100", "l40s", "h200", "b200", "rtx5090"] {
                let target = Target::named(name).unwrap();
                let selection = Selection { mode, ..Selection::default() };
                let parts = engine::partition(&vjp.backward, &target, &selection).unwrap();
                let engines: Vec<_> = parts.iter().map(|part| &part.config.engine).collect();
                let gemms = engines.iter().filter(|name| name.starts_with("gemm_"));
                let lanes = engines.iter().any(|name| *name == "gemm_simt");
                assert!(gemms.count() >= 2 && !lanes, "{name}: {engines:?}\n{}", vjp.backward);
            }
            let graph = build(dtype, 24);
            let vjp = vjp::all(&graph);
            let [_, values] = values(&graph, &vjp);
            harness::check(harness::kiln(), &vjp.backward, None, &values, "backward");
        }
    }
}

/// One rounding of the gradient of the product is all that lies between them and those of the same
/// graph in double precision.
#[test]
fn they_are_near_those_of_double_precision() {
    for dtype in [DType::Bf16, DType::F16] {
        for build in [dense, convolved] {
            let (graph, exact) = (build(dtype, 24), build(DType::F64, 24));
            let [vjp, of_exact] = [&graph, &exact].map(vjp::all);
            let [given, values] = values(&graph, &vjp);
            let own = reference::evaluate(&vjp.backward, &values).unwrap();
            let gradients = vjp.output_gradients.iter().zip(&of_exact.output_gradients);
            let gradients = gradients.map(|(own, exact)| (*exact, values[own].clone())).collect();
            let exact_values = vjp::backward_inputs(&of_exact, &given, &gradients);
            let exact_own = reference::evaluate(&of_exact.backward, &exact_values).unwrap();
            for (own_uid, exact_uid) in vjp.input_gradients.iter().zip(&of_exact.input_gradients) {
                let (own, exact) = (&own[own_uid].values, &exact_own[exact_uid].values);
                let size: f64 = exact.iter().map(|exact| exact * exact).sum();
                let off: f64 = own.iter().zip(exact).map(|(a, b)| (a - b) * (a - b)).sum();
                let bits = if dtype == DType::F16 { 10 } else { 7 };
                let unit = 0.5_f64.powi(bits);
                assert!((off / size).sqrt() < unit, "{dtype}: {}", (off / size).sqrt() / unit);
            }
        }
    }
}
