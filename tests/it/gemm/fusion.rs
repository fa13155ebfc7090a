//! What precedes and follows a product, overridden extents, values that are no numbers.

use kiln::DType::{self, *};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, MatmulMath, Op};
use kiln::{ErrorKind, Kiln, OperationGraph, TensorDesc, engine};

use super::cases::{Fusion, check, heuristic, inputs};
use crate::harness;

const MATH: MatmulMath = MatmulMath::F32;

/// `gelu(a b + bias)`, as linear layers have it.
pub fn bias_gelu(extents: [i64; 3], dtype: DType) -> OperationGraph {
    let [m, n, k] = extents;
    let mut fusion = Fusion::new((&[m, k], dtype), (&[k, n], dtype));
    let bias = fusion.graph.input("bias", &[1, n], dtype);
    let c = fusion.product(fusion.a, fusion.b, MATH, DType::F32);
    let biased = fusion.binary(Mode::Add, [c, bias], DType::F32);
    let y = fusion.unary(Mode::GeluFwd, biased, DType::F32);
    fusion.output(y, "y", dtype);
    fusion.build()
}

/// `relu(a) dequantised(b)`: a program on either operand, one with an operand per column.
pub fn prologues(extents: [i64; 3], dtype: DType) -> OperationGraph {
    let [m, n, k] = extents;
    let mut fusion = Fusion::new((&[m, k], dtype), (&[k, n], I8));
    let scale = fusion.graph.input("scale", &[1, n], DType::F32);
    let a = fusion.unary(Mode::ReluFwd, fusion.a, dtype);
    let b = fusion.binary(Mode::Mul, [fusion.b, scale], dtype);
    let c = fusion.product(a, b, MATH, DType::F32);
    fusion.output(c, "c", DType::F32);
    fusion.build()
}

/// Two outputs of which one is the product itself; operands per row, per column, per element, by
/// value; an index; the product rounded to 16 bits before anything follows.
pub fn rich(extents: [i64; 3], dtype: DType) -> OperationGraph {
    let [m, n, k] = extents;
    let mut fusion = Fusion::new((&[2, m, k], dtype), (&[2, k, n], dtype));
    let residual = fusion.graph.input("residual", &[2, m, n], dtype);
    let row = fusion.graph.input("row", &[1, m, 1], DType::F32);
    let per_batch = fusion.graph.input("per_batch", &[2, 1, n], F64);
    let alpha = fusion.graph.scalar("alpha", 3, DType::F32);
    let c = fusion.product(fusion.a, fusion.b, MATH, Bf16);
    let scaled = fusion.binary(Mode::Mul, [c, alpha], DType::F32);
    let shifted = fusion.binary(Mode::Add, [scaled, row], DType::F32);
    let gated = fusion.unary(Mode::SwishFwd, shifted, DType::F32);
    let sum = fusion.binary(Mode::Add, [gated, residual], DType::F32);
    let index = fusion.apply(Pointwise::new(Mode::GenIndex).axis(2), &[residual], DType::F32);
    let moved = fusion.binary(Mode::Sub, [sum, index], DType::F32);
    let y = fusion.binary(Mode::Mul, [moved, per_batch], DType::F32);
    fusion.output(c, "c", Bf16);
    fusion.output(y, "y", dtype);
    fusion.build()
}

/// The gate and the value of SwiGLU's second half, from a product that both read.
pub fn two_outputs(extents: [i64; 3], dtype: DType) -> OperationGraph {
    let [m, n, k] = extents;
    let mut fusion = Fusion::new((&[m, k], dtype), (&[k, n], dtype));
    let up = fusion.graph.input("up", &[m, n], dtype);
    let c = fusion.product(fusion.a, fusion.b, MATH, DType::F32);
    let gate = fusion.unary(Mode::SwishFwd, c, dtype);
    let y = fusion.binary(Mode::Mul, [gate, up], DType::F32);
    fusion.output(gate, "gate", dtype);
    fusion.output(y, "y", dtype);
    fusion.build()
}

/// Operands that are computed from several tensors, broadcast along either dimension, counted.
fn built(extents: [i64; 3], math: MatmulMath) -> OperationGraph {
    let [m, n, k] = extents;
    let mut fusion = Fusion::new((&[m, 1], DType::F32), (&[k, n], F16));
    let depth = fusion.graph.input("depth", &[1, k], Bf16);
    let a = fusion.binary(Mode::Add, [fusion.a, depth], DType::F32);
    let index = fusion.apply(Pointwise::new(Mode::GenIndex).axis(0), &[fusion.b], DType::F32);
    let tilted =
        fusion.apply(Pointwise::new(Mode::Add).alphas(1.0, 0.125), &[fusion.b, index], DType::F32);
    let c = fusion.product(a, tilted, math, DType::F32);
    fusion.output(c, "c", DType::F32);
    fusion.build()
}

/// Every fusion that an engine takes for operands of a type.
fn fusions(extents: [i64; 3], dtype: DType) -> Vec<OperationGraph> {
    vec![
        bias_gelu(extents, dtype),
        prologues(extents, dtype),
        rich(extents, dtype),
        two_outputs(extents, dtype),
    ]
}

#[test]
fn simt_fusions() {
    for kiln in harness::dialects() {
        for dtype in [DType::F32, F16] {
            for (at, graph) in fusions([37, 45, 40], dtype).iter().enumerate() {
                check(kiln, graph, "gemm_simt", &format!("fusion {at} {dtype}"));
            }
        }
        check(kiln, &built([37, 45, 40], MATH), "gemm_simt", "built");
    }
}

#[test]
fn mma_fusions() {
    for kiln in harness::dialects() {
        for dtype in [F16, Bf16] {
            for (at, graph) in fusions([37, 45, 40], dtype).iter().enumerate() {
                check(kiln, graph, "gemm_mma", &format!("fusion {at} {dtype}"));
            }
        }
        check(kiln, &built([37, 45, 40], MatmulMath::Tf32), "gemm_mma", "built");
    }
}

/// One tensor as both operands and as what is added, indices of a batch and of columns of an
/// operand, a result that lies along its columns.
fn roles(dtype: DType) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[3, 20, 20], dtype);
    let batch = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(0), &[x]).unwrap();
    let row = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(1), &[x]).unwrap();
    let a = graph.pointwise(Pointwise::new(Mode::Add).alphas(1.0, 0.25), &[x, batch]).unwrap();
    graph.name(a, "a", dtype);
    let c = graph.matmul(Matmul::new(MATH), a, x).unwrap();
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[c, x]).unwrap();
    let turned = graph.pointwise(Pointwise::new(Mode::Sub), &[sum, row]).unwrap();
    let y = TensorDesc::packed(30, "y", &[3, 20, 20], DType::F32);
    let y = graph.tensor(TensorDesc { strides: vec![400, 1, 20], ..y });
    graph.pointwise_into(Pointwise::new(Mode::Add), &[turned, batch], y);
    graph.build().unwrap()
}

#[test]
fn a_tensor_in_every_role() {
    check(harness::kiln(), &roles(DType::F32), "gemm_simt", "roles");
    check(harness::kiln(), &roles(F16), "gemm_mma", "roles");
}

fn split(engine: &str, dtype: DType) {
    for graph in fusions([9, 45, 256], dtype) {
        let config = heuristic(harness::kiln(), &graph, engine).with("split_k", 4);
        harness::check(harness::kiln(), &graph, Some(&config), &inputs(&graph), "split");
    }
}

#[test]
fn simt_fusions_split() {
    split("gemm_simt", DType::F32);
}

#[test]
fn mma_fusions_split() {
    split("gemm_mma", Bf16);
}

/// Extents that a tensor overrides, beyond the tensors' and below 0 too.
fn overridden(given: [bool; 3], transposed: bool, dtype: DType) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[2, 3, 36, 20], dtype);
    let b = graph.input("b", &[1, 3, 20, 34], dtype);
    let mut operands = vec![a, b];
    for name in
        ["m", "n", "k"].into_iter().zip(given).filter_map(|(name, given)| given.then_some(name))
    {
        operands.push(graph.input(&format!("{name}_override"), &[2, 3, 1, 1], I32));
    }
    let c = TensorDesc::packed(20, "c", &[2, 3, 36, 34], DType::F32);
    let strides = vec![36 * 34 * 3, 36 * 34, 1, 36];
    let c = graph.tensor(if transposed { TensorDesc { strides, ..c } } else { c });
    let matmul = Matmul { overrides: given, ..Matmul::new(MATH) };
    graph.operation_into(Op::Matmul(matmul), &operands, &[c]);
    let y = graph.pointwise(Pointwise::new(Mode::CmpEq), &[c, c]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// Values for overridden graphs: infinities in rows, columns and depths that do not count.
fn override_values(graph: &OperationGraph) -> harness::Values {
    let mut values = inputs(graph);
    for tensor in graph.inputs() {
        let given = values.get_mut(&tensor.uid).unwrap();
        match tensor.name.as_str() {
            "m_override" => *given = vec![36.0, 0.0, 17.0, 40.0, -3.0, 1.0],
            "n_override" => *given = vec![5.0, 34.0, 33.0, 0.0, 34.0, 99.0],
            "k_override" => *given = vec![20.0, 7.0, 0.0, 19.0, 16.0, -1.0],
            // The last row of each A, and so the last K of none.
            "a" => (0..6).for_each(|at| given[at * 720 + 719] = f64::INFINITY),
            _ => {}
        }
    }
    values
}

fn every_override(engine: &str, dtype: DType, split_k: i64) {
    let all = (0..8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0]);
    let cases = all.flat_map(|given| [(given, false, 1), (given, true, split_k)]);
    for (given, transposed, split_k) in cases {
        let graph = overridden(given, transposed, dtype);
        let values = override_values(&graph);
        let config = heuristic(harness::kiln(), &graph, engine).with("split_k", split_k);
        let what = format!("{config}: overrides {given:?} {transposed}");
        harness::check(harness::kiln(), &graph, Some(&config), &values, &what);
    }
}

#[test]
fn simt_overrides() {
    every_override("gemm_simt", DType::F32, 2);
}

#[test]
fn mma_overrides() {
    every_override("gemm_mma", F16, 1);
}

/// A product with values that are no numbers: in whole rows and columns, and nowhere else.
pub fn not_numbers(kilns: &[&Kiln], engine: &str, dtype: DType, extents: [i64; 3]) {
    let [m, n, k] = extents.map(|extent| extent as usize);
    let graph = bias_gelu(extents, dtype);
    let mut values = inputs(&graph);
    let name = |name: &str| graph.tensor_named(name).unwrap().uid;
    values.get_mut(&name("a")).unwrap()[k * 5 + 2] = f64::NAN;
    values.get_mut(&name("a")).unwrap()[k * m - 1] = f64::INFINITY;
    values.get_mut(&name("b")).unwrap()[n * 8 - 1] = f64::NEG_INFINITY;
    for kiln in kilns {
        let config = heuristic(kiln, &graph, engine);
        harness::check(kiln, &graph, Some(&config), &values, "not numbers");
    }
}

#[test]
fn simt_not_numbers() {
    not_numbers(&harness::dialects(), "gemm_simt", DType::F32, [40, 36, 33]);
}

#[test]
fn mma_not_numbers() {
    not_numbers(&harness::dialects(), "gemm_mma", Bf16, [40, 36, 33]);
}

/// What no kernel of the engine takes, with the rule that says so.
#[test]
fn refusals_name_their_rule() {
    let target = harness::kiln().device().target();
    let engine = engine::engine_named("gemm_simt").unwrap();
    let refused = |graph: OperationGraph, rule: &str| {
        let error = engine.support(graph.canonical(), target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert_eq!(error.to_string(), rule);
    };
    let mut fusion = Fusion::new((&[4, 4], DType::F32), (&[4, 4], DType::F32));
    let c = fusion.product(fusion.a, fusion.b, MATH, DType::F32);
    let d = fusion.graph.matmul(Matmul::new(MATH), c, fusion.b).unwrap();
    fusion.output(d, "d", DType::F32);
    refused(fusion.build(), "the graph has more than one product");

    let mut fusion = Fusion::new((&[4, 4], DType::F32), (&[4, 4], DType::F32));
    let a = fusion.unary(Mode::Exp, fusion.a, DType::F32);
    fusion.output(a, "exp", DType::F32);
    let c = fusion.product(a, fusion.b, MATH, DType::F32);
    fusion.output(c, "c", DType::F32);
    refused(fusion.build(), "`exp` is a result and an operand of the product is computed from it");

    let mut fusion = Fusion::new((&[1, 4, 4], DType::F32), (&[1, 4, 4], DType::F32));
    let x = fusion.graph.input("x", &[2, 4, 4], DType::F32);
    let c = fusion.product(fusion.a, fusion.b, MATH, DType::F32);
    let y = fusion.binary(Mode::Add, [c, x], DType::F32);
    fusion.output(y, "y", DType::F32);
    refused(fusion.build(), "`y` is [2, 4, 4], the product is [1, 4, 4]");

    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4, 4], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Exp), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    refused(graph.build().unwrap(), "the graph has no product of matrices");
}
