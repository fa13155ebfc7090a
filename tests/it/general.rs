//! The general pointwise engine: one kernel for every shape, and the bits of the special ones.

use std::collections::BTreeSet;

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Mode, Pointwise};
use kiln::{DType, Kiln, OperationGraph, TensorDesc};

use crate::harness::{self, Values};
use crate::pointwise;

fn general(graph: &OperationGraph) -> EngineConfig {
    let target = harness::kiln().device().target();
    engine::supported("pointwise_general", graph.canonical(), target).unwrap().heuristic()
}

fn same_bits(
    kiln: &Kiln,
    graph: &OperationGraph,
    inputs: &Values,
    config: &EngineConfig,
    what: &str,
) {
    let special = harness::run(kiln, graph, None, inputs).unwrap();
    let values = harness::run(kiln, graph, Some(config), inputs).unwrap();
    harness::compare(graph, inputs, &values, what);
    for (uid, values) in &values {
        let same = std::iter::zip(values, &special[uid]).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{what}: tensor {uid} differs from the special kernel's");
    }
}

/// Every group of modes in every layout and at every edge shape, by one kernel per group. Every
/// fourth runs, as the special kernel of each is compiled; `KILN_TEST_ALL=1` (`make cases`) runs
/// all.
fn one_kernel_per_group(dtype: DType) {
    for (row, group) in pointwise::groups().into_iter().enumerate() {
        let mut kernels = BTreeSet::new();
        for (place, layout) in pointwise::LAYOUTS.into_iter().enumerate() {
            // Nothing, one element, several blocks: edges 0, 1 and 5 of those of `pointwise`.
            for (edge, columns) in [(0, 0), (1, 1), (5, 1031)] {
                let (graph, inputs) = pointwise::case(&group, dtype, layout, columns);
                let config = general(&graph);
                let what = format!("{} {dtype} {layout:?} {columns}", group.name);
                if harness::all_are_wanted() || (row + place + edge) % 4 == 0 {
                    same_bits(harness::kiln(), &graph, &inputs, &config, &what);
                }
                kernels.insert(harness::kiln().sources(&graph, &config).unwrap().remove(0).text);
            }
        }
        assert_eq!(kernels.len(), 1, "{} {dtype}", group.name);
    }
}

#[test]
fn one_kernel_runs_every_shape_f32() {
    one_kernel_per_group(DType::F32);
}

#[test]
fn one_kernel_runs_every_shape_f16() {
    one_kernel_per_group(DType::F16);
}

#[test]
fn one_kernel_runs_every_shape_f64() {
    one_kernel_per_group(DType::F64);
}

/// `dims` with a permuted operand, an operand per column, an index, a scalar and two outputs.
fn mixed(dims: &[i64], axis: i64) -> OperationGraph {
    let rank = dims.len();
    let mut graph = OperationGraph::builder();
    let x = TensorDesc::packed(1, "x", dims, DType::F16);
    // The outermost dimension lies innermost: no two dimensions collapse.
    let strides = (0..rank).map(|at| dims[..at].iter().product()).collect();
    let x = graph.tensor(TensorDesc { strides, ..x });
    let mut row = vec![1; rank];
    row[rank - 1] = dims[rank - 1];
    let row = graph.input("row", &row, DType::Bf16);
    let scale = graph.scalar("scale", rank, DType::F32);
    let doubled = graph.pointwise(Pointwise::new(Mode::Add), &[row, row]).unwrap();
    let index = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(axis), &[x]).unwrap();
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, doubled]).unwrap();
    let scaled = graph.pointwise(Pointwise::new(Mode::Mul), &[sum, scale]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Sub), &[scaled, index]).unwrap();
    graph.output(doubled, "doubled", DType::F32);
    graph.output(y, "y", DType::I8);
    graph.build().unwrap()
}

fn inputs(graph: &OperationGraph) -> Values {
    graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 5, 3.0))).collect()
}

#[test]
fn every_knob_gives_the_same_bits() {
    let graph = mixed(&[3, 5, 6, 5], 2);
    for (rank, index) in [(4, 32), (8, 32), (4, 64), (8, 64)] {
        let config = EngineConfig::new("pointwise_general", &[("rank", rank), ("index", index)]);
        for kiln in harness::dialects() {
            same_bits(kiln, &graph, &inputs(&graph), &config, &config.to_string());
        }
    }
}

#[test]
fn shapes_of_any_rank_share_a_kernel() {
    let shapes: [&[i64]; 6] = [&[7], &[1], &[4, 9], &[2, 1, 11], &[1, 1, 1, 1, 8], &[2, 3, 4, 5]];
    let mut kernels = BTreeSet::new();
    for dims in shapes {
        let graph = mixed(dims, 0);
        let config = general(&graph);
        same_bits(harness::kiln(), &graph, &inputs(&graph), &config, &format!("{dims:?}"));
        kernels.insert(harness::kiln().sources(&graph, &config).unwrap().remove(0).text);
    }
    assert_eq!(kernels.len(), 1);
    let graph = mixed(&[2, 2, 3, 2, 3], 1);
    assert_eq!(general(&graph).to_string(), "pointwise_general{index=32, rank=8}");
    same_bits(harness::kiln(), &graph, &inputs(&graph), &general(&graph), "five dimensions");
}

/// Operations that are ready together are ordered by what they are, not by their shape.
#[test]
fn the_order_of_operations_is_not_the_shapes() {
    let chain = |columns: [i64; 2]| {
        let mut graph = OperationGraph::builder();
        let inputs: Vec<i64> = (0..6)
            .map(|at| graph.input(&format!("x{at}"), &[4, columns[at % 2]], DType::F32))
            .collect();
        let modes = [Mode::Exp, Mode::Neg, Mode::TanhFwd, Mode::Abs, Mode::Floor, Mode::Sqrt];
        let mut sum = graph.input("x", &[4, columns[0].max(columns[1])], DType::F32);
        for (mode, input) in modes.into_iter().zip(inputs) {
            let term = graph.pointwise(Pointwise::new(mode), &[input]).unwrap();
            sum = graph.pointwise(Pointwise::new(Mode::Add), &[sum, term]).unwrap();
        }
        graph.output(sum, "y", DType::F32);
        graph.build().unwrap()
    };
    let source = |graph: &OperationGraph| {
        harness::kiln().sources(graph, &general(graph)).unwrap().remove(0).text
    };
    let first = source(&chain([5, 1]));
    for columns in [[1, 5], [33, 33], [1, 1000], [77, 1]] {
        assert_eq!(source(&chain(columns)), first, "{columns:?}");
    }
}
