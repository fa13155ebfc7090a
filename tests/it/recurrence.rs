//! Recurrent layers: what an operation is, in documents and on every engine.

use std::collections::HashMap;
use std::sync::Arc;

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Math, NanPropagation, Real};
use kiln::graph::{Direction, MatmulMath, Op, Recurrence, RecurrenceSlots, RowLayout};

use kiln::rnn::{CellClip, CellKind, CellOptions, ClipPoint};
use kiln::tensor::TensorDesc;
use kiln::{DType, ErrorKind, Kiln, OperationGraph};

use crate::harness::{self, Values};
use crate::rnn_cells::user_cells;

/// Lengths of the rows of a batch, from all steps down, the last 0 where there are as many.
fn lengths(op: &Recurrence, steps: i64) -> Vec<i64> {
    (0..op.batch).map(|b| (op.batch - 1 - b) * steps / (op.batch - 1).max(1)).collect()
}

/// A layer of these steps with all tensors that its operation names.
pub fn graph(op: &Recurrence, steps: i64, dtype: DType) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let slots = Op::Recurrence(op.clone()).slots();
    let rows = match op.layout {
        RowLayout::Packed => lengths(op, steps).iter().sum(),
        _ => steps * op.batch,
    };
    let directions = op.direction.count();
    let count = |names: &[String]| names.len() as i64;
    let (cell, units) = (&op.cell, op.units);
    let size = if cell.projected { (units + 1) / 2 } else { units };
    let others = (count(&cell.states) - 1) * units;
    let recurrent = cell.recurrent_gates() as i64 * units;
    let of = |slot: &str| match slot {
        "x" => ([directions, rows, count(&cell.gates) * units], DType::F32),
        "x_bias" => ([directions, 1, count(&cell.gates) * units], dtype),
        "r" => ([directions, recurrent, size], dtype),
        "r_bias" => ([directions, 1, recurrent], dtype),
        "projection" => ([directions, size, units], dtype),
        "parameters" => ([directions, count(&cell.parameters), units], dtype),
        "row_inputs" => ([1, rows, count(&cell.row_inputs)], dtype),
        "unit_inputs" => ([1, rows, count(&cell.unit_inputs) * units], dtype),
        "h_initial" | "h_final" => ([directions, op.batch, size], dtype),
        "states_initial" | "states_final" => ([directions, op.batch, others], dtype),
        "history" => ([directions, rows, others], DType::F32),
        "lengths" => ([1, 1, op.batch], DType::I32),
        "reset" => ([1, rows, 1], DType::Bool),
        _ if op.apart => ([directions, rows, size], dtype),
        _ => ([1, rows, directions * size], dtype),
    };
    let mut uids = [Vec::new(), Vec::new()];
    let named = [(0, slots.inputs), (1, slots.outputs)];
    let named =
        named.into_iter().flat_map(|(side, slots)| slots.into_iter().map(move |at| (side, at)));
    for (uid, (side, slot)) in (1..).zip(named) {
        let (dims, dtype) = of(slot);
        uids[side].push(graph.tensor(TensorDesc::packed(uid, slot, &dims, dtype)));
    }
    graph.operation_into(Op::Recurrence(op.clone()), &uids[0], &uids[1]);
    graph.build().unwrap()
}

#[test]
fn layers_of_every_cell_are_written_and_read_back() {
    for kind in CellKind::ALL {
        for (peephole, projected) in [(false, false), (true, false), (false, true), (true, true)] {
            let lstm = kind == CellKind::Lstm;
            if (peephole || projected) && !lstm {
                continue;
            }
            let options = CellOptions { peephole, projected, ..CellOptions::default() };
            let with = RecurrenceSlots {
                x_bias: true,
                r_bias: true,
                h_initial: true,
                states_initial: lstm,
                lengths: true,
                reset: true,
                h_final: true,
                states_final: lstm,
                history: lstm,
            };
            let op = Recurrence {
                direction: Direction::Both,
                layout: RowLayout::BatchMajor,
                with,
                ..Recurrence::new(kind.cell(&options), 3, 5)
            };
            let graph = graph(&op, 4, DType::F16);
            let read = OperationGraph::from_json(&graph.to_json()).unwrap();
            assert_eq!(read.operations(), graph.operations(), "{}", graph.to_json());
            assert_eq!(read.tensors(), graph.tensors());
        }
    }
}

/// Values for every operand: weights whose sums stay near 1, lengths from 0 to all steps.
pub fn values(graph: &OperationGraph, op: &Recurrence, steps: i64) -> Values {
    let scale = 1.0 / (op.units as f64).sqrt();
    let of = |tensor: &TensorDesc| match tensor.name.as_str() {
        "lengths" => lengths(op, steps).into_iter().map(|length| length as f64).collect(),
        "reset" => {
            let values = harness::fill(tensor, 9, 1.0).into_iter();
            values.map(|value| f64::from(value > 0.7)).collect()
        }
        "r" | "projection" => harness::fill(tensor, tensor.uid as u64, 2.0 * scale),
        _ => harness::fill(tensor, tensor.uid as u64, 1.0),
    };
    graph.inputs().map(|tensor| (tensor.uid, of(tensor))).collect()
}

/// An engine's own setting, with some knobs set.
fn setting(kiln: &Kiln, graph: &OperationGraph, name: &str, knobs: &[(&str, i64)]) -> EngineConfig {
    let own = engine::supported(name, graph.canonical(), kiln.device().target());
    let own = own.unwrap().heuristic();
    knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value))
}

/// An engine computes what the reference does.
fn check_on(kilns: &[&Kiln], name: &str, op: &Recurrence, steps: i64, dtype: DType) {
    let graph = graph(op, steps, dtype);
    let values = values(&graph, op, steps);
    for kiln in kilns {
        let config = setting(kiln, &graph, name, &[]);
        let what = format!("{config}: {op} {dtype} {steps} x {} x {}", op.batch, op.units);
        harness::check(kiln, &graph, Some(&config), &values, &what);
    }
}

fn check(op: &Recurrence, steps: i64, dtype: DType) {
    check_on(&[harness::kiln()], "rnn_cta", op, steps, dtype);
}

/// A cell in the precision that its layer computes in.
pub fn layer(
    kind: CellKind,
    options: CellOptions,
    math: MatmulMath,
    sizes: [i64; 2],
) -> Recurrence {
    let precision = if math == MatmulMath::F64 { Math::F64 } else { Math::F32 };
    let cell = kind.cell(&CellOptions { math: precision, ..options });
    Recurrence { math, ..Recurrence::new(cell, sizes[0], sizes[1]) }
}

const MATHS: [(DType, MatmulMath); 5] = [
    (DType::F32, MatmulMath::F32),
    (DType::F32, MatmulMath::Tf32),
    (DType::F16, MatmulMath::F32),
    (DType::Bf16, MatmulMath::F32),
    (DType::F64, MatmulMath::F64),
];

#[test]
fn layers_compute_their_cells() {
    for kind in CellKind::ALL {
        for (dtype, math) in MATHS {
            let op = layer(kind, CellOptions::default(), math, [3, 20]);
            let both = dtype == DType::F16 || dtype == DType::F32;
            let kilns = if both { harness::dialects() } else { vec![harness::kiln()] };
            check_on(&kilns, "rnn_cta", &op, 4, dtype);
        }
    }
}

/// Layers with one product, with two, with a projection; on tensor cores and without.
fn samples(sizes: [i64; 2]) -> Vec<(Recurrence, DType)> {
    let plain = CellOptions::default();
    let projected = CellOptions { projected: true, ..plain };
    let of = |kind, options, math| {
        let with = RecurrenceSlots { h_initial: true, h_final: true, ..Default::default() };
        let direction = Direction::Both;
        Recurrence { with, direction, ..layer(kind, options, math, sizes) }
    };
    vec![
        (of(CellKind::Lstm, plain, MatmulMath::F32), DType::F16),
        (of(CellKind::GruResetBefore, plain, MatmulMath::F32), DType::Bf16),
        (of(CellKind::Lstm, projected, MatmulMath::F32), DType::F16),
        (of(CellKind::Gru, plain, MatmulMath::F32), DType::F32),
        (of(CellKind::Lstm, projected, MatmulMath::F64), DType::F64),
        (of(CellKind::GruResetBefore, plain, MatmulMath::Tf32), DType::F32),
    ]
}

#[test]
fn blocks_share_the_units_of_a_layer() {
    for (op, dtype) in samples([5, 44]) {
        check_on(&harness::dialects(), "rnn_cluster", &op, 3, dtype);
        check_on(&harness::dialects(), "rnn_grid", &op, 3, dtype);
        check_on(&harness::dialects(), "rnn_step", &op, 3, dtype);
    }
}

#[test]
fn steps_have_kernels_of_their_own() {
    let peephole = CellOptions { peephole: true, ..CellOptions::default() };
    for (kind, options) in [
        (CellKind::Lstm, peephole),
        (CellKind::Lstm, CellOptions { projected: true, ..peephole }),
        (CellKind::Augru, CellOptions::default()),
    ] {
        for layout in [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed] {
            let plain = layer(kind, options, MatmulMath::F32, [4, 12]);
            let (with, fill) = (everything(kind), Real::new(-7.0));
            let op = Recurrence { direction: Direction::Both, layout, with, fill, ..plain };
            check_on(&[harness::kiln()], "rnn_step", &op, 3, DType::F16);
        }
    }
}

#[test]
fn cells_take_moments_of_a_row() {
    let cell = Arc::new(user_cells::layer_norm_lstm().unwrap());
    for (dtype, batch, units) in
        [(DType::F32, 3, 12), (DType::F16, 3, 44), (DType::F16, 20, 72), (DType::F32, 9, 33)]
    {
        let with = RecurrenceSlots { lengths: true, x_bias: true, ..Default::default() };
        let direction = Direction::Both;
        let op = Recurrence { with, direction, ..Recurrence::new(cell.clone(), batch, units) };
        for engine in ["rnn_cta", "rnn_cluster", "rnn_step"] {
            if engine != "rnn_cluster" || units >= 16 {
                check_on(&harness::dialects(), engine, &op, 3, dtype);
            }
        }
        let (graph, kiln) = (graph(&op, 3, dtype), harness::kiln());
        let grid = engine::supported("rnn_grid", graph.canonical(), kiln.device().target());
        let text = "layer norms need all hidden units of a row in one block or cluster";
        assert_eq!(grid.unwrap_err().to_string(), text);
    }
}

/// Warps that share squares of rows, and blocks without units, have moments too.
#[test]
fn moments_take_any_knobs() {
    let cell = user_cells::layer_norm_lstm().unwrap();
    let op = Recurrence::new(cell, 20, 36);
    let graph = graph(&op, 3, DType::F16);
    let (values, kiln) = (values(&graph, &op, 3), harness::kiln());
    for (engine, knobs) in [
        ("rnn_cta", &[("batch_tile", 16), ("warps_n", 2), ("warps_k", 2)][..]),
        ("rnn_cta", &[("batch_tile", 16), ("warps_n", 2), ("warps_k", 4), ("weight_registers", 0)]),
        ("rnn_cta", &[("batch_tile", 8), ("warps_n", 1), ("warps_k", 8), ("weight_registers", 0)]),
        ("rnn_cluster", &[("group_ctas", 8), ("warps_n", 1), ("warps_k", 1)]),
        ("rnn_cluster", &[("group_ctas", 2), ("batch_tile", 16), ("warps_n", 2), ("warps_k", 4)]),
    ] {
        let config = setting(kiln, &graph, engine, knobs);
        harness::check(kiln, &graph, Some(&config), &values, &config.to_string());
    }
}

/// Whatever the knobs: the same bits where K is split over as many warps.
#[test]
fn knobs_change_no_bits() {
    let knobs: [(&str, &[(&str, i64)]); 15] = [
        ("rnn_cta", &[]),
        ("rnn_cta", &[("batch_tile", 16)]),
        ("rnn_cta", &[("warps_n", 2), ("weight_registers", 0)]),
        ("rnn_cta", &[("warps_n", 16), ("weight_registers", 32)]),
        ("rnn_cluster", &[("group_ctas", 4)]),
        ("rnn_cluster", &[("group_ctas", 16), ("warps_n", 1)]),
        ("rnn_cluster", &[("batch_tile", 32), ("warps_n", 1), ("weight_registers", 0)]),
        ("rnn_grid", &[("group_ctas", 2), ("warps_n", 8), ("exchange", 0)]),
        ("rnn_grid", &[("group_ctas", 2), ("warps_n", 8), ("exchange", 1)]),
        ("rnn_grid", &[("group_ctas", 4), ("batch_tile", 16), ("exchange", 1)]),
        ("rnn_stream", &[("smem_percent", 0), ("weight_registers", 0)]),
        ("rnn_stream", &[("smem_percent", 50), ("weight_registers", 0)]),
        ("rnn_stream", &[("smem_percent", 50), ("weight_registers", 32), ("warps_n", 2)]),
        ("rnn_cta", &[("warps_k", 4)]),
        ("rnn_stream", &[("smem_percent", 50), ("warps_k", 4), ("weight_registers", 0)]),
    ];
    let kiln = harness::kiln();
    for (op, dtype) in samples([9, 72]) {
        let graph = graph(&op, 3, dtype);
        let values = values(&graph, &op, 3);
        let mut bits: HashMap<i64, Vec<Vec<u64>>> = HashMap::new();
        for (engine, knobs) in &knobs {
            let warps_k =
                knobs.iter().find(|(knob, _)| *knob == "warps_k").map_or(1, |(_, at)| *at);
            let target = kiln.device().target();
            if engine::supported(engine, graph.canonical(), target).is_err() {
                assert_eq!(op.math, MatmulMath::F64, "{engine}");
                continue;
            }
            let knobs = [&[("warps_k", warps_k)], *knobs].concat();
            let config = setting(kiln, &graph, engine, &knobs);
            let actual = match harness::run(kiln, &graph, Some(&config), &values) {
                Ok(actual) => actual,
                // Without tensor cores registers do not hold the sums of the widest tiles.
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotSupported, "{config}: {error}");
                    continue;
                }
            };
            harness::compare(&graph, &values, &actual, &format!("{config}: {op}"));
            let of = |tensor: &TensorDesc| {
                actual[&tensor.uid].iter().map(|value| value.to_bits()).collect()
            };
            let actual: Vec<Vec<u64>> = graph.outputs().map(of).collect();
            let first = bits.entry(warps_k).or_insert_with(|| actual.clone());
            assert_eq!(*first, actual, "{config}: {op}");
        }
    }
}

#[test]
fn lstms_have_options() {
    let clip = |point, nan| {
        let (min, max) = (Real::new(-0.3), Real::new(0.2));
        Some(CellClip { min, max, nan, point })
    };
    let plain = CellOptions::default();
    let propagate = NanPropagation::Propagate;
    for options in [
        CellOptions { peephole: true, ..plain },
        CellOptions { projected: true, ..plain },
        CellOptions { peephole: true, projected: true, ..plain },
        CellOptions { cell_clip: clip(ClipPoint::Read, propagate), ..plain },
        CellOptions { cell_clip: clip(ClipPoint::Stored, NanPropagation::NotPropagate), ..plain },
        CellOptions { gate_clip: Some(Real::new(0.5)), peephole: true, ..plain },
    ] {
        for (dtype, math) in MATHS {
            check(&layer(CellKind::Lstm, options, math, [9, 19]), 5, dtype);
        }
    }
}

/// A cell state that is NaN stays so or becomes the lower limit, as the clip says; other rows of
/// the batch do not notice.
#[test]
fn clips_have_a_rule_for_nan() {
    let (kiln, units) = (harness::kiln(), 19);
    for point in [ClipPoint::Read, ClipPoint::Stored] {
        for nan in [NanPropagation::Propagate, NanPropagation::NotPropagate] {
            let clip = CellClip { min: Real::new(-0.3), max: Real::new(0.2), nan, point };
            let options = CellOptions { cell_clip: Some(clip), ..CellOptions::default() };
            let with = RecurrenceSlots { states_initial: true, ..RecurrenceSlots::default() };
            let op = layer(CellKind::Lstm, options, MatmulMath::F32, [3, units]);
            let op = Recurrence { with, ..op };
            let graph = graph(&op, 2, DType::F32);
            let mut values = values(&graph, &op, 2);
            let states = graph.tensor_named("states_initial").unwrap().uid;
            values.get_mut(&states).unwrap()[units as usize] = f64::NAN;
            let y = graph.outputs().next().unwrap().uid;
            for name in ["rnn_cta", "rnn_step"] {
                let config = setting(kiln, &graph, name, &[]);
                let actual = harness::run(kiln, &graph, Some(&config), &values).unwrap();
                let what = format!("{config}: {point:?}, {nan:?}");
                harness::compare(&graph, &values, &actual, &what);
                let is_nan = |row: i64| {
                    let first = (row * units) as usize;
                    actual[&y][first..first + units as usize].iter().filter(|y| y.is_nan()).count()
                };
                // Rows are of the first step, then of the second.
                let expected = match nan {
                    NanPropagation::Propagate => [0, 1, 0, 0, units as usize, 0],
                    NanPropagation::NotPropagate => [0; 6],
                };
                assert_eq!([0, 1, 2, 3, 4, 5].map(is_nan), expected, "{what}");
            }
        }
    }
}

/// ReLU hands a NaN on, as torch does, unless the network drops it: then it becomes 0.
#[test]
fn relu_has_a_rule_for_nan() {
    let (kiln, units) = (harness::kiln(), 19);
    for drop_nan in [false, true] {
        let options = CellOptions { drop_nan, ..CellOptions::default() };
        let op = layer(CellKind::Relu, options, MatmulMath::F32, [3, units]);
        for dtype in [DType::F32, DType::F16] {
            let graph = graph(&op, 2, dtype);
            let mut values = values(&graph, &op, 2);
            let x = graph.tensor_named("x").unwrap().uid;
            values.get_mut(&x).unwrap()[units as usize] = f64::NAN;
            let y = graph.outputs().next().unwrap().uid;
            for name in ["rnn_cta", "rnn_step"] {
                let config = setting(kiln, &graph, name, &[]);
                let actual = harness::run(kiln, &graph, Some(&config), &values).unwrap();
                let what = format!("{config}: drop_nan {drop_nan}, {dtype}");
                harness::compare(&graph, &values, &actual, &what);
                // The second row's first unit; every unit of that row at the step behind.
                let row = |row: usize| &actual[&y][row * units as usize..][..units as usize];
                let count = |values: &[f64]| values.iter().filter(|value| value.is_nan()).count();
                let all = if drop_nan { 0 } else { units as usize };
                assert_eq!([count(row(1)), count(row(4))], [all.min(1), all], "{what}");
                assert!(!drop_nan || row(1)[0] == 0.0, "{what}");
            }
        }
    }
}

/// Every optional tensor of a cell.
pub fn everything(kind: CellKind) -> RecurrenceSlots {
    let others = kind == CellKind::Lstm;
    RecurrenceSlots {
        x_bias: true,
        r_bias: true,
        h_initial: true,
        states_initial: others,
        lengths: true,
        reset: true,
        h_final: true,
        states_final: others,
        history: others,
    }
}

#[test]
fn layers_have_directions_layouts_and_optional_tensors() {
    let layouts = [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed];
    for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
        for layout in layouts {
            for (kind, projected, apart) in [
                (CellKind::Lstm, false, false),
                (CellKind::Lstm, true, true),
                (CellKind::Gru, false, true),
                (CellKind::Augru, false, false),
            ] {
                let options = CellOptions { projected, ..CellOptions::default() };
                let plain = layer(kind, options, MatmulMath::F32, [10, 12]);
                let fill = Real::new(-7.0);
                let with = everything(kind);
                let op = Recurrence { direction, layout, apart, fill, with, ..plain };
                for dtype in [DType::F16, DType::F32] {
                    check(&op, 6, dtype);
                }
            }
        }
    }
}

#[test]
fn layers_have_edges() {
    for units in [1, 7, 8, 9, 31, 33, 64] {
        for batch in [1, 8, 9, 33] {
            for dtype in [DType::F16, DType::F32] {
                let op =
                    layer(CellKind::Gru, CellOptions::default(), MatmulMath::F32, [batch, units]);
                check(&op, 2, dtype);
            }
        }
    }
    for steps in [1, 2, 17] {
        let op = layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F32, [2, 16]);
        check(&Recurrence { with: everything(CellKind::Lstm), ..op }, steps, DType::Bf16);
    }
}
