//! Recurrent layers: what an operation is, in texts and in documents.

use kiln::graph::{Direction, Op, Recurrence, RecurrenceSlots, RowLayout};
use kiln::rnn::{CellKind, CellOptions};
use kiln::tensor::TensorDesc;
use kiln::{DType, OperationGraph};

/// A layer of these steps with all tensors that its operation names.
fn graph(op: &Recurrence, steps: i64, dtype: DType) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let slots = Op::Recurrence(op.clone()).slots();
    let (rows, directions) = (steps * op.batch, op.direction.count());
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
