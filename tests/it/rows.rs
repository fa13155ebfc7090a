//! What reductions along rows do: their registers, the memory they move.

use kiln::engine;
use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{NormBackward, NormForward, NormMode, Op, Phase, Reduction, ReductionOp};
use kiln::reference;
use kiln::target::Target;
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness::{self, Values};
use crate::reduction::{residual_rms, softmax};

/// The variance of every channel, along two dimensions that do not merge, and what it normalises.
pub fn channels() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let desc = TensorDesc::packed(1, "x", &[3, 4, 11], DType::F16);
    let x = graph.tensor(TensorDesc { strides: vec![60, 12, 1], ..desc });
    let average = Reduction { op: ReductionOp::Avg, math: Math::F64 };
    let mean = graph.reduction(average, x, &[1, 4, 1]).unwrap();
    let deviation = Pointwise::new(Mode::Sub).math(Math::F64);
    let deviation = graph.pointwise(deviation, &[x, mean]).unwrap();
    let square = Pointwise::new(Mode::Mul).math(Math::F64);
    let square = graph.pointwise(square, &[deviation, deviation]).unwrap();
    let variance = graph.reduction(average, square, &[1, 4, 1]).unwrap();
    graph.output(variance, "variance", DType::F64);
    graph.output(deviation, "deviation", DType::F32);
    graph.build().unwrap()
}

/// A sum and a maximum of rows that may be split, and the rows less them.
pub fn long() -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[2, 5003], DType::F32);
    let sum = graph.reduction(Reduction::new(ReductionOp::Add), x, &[2, 1]).unwrap();
    let less = graph.pointwise(Pointwise::new(Mode::Sub), &[x, sum]).unwrap();
    let maximum = graph.reduction(Reduction::new(ReductionOp::Max), less, &[2, 1]).unwrap();
    let share = graph.pointwise(Pointwise::new(Mode::Div), &[less, maximum]).unwrap();
    graph.output(share, "share", DType::F32);
    graph.output(sum, "sum", DType::F32);
    graph.build().unwrap()
}

fn inputs(graph: &OperationGraph) -> Values {
    graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 5, 3.0))).collect()
}

pub fn norm(op: Op, dtype: DType, dims: [i64; 2]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let input = |graph: &mut kiln::graph::GraphBuilder, slot: &str| match slot {
        "x" | "dy" => graph.input(slot, &dims, dtype),
        "epsilon" => graph.scalar(slot, 2, DType::F32),
        "mean" | "inv_variance" => graph.input(slot, &[dims[0], 1], DType::F32),
        _ => graph.input(slot, &[1, dims[1]], dtype),
    };
    let slots = op.slots();
    let operands: Vec<i64> = slots.inputs.iter().map(|slot| input(&mut graph, slot)).collect();
    let outputs = graph.operation(op, &operands).unwrap();
    for (slot, uid) in slots.outputs.iter().zip(outputs) {
        let stored = if ["y", "dx"].contains(slot) { dtype } else { DType::F32 };
        graph.output(uid, &format!("out_{slot}"), stored);
    }
    graph.build().unwrap()
}

pub fn layer(dtype: DType, dims: [i64; 2]) -> OperationGraph {
    let op = NormForward { statistics: true, ..NormForward::new(NormMode::Layer, Phase::Training) };
    norm(Op::NormForward(op), dtype, dims)
}

/// The gradients of a layer norm from statistics that are given.
pub fn backward(dtype: DType, dims: [i64; 2]) -> OperationGraph {
    let op = NormBackward { statistics: true, ..NormBackward::new(NormMode::Layer) };
    norm(Op::NormBackward(op), dtype, dims)
}

#[test]
fn every_target_compiles_without_spills() {
    let mut sources = Vec::new();
    let graphs = [
        softmax(DType::Bf16, &[4096, 1000], false),
        softmax(DType::F32, &[4096, 12_000], false),
        softmax(DType::F64, &[64, 3000], true),
        softmax(DType::F64, &[64, 30_000], false),
        softmax(DType::F16, &[2, 1_000_000], false),
        layer(DType::Bf16, [4096, 768]),
        layer(DType::F32, [4096, 8192]),
        layer(DType::Bf16, [64, 65_536]),
        residual_rms([64, 131_072]),
        residual_rms([4096, 5120]),
        norm(Op::NormBackward(NormBackward::new(NormMode::Layer)), DType::Bf16, [4096, 1024]),
        norm(Op::NormBackward(NormBackward::new(NormMode::Rms)), DType::F32, [4096, 768]),
        backward(DType::Bf16, [4096, 4096]),
        backward(DType::Bf16, [4096, 8192]),
        backward(DType::F16, [4096, 12_288]),
        backward(DType::Bf16, [4096, 16_384]),
        backward(DType::F32, [4096, 8192]),
        softmax(DType::Bf16, &[4096, 32_000], false),
        channels(),
        long(),
    ];
    for name in ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"] {
        let target = Target::named(name).unwrap();
        for graph in &graphs {
            // What does not fit next to sums of columns is divided.
            let Ok(supported) = engine::supported("reduction", graph.canonical(), &target) else {
                continue;
            };
            let config = engine::choose(graph.canonical(), &target, &Default::default()).unwrap();
            sources.extend(harness::sources(&format!("{name}, {graph}"), &*supported, &config));
        }
    }
    harness::compile_without_spills(&sources);
}

/// A row that fits registers is read once: no more bytes than the tensors have, whole sectors of
/// 16-byte accesses by full warps, no conflict in shared memory.
#[test]
fn short_rows_are_read_once() {
    for graph in [
        softmax(DType::Bf16, &[64, 1024], false),
        softmax(DType::F32, &[16, 4096], false),
        layer(DType::Bf16, [64, 768]),
        residual_rms([32, 2048]),
        norm(
            Op::NormForward(NormForward::new(NormMode::Rms, Phase::Training)),
            DType::F32,
            [8, 8192],
        ),
    ] {
        let counters = harness::count(&graph, None, &inputs(&graph));
        let least = graph.bytes_min();
        let moved = counters.dram_bytes();
        assert!(moved as f64 <= 1.05 * least as f64, "{moved} bytes, not {least}\n{graph}");
        assert_eq!(harness::conflicts(&counters), 0, "{graph}");
        let global = counters.total.global;
        // Values of rows are single sectors.
        let sectors = global.sectors as f64 / (global.bytes as f64 / 32.0);
        assert!(sectors <= 1.10, "{sectors} times the sectors\n{graph}");
    }
}

/// A row that fits the registers of a cluster's blocks is read once, too: one kernel, no more bytes
/// than the tensors have.
#[test]
fn rows_of_a_cluster_are_read_once() {
    for (graph, blocks) in [
        (softmax(DType::F32, &[4, 40_000], false), 2),
        (layer(DType::Bf16, [3, 65_536]), 2),
        (residual_rms([2, 131_072]), 8),
        (norm(Op::NormForward(inference()), DType::F32, [3, 50_001]), 2),
    ] {
        let target = harness::kiln().device().target();
        let config = engine::choose(graph.canonical(), target, &Default::default()).unwrap();
        assert!(config.knob("cluster").unwrap() >= blocks, "{config}");
        let counters = harness::count(&graph, None, &inputs(&graph));
        let (moved, least) = (counters.dram_bytes(), graph.bytes_min());
        assert!(moved as f64 <= 1.05 * least as f64, "{moved} bytes, not {least}\n{graph}");
        assert_eq!(harness::conflicts(&counters), 0, "{graph}");
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &inputs(&graph), "rows of a cluster");
        }
        // Blocks that stay walk over the rows.
        let config = config.with("grid", 1);
        harness::check(harness::kiln(), &graph, Some(&config), &inputs(&graph), "persistent");
    }
}

/// A row that is not kept is read twice: for its mean and variance, and for what they normalise.
#[test]
fn long_rows_are_read_twice() {
    let (rows, columns) = (2, 20_000);
    let graph = layer(DType::F32, [rows, columns]);
    let config = "reduction{cluster=1, grid=0, items=2, split=1, stages=0, threads=256, \
                  threads_row=256, vector=4}";
    let counters = harness::count(&graph, Some(&config.parse().unwrap()), &inputs(&graph));
    // Beside the data, scale and bias in each row, and a sector for each statistic.
    let least = (4 * rows * columns * (2 + 1 + 2)) as u64;
    let moved = counters.total.global.bytes;
    assert!((least..=least + 64 * rows as u64).contains(&moved), "{moved} bytes, not {least}");
    assert_eq!(harness::conflicts(&counters), 0);
}

/// A variance in the phase of its mean: far from 0, with values far from all others wherever they
/// are, and with what is not finite; in chunks and parts of rows that are not whole.
#[test]
fn variances_of_rows_that_are_read_again() {
    let columns = 5003;
    let configs = [
        "cluster=1, grid=0, items=1, split=1, stages=0, threads=128, threads_row=32, vector=4",
        "cluster=1, grid=1, items=4, split=1, stages=0, threads=128, threads_row=1, vector=2",
        "cluster=1, grid=0, items=2, split=1, stages=0, threads=256, threads_row=256, vector=1",
        "cluster=1, grid=0, items=2, split=4, stages=0, threads=128, threads_row=128, vector=4",
    ];
    let (small, sign) = (|at: usize| (at * 7919 % 251) as f64 / 125.0 - 1.0, [1.0, -1.0]);
    let values: [&dyn Fn(usize) -> f64; 6] = [
        &|at| 1000.0 + small(at),
        &|at| if at == 0 { 1e6 } else { small(at) },
        &|at| if at == columns as usize - 1 { 1e6 } else { 100.0 + small(at) },
        &|at| 1e18 * (sign[at % 2] + small(at)),
        &|at| if at == 17 { f64::INFINITY } else { small(at) },
        &|at| if at == 4999 { f64::NAN } else { small(at) },
    ];
    for dtype in [DType::F32, DType::Bf16] {
        let graph = layer(dtype, [2, columns]);
        for (number, value) in values.iter().enumerate() {
            let mut inputs = inputs(&graph);
            let x = graph.inputs().find(|tensor| tensor.name == "x").unwrap();
            let filled = (0..2 * columns as usize).map(|at| x.dtype.round(value(at % 5003)));
            inputs.insert(x.uid, filled.collect());
            for config in configs {
                let config = format!("reduction{{{config}}}").parse().unwrap();
                for kiln in harness::dialects() {
                    let what = format!("{config}: {dtype} values {number}");
                    harness::check(kiln, &graph, Some(&config), &inputs, &what);
                }
            }
        }
    }
}

/// Tensors that are called as what kernels have beside them, where rows are loaded or copied ahead.
#[test]
fn tensors_called_as_kernels_call_their_own() {
    let (data, row, column) = ([9, 2056], [1, 2056], [9, 1]);
    let mut graph = OperationGraph::builder();
    let inputs = [
        graph.input("memory", &data, DType::Bf16),
        graph.input("stage", &data, DType::Bf16),
        graph.input("copy_row", &row, DType::Bf16),
        graph.input("row_step", &column, DType::F32),
        graph.input("first_row", &column, DType::F32),
    ];
    let op = Op::NormBackward(NormBackward::new(NormMode::Layer));
    let outputs = graph.operation(op, &inputs).unwrap();
    let names = ["memory_staged", "first_row_next", "next"].iter().zip([
        DType::Bf16,
        DType::F32,
        DType::F32,
    ]);
    for (uid, (name, dtype)) in outputs.into_iter().zip(names) {
        graph.output(uid, name, dtype);
    }
    let graph = graph.build().unwrap();
    let values = self::inputs(&graph);
    for (items, stages, threads) in [(2, 2, 256), (1, 0, 512)] {
        let config = format!(
            "reduction{{cluster=1, grid=1, items={items}, split=1, stages={stages}, \
             threads={threads}, threads_row={threads}, vector=8}}"
        );
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, Some(&config.parse().unwrap()), &values, &config);
        }
    }
}

/// Without statistics of its own to store.
fn inference() -> NormForward {
    NormForward::new(NormMode::Layer, Phase::Inference)
}

/// Rows that do not fit registers next to the sums of their columns: no engine runs the gradient
/// as one operation, so it is divided into what it means.
#[test]
fn gradients_of_long_rows_are_divided() {
    let op = Op::NormBackward(NormBackward::new(NormMode::Layer));
    let graph = norm(op, DType::F32, [2, 70_000]);
    let target = harness::kiln().device().target();
    let engine = engine::engine_named("reduction").unwrap();
    let error = engine.support(graph.canonical(), target).unwrap_err().to_string();
    assert!(error.contains("do not fit next to sums"), "{error}");
    let plan = harness::kiln().plan(&graph).unwrap();
    assert!(plan.parts().len() > 1, "{plan:?}");
    let inputs = inputs(&graph);
    let actual = harness::run_plan(harness::kiln(), &plan, &inputs).unwrap();
    harness::compare(&graph, &inputs, &actual, "long rows");
}

/// Quotients by a value of the row are products with its reciprocal: within their bound for every
/// divisor, among them those whose reciprocal overflows, loses bits or is none.
#[test]
fn quotients_by_values_of_rows_are_right_for_every_divisor() {
    let tiny = f64::from(f32::from_bits(1));
    let largest = f64::from(f32::MAX);
    let divisors = [
        1.0,
        3.0,
        -7.0,
        1e-20,
        -1e-30,
        1e-38,
        3e-39,
        tiny,
        5.0 * tiny,
        1e19,
        3e20,
        -1e38,
        largest,
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let numerators =
        [1.0, -1.0, 0.3, 1e-10, 7e10, tiny, 3e-39, 1e-38, largest, -0.0, f64::INFINITY, f64::NAN];
    let [rows, columns] = [divisors.len() as i64, numerators.len() as i64];
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[rows, columns], DType::F32);
    let z = graph.input("z", &[rows, columns], DType::F32);
    let divisor = graph.reduction(Reduction::new(ReductionOp::Max), z, &[rows, 1]).unwrap();
    let quotient = graph.pointwise(Pointwise::new(Mode::Div), &[x, divisor]).unwrap();
    graph.output(quotient, "quotient", DType::F32);
    let graph = graph.build().unwrap();
    let of_rows = divisors.iter().flat_map(|divisor| vec![*divisor; columns as usize]);
    let of_columns = divisors.iter().flat_map(|_| numerators);
    let inputs = Values::from([(x, of_columns.collect()), (z, of_rows.collect())]);
    let bounds = &reference::evaluate(&graph, &inputs).unwrap()[&quotient];
    let relative = bounds.values.iter().zip(&bounds.bounds).map(|(value, bound)| bound / value);
    let ordinary = |value: f64| (1e-37..1e38).contains(&value.abs());
    let finite = relative.zip(&bounds.values).filter(|(_, value)| ordinary(**value));
    let worst = finite.map(|(relative, _)| relative.abs()).fold(0.0, f64::max);
    assert!((1.19e-7..2.5e-7).contains(&worst), "{worst}: one or two ulp");
    let (_, source) =
        harness::default_sources(&["reduction"], &["h200"], std::slice::from_ref(&graph)).remove(0);
    assert!(source.text.contains("op::quotient_by_shared("), "{}", source.text);
    for kiln in harness::dialects().into_iter().chain(harness::oldest()) {
        harness::check(kiln, &graph, None, &inputs, "quotients");
    }
}
