//! Gradients of recurrent layers: against central differences in double precision, for every cell,
//! order of steps, layout and optional tensor; and the layers of the derivatives on every engine.

use kiln::engine;
use kiln::expr::{NanPropagation, Real};
use kiln::graph::{Direction, MatmulMath, Op, Recurrence, RecurrenceSlots, RowLayout};
use kiln::rnn::{CellClip, CellKind, CellOptions, ClipPoint};
use kiln::{DType, Kiln, OperationGraph};

use crate::harness;
use crate::recurrence::{self, layer, values};
use crate::rnn_cells::user_cells;
use crate::rnn_own_cells::later_gemms;
use crate::vjp;

/// A layer with every tensor that its cell allows.
fn full(op: Recurrence) -> Recurrence {
    let others = op.cell.states.len() > 1;
    let with = RecurrenceSlots {
        x_bias: true,
        r_bias: op.cell.recurrent_gates() > 0,
        h_initial: true,
        states_initial: others,
        h_final: true,
        states_final: others,
        history: others,
        ..RecurrenceSlots::default()
    };
    Recurrence { with, ..op }
}

/// The same with lengths and resets, in an order and layout that differ from layer to layer.
pub fn turned(op: Recurrence, at: usize) -> Recurrence {
    let op = full(op);
    let directions = [Direction::Both, Direction::Reverse, Direction::Forward];
    let layouts = [RowLayout::Packed, RowLayout::SequenceMajor, RowLayout::BatchMajor];
    let with = RecurrenceSlots { lengths: true, reset: true, ..op.with };
    let [direction, apart] = [at % 3, at / 3 % 2];
    let direction = directions[direction];
    Recurrence { with, direction, layout: layouts[at / 2 % 3], apart: apart == 1, ..op }
}

/// Layers of all cells whose gradients there are, in a precision.
pub fn layers(math: MatmulMath, sizes: [i64; 2]) -> Vec<Recurrence> {
    let plain = CellOptions::default();
    let clip = |point| {
        let (min, max) = (Real::new(-0.5), Real::new(0.6));
        let nan = NanPropagation::Propagate;
        CellOptions { cell_clip: Some(CellClip { min, max, nan, point }), ..plain }
    };
    let options = [
        CellOptions { peephole: true, ..plain },
        clip(ClipPoint::Read),
        CellOptions { gate_clip: Some(Real::new(0.7)), ..clip(ClipPoint::Stored) },
        CellOptions { projected: true, ..plain },
        CellOptions { projected: true, peephole: true, ..clip(ClipPoint::Read) },
    ];
    let own = CellKind::ALL.into_iter().map(|kind| layer(kind, plain, math, sizes));
    let lstms = options.into_iter().map(|options| layer(CellKind::Lstm, options, math, sizes));
    let cells = user_cells::all().expect("their lines fit together").into_iter();
    let cells = cells.chain(later_gemms());
    let users = cells.map(|cell| Recurrence { math, ..Recurrence::new(cell, sizes[0], sizes[1]) });
    own.chain(lstms).chain(users).collect()
}

fn is_slope(op: &Recurrence) {
    let steps = 3;
    let graph = recurrence::graph(op, steps, DType::F64);
    let mut given = values(&graph, op, steps);
    for tensor in graph.inputs().filter(|tensor| tensor.dtype.is_float()) {
        // Away from 0, where ReLU has no slope.
        given.get_mut(&tensor.uid).unwrap().iter_mut().for_each(|value| *value += 0.003_1);
    }
    let outputs: Vec<i64> = graph.outputs().map(|tensor| tensor.uid).collect();
    vjp::slopes_at(&graph, &given, &outputs, 1e-6);
}

#[test]
fn gradients_of_every_cell_are_slopes() {
    for op in layers(MatmulMath::F64, [2, 3]) {
        is_slope(&full(op));
    }
}

#[test]
fn gradients_follow_lengths_resets_directions_and_layouts() {
    for (at, op) in layers(MatmulMath::F64, [3, 2]).into_iter().enumerate() {
        for turn in [at, at + 7] {
            is_slope(&turned(op.clone(), turn));
        }
    }
}

/// The layer of the derivative.
pub fn derivative(op: &Recurrence, dtype: DType) -> Recurrence {
    let graph = recurrence::graph(op, 2, dtype);
    let floats = |tensor: &&kiln::TensorDesc| tensor.dtype.is_float();
    let [outputs, inputs] = [
        graph.outputs().map(|tensor| tensor.uid).collect::<Vec<i64>>(),
        graph.inputs().filter(floats).map(|tensor| tensor.uid).collect(),
    ];
    let vjp = graph.vjp(&outputs, &inputs).unwrap();
    let mut layers = vjp.backward.operations().iter().filter_map(|of| match &of.op {
        Op::Recurrence(op) => Some(op.clone()),
        _ => None,
    });
    layers.next().expect("a layer has the gradient of one")
}

fn on_engines(kiln: &Kiln, op: &Recurrence, dtype: DType, steps: i64) -> usize {
    let graph = recurrence::graph(op, steps, dtype);
    let read = OperationGraph::from_json(&graph.to_json()).unwrap();
    assert_eq!(read.to_json(), graph.to_json());
    let given = values(&graph, op, steps);
    let mut count = 0;
    for name in ["rnn_cta", "rnn_cluster", "rnn_grid", "rnn_stream", "rnn_step"] {
        let target = kiln.device().target();
        let Ok(own) = engine::supported(name, graph.canonical(), target) else { continue };
        let config = own.heuristic();
        let what = format!("{op} {dtype} {config:?} on {}", target.arch);
        harness::check(kiln, &graph, Some(&config), &given, &what);
        count += 1;
    }
    count
}

#[test]
fn derivatives_run_on_every_engine() {
    let mut count = 0;
    for (at, op) in layers(MatmulMath::F32, [5, 20]).into_iter().enumerate() {
        let dtype = [DType::F16, DType::F32, DType::Bf16][at % 3];
        let own = derivative(&turned(op, at), dtype);
        for kiln in harness::dialects_by_turns(at) {
            count += on_engines(kiln, &own, dtype, 4);
        }
    }
    assert!(count > 40, "{count}");
}

/// The whole graph of the gradients.
#[test]
fn gradients_agree_with_the_reference_on_devices() {
    for (at, op) in layers(MatmulMath::F32, [4, 9]).into_iter().enumerate() {
        let op = if at % 2 == 0 { full(op) } else { turned(op, at) };
        let graph = recurrence::graph(&op, 3, DType::F32);
        let given = values(&graph, &op, 3);
        for kiln in harness::dialects_by_turns(at) {
            vjp::on_device(kiln, &graph, &given);
        }
    }
}
