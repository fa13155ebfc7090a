//! Rows are counted at run time: one kernel serves every number of them.

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{NormForward, NormMode, Op, Phase, Reduction, ReductionOp};
use kiln::{DType, Kiln, OperationGraph};

use crate::harness::{self, Values};

fn rms_norm(rows: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, 72], DType::Bf16);
    let scale = graph.input("scale", &[1, 72], DType::Bf16);
    let epsilon = graph.scalar("epsilon", 2, DType::F32);
    let op = NormForward { bias: false, ..NormForward::new(NormMode::Rms, Phase::Inference) };
    let y = graph.operation(Op::NormForward(op), &[x, scale, epsilon]).unwrap()[0];
    graph.output(y, "y", DType::Bf16);
    graph.build().unwrap()
}

/// With outer dimensions that are not merged, and an index along the rows.
fn softmax(rows: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, 3, 40], DType::F32);
    let bias = graph.input("bias", &[1, 3, 40], DType::F32);
    let at = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(0), &[x]).unwrap();
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[sum, at]).unwrap();
    let dims = [rows, 3, 1];
    let maximum = graph.reduction(Reduction::new(ReductionOp::Max), sum, &dims).unwrap();
    let less = graph.pointwise(Pointwise::new(Mode::Sub), &[sum, maximum]).unwrap();
    let power = graph.pointwise(Pointwise::new(Mode::Exp), &[less]).unwrap();
    let total = graph.reduction(Reduction::new(ReductionOp::Add), power, &dims).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Div), &[power, total]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// Statistics of channels that lie side by side, of all rows and positions.
fn channels(rows: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, 3, 40], DType::Bf16);
    let mean = graph.reduction(Reduction::new(ReductionOp::Avg), x, &[1, 1, 40]).unwrap();
    let away = graph.pointwise(Pointwise::new(Mode::Sub), &[x, mean]).unwrap();
    let most = graph.reduction(Reduction::new(ReductionOp::Amax), away, &[1, 1, 40]).unwrap();
    graph.output(mean, "mean", DType::F32);
    graph.output(most, "most", DType::F32);
    graph.build().unwrap()
}

/// Of every row by itself: rows are kept, positions reduced.
fn positions(rows: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, 7, 32], DType::F32);
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), x, &[rows, 1, 32]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Mul), &[x, sum]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// One dimension: every tensor lies as the others do.
fn flat(rows: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let [a, b] = ["a", "b"].map(|name| graph.input(name, &[rows, 24], DType::F16));
    let y = graph.pointwise(Pointwise::new(Mode::Mul), &[a, b]).unwrap();
    graph.output(y, "y", DType::F16);
    graph.build().unwrap()
}

/// Two dimensions, one operand that is the same for each row.
fn biased(rows: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, 5, 24], DType::F16);
    let bias = graph.input("bias", &[1, 5, 1], DType::F32);
    let row = graph.input("row", &[1, 1, 24], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Add), &[y, row]).unwrap();
    graph.output(y, "y", DType::F16);
    graph.build().unwrap()
}

fn inputs(graph: &OperationGraph) -> Values {
    let value = |tensor: &kiln::TensorDesc| match tensor.by_value {
        true => vec![1e-5],
        false => harness::fill(tensor, 6, 1.0),
    };
    graph.inputs().map(|tensor| (tensor.uid, value(tensor))).collect()
}

/// One setting has the same sources for these numbers of rows, and is right with each.
#[track_caller]
fn check(kiln: &Kiln, graph: fn(i64) -> OperationGraph, rows: &[i64], config: &EngineConfig) {
    let mut texts: Vec<String> = Vec::new();
    for rows in rows {
        let graph = graph(*rows);
        let sources = kiln.sources(&graph, config).unwrap();
        let own: Vec<String> = sources.into_iter().map(|source| source.text).collect();
        if texts.is_empty() {
            texts.clone_from(&own);
        }
        assert!(texts == own, "{config}: {rows} rows\n{}", own.join("\n"));
        harness::check(kiln, &graph, Some(config), &inputs(&graph), &format!("{config} {rows}"));
    }
}

#[test]
fn rows_are_counted_at_run_time() {
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        for (graph, name) in [
            (rms_norm as fn(i64) -> OperationGraph, "reduction"),
            (softmax, "reduction"),
            (flat, "pointwise"),
            (biased, "pointwise"),
        ] {
            let of = graph(64);
            let supported = engine::supported(name, of.canonical(), target).unwrap();
            let config = supported.heuristic();
            let grids = [config.clone().with("grid", 0), config.with("grid", 1)];
            for config in grids {
                check(kiln, graph, &[16, 64, 256], &config);
            }
        }
    }
}

/// Whether rows are what is reduced, by one block or several, or are kept.
#[test]
fn rows_of_columns_are_counted_at_run_time() {
    for kiln in harness::dialects() {
        let target = kiln.device().target();
        for (graph, split, rows) in [
            (channels as fn(i64) -> OperationGraph, 1, &[2, 16, 33, 200][..]),
            (channels, 2, &[128, 200, 333]),
            (positions, 1, &[8, 16, 64]),
        ] {
            let of = graph(64);
            let supported = engine::supported("reduction_columns", of.canonical(), target);
            let config = supported.unwrap().heuristic().with("items", 2).with("threads_x", 8);
            let config = config.with("threads_y", 4).with("vector", 4);
            check(kiln, graph, rows, &config.with("split", split));
        }
    }
}

/// Rows that are read again, by one block or several.
#[test]
fn long_rows_are_counted_at_run_time() {
    let kiln = harness::kiln();
    let read = "reduction{cluster=1, grid=0, items=1, split=1, stages=0, threads=128, \
                threads_row=8, vector=1}";
    check(kiln, softmax, &[16, 32, 64], &read.parse().unwrap());
    // A block that is short of a row is another kernel, whatever their number.
    check(kiln, rms_norm, &[3, 17, 101], &{
        let text = "reduction{cluster=1, grid=0, items=4, split=1, stages=0, threads=128, \
                    threads_row=8, vector=4}";
        text.parse().unwrap()
    });
}
