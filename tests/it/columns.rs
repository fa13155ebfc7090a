//! Reductions whose contiguous dimension is kept: norms and statistics against the reference, and
//! what settings do to registers and the memory that is moved.

use kiln::device::Counters;
use kiln::engine::{self, LayoutType, Supported};
use kiln::expr::{Math, Mode, Pointwise};
use kiln::graph::{
    BnBackwardWeights, GenStats, NormBackward, NormForward, NormMode, Op, Phase, Reduction,
    ReductionOp,
};
use kiln::target::Target;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::harness::{self, Values};
use crate::reduction::{every_reduction, values};

const ENGINE: &str = "reduction_columns";

fn supported<'a>(graph: &'a OperationGraph, target: &'a Target) -> Box<dyn Supported + 'a> {
    engine::supported(ENGINE, graph.canonical(), target).unwrap()
}

/// Every reduction of the rows of `x`, in one kernel.
fn every_column(dtype: DType, dims: [i64; 2]) -> OperationGraph {
    every_reduction("columns", dtype, dims, "rows")
}

/// What is chosen for few values of many elements: several blocks share them.
#[test]
fn tall_columns_are_split() {
    for dtype in [DType::F32, DType::Bf16] {
        for (at, dims) in [[5000, 3], [20_000, 64], [3000, 24]].into_iter().enumerate() {
            let graph = every_column(dtype, dims);
            let target = harness::kiln().device().target();
            let config = supported(&graph, target).heuristic();
            assert!(config.knob("split").unwrap() > 1, "{config}");
            for kiln in harness::dialects_by_turns(at) {
                harness::check(kiln, &graph, None, &values(&graph), &format!("{dtype} {dims:?}"));
            }
        }
    }
}

/// A sum is added to what its memory held; elements that are added to and reduced twice are not:
/// deviations are of what was there before.
#[test]
fn sums_alone_are_added_in_place() {
    let add = Op::Reduction(Reduction { op: ReductionOp::Add, math: Math::F32 });
    let row = |uid, name| TensorDesc::packed(uid, name, &[1, 40], DType::F32);
    let inner = |uid, name| TensorDesc { is_virtual: true, ..row(uid, name) };
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[300, 40], DType::F32);
    let before = graph.input("before", &[1, 40], DType::F32);
    let sum = graph.tensor(inner(100, "sum"));
    graph.operation_into(add.clone(), &[x], &[sum]);
    let all = graph.pointwise(Pointwise::new(Mode::Add), &[sum, before]).unwrap();
    graph.output(all, "all", DType::F32);
    harness::check_added_in_place(&graph.build().unwrap(), &[ENGINE], 1);

    let mut graph = OperationGraph::builder();
    let [x, residual] = ["x", "residual"].map(|name| graph.input(name, &[300, 40], DType::F32));
    let negative = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
    let element = graph.pointwise(Pointwise::new(Mode::Add), &[negative, residual]).unwrap();
    graph.output(element, "element", DType::F32);
    let sum = graph.tensor(inner(100, "sum"));
    graph.operation_into(add.clone(), &[element], &[sum]);
    let apart = graph.pointwise(Pointwise::new(Mode::Sub), &[element, sum]).unwrap();
    let squared = graph.pointwise(Pointwise::new(Mode::Mul), &[apart, apart]).unwrap();
    let squares = graph.tensor(row(200, "squares"));
    graph.operation_into(add, &[squared], &[squares]);
    let graph = graph.build().unwrap();
    let kiln = harness::kiln();
    let config = supported(&graph, kiln.device().target()).heuristic();
    let plan = kiln.plan_with(&graph, &config).unwrap();
    let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 5, 2.0))).collect();
    let mut bound = harness::bind(kiln, &graph, &inputs).unwrap();
    bound.read_from(graph.tensor(element).unwrap(), graph.tensor(residual).unwrap());
    let error = harness::run_bound(kiln, &plan, &bound).unwrap_err().to_string();
    assert!(error.contains("is written but its memory overlaps"), "{error}");
}

/// The same graph with channels last in all of its four-dimensional tensors.
pub fn channels_last(graph: &OperationGraph) -> OperationGraph {
    let placed = |tensor: &TensorDesc| match tensor.dims[..] {
        [_, channels, height, width] => {
            let strides = vec![channels * height * width, 1, width * channels, channels];
            TensorDesc { strides, ..tensor.clone() }
        }
        _ => tensor.clone(),
    };
    let tensors = graph.tensors().iter().map(placed).collect();
    OperationGraph::new(tensors, graph.operations().to_vec()).unwrap()
}

/// Elements that are reduced side by side lie so in one layout, those of channels in the other.
#[test]
fn layouts_are_preferred() {
    let target = harness::kiln().device().target();
    let x = TensorDesc::packed(7, "x", &[2, 8, 4, 4], DType::F16);
    let sum = |x: &TensorDesc, y: &[i64]| {
        let mut graph = OperationGraph::builder();
        let x = graph.tensor(x.clone());
        let y = graph.reduction(Reduction::new(ReductionOp::Add), x, y).unwrap();
        graph.output(y, "y", DType::F32);
        graph.build().unwrap()
    };
    let preferred = |graph: &OperationGraph, engine: &str| {
        let supported = engine::supported(engine, graph.canonical(), target).unwrap();
        let layouts = supported.layouts().into_iter();
        layouts.map(|of| (of.uid, of.types)).collect::<Vec<_>>()
    };
    let channels = sum(&x, &[1, 8, 1, 1]);
    assert_eq!(preferred(&channels, "reduction"), [(7, vec![LayoutType::Nchw])]);
    assert_eq!(preferred(&channels_last(&channels), ENGINE), [(7, vec![LayoutType::Nhwc])]);
    let samples = sum(&x, &[2, 1, 1, 1]);
    assert_eq!(preferred(&samples, "reduction"), [(7, vec![LayoutType::Nchw, LayoutType::Nhwc])]);
    let rows = sum(&TensorDesc::packed(7, "x", &[8, 8], DType::F16), &[8, 1]);
    assert_eq!(preferred(&rows, "reduction"), []);
}

/// An operation on channels-last data, all else one value per channel in single precision.
pub fn statistics(op: Op, dtype: DType, data: [i64; 4]) -> (OperationGraph, Values) {
    let mut graph = OperationGraph::builder();
    let slots = op.slots();
    let mut values = Values::new();
    for (uid, slot) in (1..).zip(&slots.inputs) {
        let scalar = ["epsilon", "exp_avg_factor"].contains(slot);
        let (dims, dtype) = match *slot {
            "x" | "dy" => (data, dtype),
            _ if scalar => ([1; 4], DType::F32),
            _ => ([1, data[1], 1, 1], DType::F32),
        };
        let tensor = TensorDesc::packed(uid, *slot, &dims, dtype);
        let fill = match *slot {
            "epsilon" => vec![1e-3],
            "exp_avg_factor" => vec![0.25],
            "x" | "dy" | "mean" | "bias" => harness::fill(&tensor, uid as u64, 2.0),
            _ => harness::fill(&tensor, uid as u64, 1.0).into_iter().map(|v| v + 40.0).collect(),
        };
        values.insert(uid, fill);
        graph.tensor(TensorDesc { by_value: scalar, ..tensor });
    }
    let inputs: Vec<i64> = (1..=slots.inputs.len() as i64).collect();
    let outputs = graph.operation(op, &inputs).unwrap();
    for (slot, uid) in slots.outputs.iter().zip(outputs) {
        let stored = if ["y", "dx"].contains(slot) { dtype } else { DType::F32 };
        graph.output(uid, &format!("out_{slot}"), stored);
    }
    (channels_last(&graph.build().unwrap()), values)
}

pub fn batch_norm() -> Op {
    let training = NormForward::new(NormMode::Batch, Phase::Training);
    Op::NormForward(NormForward { statistics: true, running: true, ..training })
}

/// Reduces the middle of `[batch, time, channels]`: weighted by time, less the mean; what is stored
/// is as large as the input, one value each, or an index.
pub fn middle(dtype: DType, [batch, time, channels]: [i64; 3]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[batch, time, channels], dtype);
    let weight = graph.input("weight", &[1, time, 1], DType::F32);
    let offset = graph.input("offset", &[batch, 1, channels], dtype);
    let per_batch = graph.input("per_batch", &[batch, 1, 1], DType::F32);
    let of = Pointwise::new;
    let moved = graph.pointwise(of(Mode::Add), &[x, offset]).unwrap();
    let weighted = graph.pointwise(of(Mode::Mul), &[moved, weight]).unwrap();
    graph.output(weighted, "weighted", dtype);
    let kept = [batch, 1, channels];
    let mean = graph.reduction(Reduction::new(ReductionOp::Avg), weighted, &kept).unwrap();
    let scaled = graph.pointwise(of(Mode::Mul), &[mean, per_batch]).unwrap();
    graph.name(scaled, "scaled", DType::Bf16);
    let less = graph.pointwise(of(Mode::Sub), &[weighted, scaled]).unwrap();
    let row = graph.pointwise(of(Mode::GenIndex).axis(1), &[x]).unwrap();
    let channel = graph.pointwise(of(Mode::GenIndex).axis(2), &[x]).unwrap();
    let index = graph.pointwise(of(Mode::Add), &[row, channel]).unwrap();
    let y = graph.pointwise(of(Mode::Add), &[less, index]).unwrap();
    graph.output(y, "y", DType::F32);
    let maximum = graph.reduction(Reduction::new(ReductionOp::Max), y, &kept).unwrap();
    graph.output(maximum, "maximum", DType::F32);
    let doubled = graph.pointwise(of(Mode::Add), &[weight, weight]).unwrap();
    graph.output(doubled, "doubled", DType::F32);
    graph.output(mean, "mean", DType::F32);
    graph.build().unwrap()
}

#[test]
fn the_middle_is_reduced() {
    for dtype in [DType::F32, DType::Bf16] {
        let all = [[2, 5, 8], [3, 40, 33], [4, 300, 64], [1, 4000, 17]];
        for (at, dims) in all.into_iter().enumerate() {
            let graph = middle(dtype, dims);
            supported(&graph, harness::kiln().device().target());
            for kiln in harness::dialects_by_turns(at) {
                harness::check(kiln, &graph, None, &values(&graph), &format!("{dtype} {dims:?}"));
            }
        }
    }
}

#[test]
fn special_values_of_columns_spread_as_documented() {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -2.5];
    for dtype in [DType::F64, DType::F32, DType::Bf16] {
        let graph = every_column(dtype, [40, 49]);
        let x = graph.inputs().next().unwrap();
        let mut data = values(&graph).remove(&x.uid).unwrap();
        for column in 0..49 {
            data[column % 40 * 49 + column] = special[column / 7];
            data[(column + 3) % 40 * 49 + column] = special[column % 7];
        }
        let inputs = Values::from([(x.uid, data)]);
        for kiln in harness::dialects() {
            harness::check(kiln, &graph, None, &inputs, &format!("{dtype}"));
        }
    }
}

/// A sum of columns, which some settings split.
pub fn sum(dtype: DType, dims: [i64; 2]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &dims, dtype);
    let y = graph.reduction(Reduction::new(ReductionOp::Add), x, &[1, dims[1]]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.build().unwrap()
}

/// A sample: `KILN_TEST_ALL=1` (`make spills`) compiles all.
#[test]
fn every_target_compiles_without_spills() {
    let bf16 = DType::Bf16;
    let mut graphs = vec![
        sum(DType::F16, [8192, 4096]),
        sum(DType::I8, [1 << 20, 64]),
        sum(DType::F64, [3000, 40]),
        middle(bf16, [16, 512, 768]),
        every_column(DType::F32, [4096, 1024]),
        every_column(bf16, [4096, 1024]),
        every_reduction("columns", DType::F64, [100, 1000], "odd_rows"),
    ];
    for op in [
        Op::GenStats(GenStats::default()),
        Op::BnBackwardWeights(BnBackwardWeights::default()),
        batch_norm(),
        Op::NormBackward(NormBackward::new(NormMode::Batch)),
    ] {
        graphs.push(statistics(op, bf16, [32, 256, 56, 56]).0);
    }
    let targets = ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"];
    let sources = harness::default_sources(&[ENGINE], &targets, &graphs);
    harness::compile_without_spills(&harness::sampled(sources, 5));
}

/// The counts of a graph's kernels at the heuristic setting.
fn counted(graph: &OperationGraph) -> Vec<Counters> {
    let kiln = harness::counting();
    let plan = kiln.plan(graph).unwrap();
    assert!(plan.kernels().iter().all(|of| of.config().engine == "reduction_columns"));
    let trial = kiln.trial(&plan, &values(graph)).unwrap();
    trial.counters.into_iter().map(Option::unwrap).collect()
}

/// Each phase reads whole sectors of 16-byte accesses, no byte more than there are, and meets no
/// conflict in shared memory.
#[test]
fn columns_are_read_once_a_phase() {
    let bf16 = DType::Bf16;
    let gen_stats = Op::GenStats(GenStats::default());
    for (graph, phases) in [
        (sum(bf16, [512, 1024]), 1),
        (sum(DType::F32, [2048, 256]), 1),
        (sum(DType::F32, [4096, 16]), 1),
        (every_column(DType::F32, [256, 512]), 1),
        (statistics(gen_stats, bf16, [4, 64, 16, 16]).0, 1),
        (statistics(batch_norm(), bf16, [4, 64, 16, 16]).0, 2),
    ] {
        let kernels = counted(&graph);
        let again = graph.tensors()[0].span_bytes().unwrap() * (phases - 1);
        let least = graph.bytes_min() + again;
        let sum = |of: fn(&Counters) -> u64| kernels.iter().map(of).sum::<u64>();
        let moved = sum(Counters::dram_bytes);
        assert!(moved as f64 <= 1.05 * least as f64, "{moved} bytes, not {least}\n{graph}");
        assert_eq!(sum(harness::conflicts), 0, "{graph}");
        let bytes = sum(|counters| counters.total.global.bytes);
        let sectors = sum(|counters| counters.total.global.sectors) as f64 / (bytes as f64 / 32.0);
        assert!(sectors <= 1.02, "{sectors} times the sectors\n{graph}");
    }
}

#[test]
fn contiguous_reductions_are_refused_with_the_rule() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[8, 64], DType::F32);
    let y = graph.reduction(Reduction::new(ReductionOp::Add), x, &[8, 1]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let target = harness::kiln().device().target();
    let error = engine::supported(ENGINE, graph.canonical(), target);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert_eq!(error.to_string(), "neighbours in memory are reduced to one value");
}
