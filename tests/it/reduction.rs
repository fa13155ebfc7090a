//! Reductions along rows against the reference: every operation, type, layout and edge shape, with
//! pointwise operations before, between and after them.

use kiln::engine;
use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{Reduction, ReductionOp};
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};
use serde_json::json;

use crate::cases::{File, Parameters};
use crate::harness::{self, Values};

fn math(dtype: DType) -> Math {
    if dtype == DType::F64 { Math::F64 } else { Math::F32 }
}

/// A graph of `tests/cases/reductions.toml`: every reduction of rows or of columns, in one kernel.
pub fn every_reduction(
    of: &str,
    dtype: DType,
    [rows, columns]: [i64; 2],
    lay: &str,
) -> OperationGraph {
    let stored = if dtype.is_float() { dtype } else { DType::F32 };
    let math = if dtype == DType::F64 { "f64" } else { "f32" };
    let with = json!({
        "t": dtype, "stored": stored, "math": math, "m": rows, "n": columns, "lay": lay
    });
    let with: Parameters = serde_json::from_value(with).unwrap();
    File::read("reductions").graph(of, &with)
}

/// Values whose products neither vanish nor overflow, some of them 0.
pub fn values(graph: &OperationGraph) -> Values {
    let near_one = |tensor: &TensorDesc| -> Vec<f64> {
        let values = harness::fill(tensor, 7, 0.5).into_iter().enumerate();
        let value = |(at, value): (usize, f64)| match at % 97 {
            96 => 0.0,
            _ => tensor.dtype.round(if value < 0.0 { value - 0.75 } else { value + 0.75 }),
        };
        values.map(value).collect()
    };
    graph.inputs().map(|tensor| (tensor.uid, near_one(tensor))).collect()
}

#[test]
fn special_values_spread_as_documented() {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -2.5];
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        // Row after row another pair of special values among others.
        let graph = every_reduction("rows", dtype, [49, 40], "rows");
        let x = graph.inputs().next().unwrap();
        let mut data = values(&graph).remove(&x.uid).unwrap();
        for (row, columns) in data.chunks_mut(40).enumerate() {
            columns[row % 40] = special[row / 7];
            columns[(row + 3) % 40] = special[row % 7];
        }
        let inputs = Values::from([(x.uid, data)]);
        // The oldest architecture compares by hand.
        for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
            harness::check(kiln, &graph, None, &inputs, &format!("{dtype}"));
        }
    }
}

/// Dimensions of 4-dimensional data that are reduced, in several layouts.
#[test]
fn any_dimensions_may_be_reduced() {
    let dims = [3, 4, 5, 6];
    let orders: [[usize; 4]; 3] = [[0, 1, 2, 3], [0, 2, 3, 1], [3, 1, 0, 2]];
    for order in orders {
        let mut strides = vec![1; 4];
        let mut step = 1;
        for axis in order.into_iter().rev() {
            strides[axis] = step;
            step *= dims[axis];
        }
        for mask in 1..16 {
            let mut graph = OperationGraph::builder();
            let desc = TensorDesc::packed(1, "x", &dims, DType::F32);
            let x = graph.tensor(TensorDesc { strides: strides.clone(), ..desc });
            let kept: Vec<i64> =
                (0..4).map(|axis| if mask & (1 << axis) != 0 { 1 } else { dims[axis] }).collect();
            let index = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(1), &[x]).unwrap();
            let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, index]).unwrap();
            let y = graph.reduction(Reduction::new(ReductionOp::Add), sum, &kept).unwrap();
            let z = graph.pointwise(Pointwise::new(Mode::Sub), &[x, y]).unwrap();
            graph.output(y, "y", DType::F32);
            graph.output(z, "z", DType::F32);
            let graph = graph.build().unwrap();
            for kiln in harness::dialects() {
                let what = format!("{order:?} {mask:b}");
                harness::check(kiln, &graph, None, &values(&graph), &what);
            }
        }
    }
}

/// `softmax` or `log(softmax)` along the rows.
pub fn softmax(dtype: DType, dims: &[i64], logarithm: bool) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", dims, dtype);
    let of = |mode: Mode| Pointwise::new(mode).math(math(dtype));
    let reduce = |op: ReductionOp| Reduction { op, math: math(dtype) };
    let mut row = dims.to_vec();
    *row.last_mut().unwrap() = 1;
    let maximum = graph.reduction(reduce(ReductionOp::Max), x, &row).unwrap();
    let shifted = graph.pointwise(of(Mode::Sub), &[x, maximum]).unwrap();
    let e = graph.pointwise(of(Mode::Exp), &[shifted]).unwrap();
    let total = graph.reduction(reduce(ReductionOp::Add), e, &row).unwrap();
    let y = match logarithm {
        true => {
            let log = graph.pointwise(of(Mode::Log), &[total]).unwrap();
            graph.pointwise(of(Mode::Sub), &[shifted, log]).unwrap()
        }
        false => graph.pointwise(of(Mode::Div), &[e, total]).unwrap(),
    };
    graph.output(y, "y", dtype);
    graph.build().unwrap()
}

#[test]
fn softmax_runs() {
    for dtype in [DType::F64, DType::F32, DType::F16, DType::Bf16] {
        for columns in [1, 5, 64, 100, 1000, 4100, 33_000] {
            for logarithm in [false, true] {
                let graph = softmax(dtype, &[3, columns], logarithm);
                let inputs = graph.inputs();
                let inputs = inputs.map(|tensor| (tensor.uid, harness::fill(tensor, 3, 8.0)));
                let inputs = inputs.collect();
                for kiln in harness::dialects() {
                    harness::check(kiln, &graph, None, &inputs, &format!("{dtype} {columns}"));
                }
            }
        }
    }
}

/// Infinity less infinity is NaN, so a row whose maximum is infinite is NaN throughout.
#[test]
fn softmax_of_infinities() {
    let graph = softmax(DType::F32, &[4, 50], false);
    let x = graph.inputs().next().unwrap();
    let mut data = harness::fill(x, 3, 8.0);
    data[..50].fill(f64::NEG_INFINITY);
    data[60..80].fill(f64::NEG_INFINITY);
    data[120] = f64::INFINITY;
    data[170] = f64::NAN;
    let inputs = Values::from([(x.uid, data)]);
    for kiln in harness::dialects() {
        let actual = harness::run(kiln, &graph, None, &inputs).unwrap();
        harness::compare(&graph, &inputs, &actual, "softmax");
        let y = actual.values().next().unwrap();
        let nan = |from: usize| y[from..from + 50].iter().filter(|y| y.is_nan()).count();
        assert_eq!([0, 50, 100, 150].map(nan), [50, 0, 50, 50]);
    }
}

/// The residual is added, rounded and stored, then normalised: `h = x + residual`, its root mean
/// square, `y = h * rms(h) * scale`.
pub fn residual_rms(dims: [i64; 2]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &dims, DType::Bf16);
    let residual = graph.input("residual", &dims, DType::Bf16);
    let scale = graph.input("scale", &[1, dims[1]], DType::Bf16);
    let h = graph.pointwise(Pointwise::new(Mode::Add), &[x, residual]).unwrap();
    graph.output(h, "h", DType::Bf16);
    let square = graph.pointwise(Pointwise::new(Mode::Mul), &[h, h]).unwrap();
    let mean = graph.reduction(Reduction::new(ReductionOp::Avg), square, &[dims[0], 1]).unwrap();
    let rms = graph.pointwise(Pointwise::new(Mode::Rsqrt), &[mean]).unwrap();
    graph.name(rms, "rms", DType::Bf16);
    let normal = graph.pointwise(Pointwise::new(Mode::Mul), &[h, rms]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Mul), &[normal, scale]).unwrap();
    graph.output(y, "y", DType::Bf16);
    graph.output(mean, "mean", DType::F16);
    graph.build().unwrap()
}

#[test]
fn fused_residual_and_norm() {
    for dims in [[3, 96], [5, 768], [4, 1001], [2, 20_000]] {
        let graph = residual_rms(dims);
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &values(&graph), &format!("{dims:?}"));
        }
    }
}

/// Sums of rows, and of columns on the way.
#[test]
fn rows_and_columns_are_reduced_together() {
    for (dtype, dims) in [(DType::F32, [4, 5]), (DType::Bf16, [70, 300]), (DType::F16, [0, 8])] {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &dims, dtype);
        let scale = graph.scalar("scale", 2, DType::F32);
        for op in [ReductionOp::Add, ReductionOp::Max, ReductionOp::Avg] {
            let rows = graph.reduction(Reduction::new(op), x, &[dims[0], 1]).unwrap();
            let columns = graph.reduction(Reduction::new(op), x, &[1, dims[1]]).unwrap();
            let scaled = graph.pointwise(Pointwise::new(Mode::Mul), &[columns, scale]).unwrap();
            graph.output(rows, &format!("rows_{}", op.name()), DType::F32);
            graph.output(scaled, &format!("columns_{}", op.name()), dtype);
        }
        let graph = graph.build().unwrap();
        let inputs = values(&graph);
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &inputs, &format!("{dtype} {dims:?}"));
        }
    }
}

#[test]
fn reductions_along_different_dimensions_are_refused() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4, 5, 6], DType::F32);
    let reduce = Reduction::new(ReductionOp::Add);
    let first = graph.reduction(reduce, x, &[1, 5, 6]).unwrap();
    let second = graph.reduction(reduce, x, &[4, 1, 6]).unwrap();
    graph.output(first, "first", DType::F32);
    graph.output(second, "second", DType::F32);
    let graph = graph.build().unwrap();
    let engine = engine::engine_named("reduction").unwrap();
    let target = harness::kiln().device().target();
    let error = engine.support(graph.canonical(), target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let text = "reductions along different dimensions: [0] and [1]";
    let other = "reductions along different dimensions: [1] and [0]";
    assert!([text, other].contains(&error.to_string().as_str()), "{error}");
}
