//! Recurrent layers under test: what an operation is, in documents and in the reference; and that
//! no engine or knob changes bits.

use std::collections::HashMap;

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Math, NanPropagation, Real};
use kiln::graph::{
    Direction, MatmulMath, Op, Quantization, Recurrence, RecurrenceSlots, RowLayout,
};

use kiln::rnn::{CellClip, CellKind, CellOptions, ClipPoint};
use kiln::tensor::TensorDesc;
use kiln::{DType, ErrorKind, Kiln, OperationGraph, reference};

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
    let (cell, units) = (&op.cell, op.hidden_size);
    let size = if cell.projected { (units + 1) / 2 } else { units };
    let outputs = cell.outputs() as i64;
    let size = size * outputs;
    let others = (count(&cell.states) - outputs) * units;
    let [blocks, recurrent] =
        [cell.blocks(), cell.recurrent_gates()].map(|count| count as i64 * units);
    // What is read at every step is f32, in double precision f64. Beside a quantised state numbers
    // are f32.
    let stepped = if dtype == DType::F64 { dtype } else { DType::F32 };
    let [weights, number] = match op.quantization {
        Some(_) => [DType::I8, DType::F32],
        None => [dtype; 2],
    };
    let of = |slot: &str| match slot {
        "x" => ([directions, rows, count(&cell.gates) * units], stepped),
        "x_bias" => ([directions, 1, count(&cell.gates) * units], number),
        "r" if cell.is_transposed() => ([directions, blocks, units], dtype),
        "r" => ([directions, blocks, size], weights),
        "r_scales" => ([directions, 1, recurrent], number),
        "r_bias" => ([directions, 1, recurrent], number),
        "projection" => ([directions, size, units], dtype),
        "parameters" => ([directions, count(&cell.parameters), units], number),
        "row_inputs" => ([1, rows, count(&cell.row_inputs)], number),
        "unit_inputs" => ([1, rows, count(&cell.unit_inputs) * units], number),
        "h_initial" | "h_final" => ([directions, op.batch, size], dtype),
        "states_initial" | "states_final" => ([directions, op.batch, others], number),
        "history" => ([directions, rows, others], stepped),
        "saved" => ([directions, rows, count(&op.saved) * units], stepped),
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
    let scale = 1.0 / (op.hidden_size as f64).sqrt();
    let of = |tensor: &TensorDesc| match tensor.name.as_str() {
        "lengths" => lengths(op, steps).into_iter().map(|length| length as f64).collect(),
        "reset" => {
            let values = harness::fill(tensor, 9, 1.0).into_iter();
            values.map(|value| f64::from(value > 0.7)).collect()
        }
        "r" if tensor.dtype == DType::I8 => harness::fill(tensor, 1, 127.0),
        "r_scales" => harness::fill(tensor, 2, scale / 32.0),
        "h_initial" if op.quantization.is_some() => harness::fill(tensor, 3, 255.0),
        "r" | "projection" => harness::fill(tensor, tensor.uid as u64, 2.0 * scale),
        _ => harness::fill(tensor, tensor.uid as u64, 1.0),
    };
    graph.inputs().map(|tensor| (tensor.uid, of(tensor))).collect()
}

/// An engine's own setting, with some knobs set.
pub fn setting(
    kiln: &Kiln,
    graph: &OperationGraph,
    name: &str,
    knobs: &[(&str, i64)],
) -> EngineConfig {
    let own = engine::supported(name, graph.canonical(), kiln.device().target());
    let own = own.unwrap().heuristic();
    knobs.iter().fold(own, |config, (knob, value)| config.with(knob, *value))
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

/// Layers with one product, with two, with a projection; on tensor cores and without.
pub fn samples(sizes: [i64; 2]) -> Vec<(Recurrence, DType)> {
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
        (of_integers(of(CellKind::Lstm, plain, MatmulMath::F32), 128), DType::U8),
        (of_integers(of(CellKind::GruResetBefore, plain, MatmulMath::F32), 0), DType::I8),
    ]
}

fn of_integers(op: Recurrence, shift: i64) -> Recurrence {
    Recurrence { quantization: Some(Quantization::new(63.0, shift)), ..op }
}

/// Warps that share squares of rows, and blocks without units, have statistics too.
#[test]
fn statistics_take_any_knobs() {
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

/// Whatever the knobs: the same bits where K is split over as many warps and accumulators.
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
        let mut bits: HashMap<(i64, bool), Vec<Vec<u64>>> = HashMap::new();
        for (engine, knobs) in &knobs {
            let warps_k =
                knobs.iter().find(|(knob, _)| *knob == "warps_k").map_or(1, |(_, at)| *at);
            let target = kiln.device().target();
            let Ok(supported) = engine::supported(engine, graph.canonical(), target) else {
                assert_eq!(op.math, MatmulMath::F64, "{engine}");
                continue;
            };
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
            let sources = harness::sources(&op.to_string(), &*supported, &config);
            let chains = sources.iter().any(|(_, source)| source.text.contains("CHAINS = 2"));
            let first = bits.entry((warps_k, chains)).or_insert_with(|| actual.clone());
            assert!(*first == actual, "{config}: {op}: other bits");
        }
    }
}

/// How many results of a row are NaN in the reference, whose `slot` is NaN in the first unit of the
/// second row of three.
fn nan_by_row(op: &Recurrence, slot: &str) -> Vec<usize> {
    let graph = graph(op, 2, DType::F32);
    let mut values = values(&graph, op, 2);
    let uid = graph.tensor_named(slot).unwrap().uid;
    values.get_mut(&uid).unwrap()[op.hidden_size as usize] = f64::NAN;
    let y = graph.outputs().next().unwrap().uid;
    let results = &reference::evaluate(&graph, &values).unwrap()[&y].values;
    let rows = results.chunks(op.hidden_size as usize);
    rows.map(|row| row.iter().filter(|y| y.is_nan()).count()).collect()
}

/// A cell state that is NaN stays so or becomes the lower limit, as the clip says; other rows of
/// the batch do not notice. Rows are of the first step, then of the second.
#[test]
fn clips_have_a_rule_for_nan() {
    for point in [ClipPoint::Read, ClipPoint::Stored] {
        for (nan, expected) in [
            (NanPropagation::Propagate, [0, 1, 0, 0, 19, 0]),
            (NanPropagation::NotPropagate, [0; 6]),
        ] {
            let clip = CellClip { min: Real::new(-0.3), max: Real::new(0.2), nan, point };
            let options = CellOptions { cell_clip: Some(clip), ..CellOptions::default() };
            let with = RecurrenceSlots { states_initial: true, ..RecurrenceSlots::default() };
            let op = layer(CellKind::Lstm, options, MatmulMath::F32, [3, 19]);
            let found = nan_by_row(&Recurrence { with, ..op }, "states_initial");
            assert_eq!(found, expected, "{point:?}, {nan:?}");
        }
    }
}

/// ReLU hands a NaN on, as torch does, unless the network drops it: then it becomes 0.
#[test]
fn relu_has_a_rule_for_nan() {
    for (drop_nan, expected) in [(false, [0, 1, 0, 0, 19, 0]), (true, [0; 6])] {
        let options = CellOptions { drop_nan, ..CellOptions::default() };
        let op = layer(CellKind::Relu, options, MatmulMath::F32, [3, 19]);
        assert_eq!(nan_by_row(&op, "x"), expected, "drop_nan {drop_nan}");
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
