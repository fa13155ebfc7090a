//! Forms of recurrent layers.

use kiln::DType;
use kiln::graph::{Direction, MatmulMath, Quantization, Recurrence, RowLayout};
use kiln::rnn::{CellKind, CellOptions};

use super::form::{Form, Task, form};
use crate::recurrence;
use crate::recurrence_vjp::derivative;
use crate::rnn_cells::user_cells;

fn recurrent(op: Recurrence, dtype: DType) -> Task {
    steps(&op, 5, dtype)
}

fn steps(op: &Recurrence, count: i64, dtype: DType) -> Task {
    let graph = recurrence::graph(op, count, dtype);
    let values = recurrence::values(&graph, op, count);
    (graph, values)
}

fn plain(kind: CellKind, sizes: [i64; 2]) -> Recurrence {
    recurrence::layer(kind, CellOptions::default(), MatmulMath::F32, sizes)
}

fn lstm(sizes: [i64; 2]) -> Task {
    recurrent(plain(CellKind::Lstm, sizes), DType::F16)
}

/// Packed sequences in both directions, with resets and every state.
fn sequences(kind: CellKind, sizes: [i64; 2]) -> Recurrence {
    let with = recurrence::everything(kind);
    let (layout, direction) = (RowLayout::Packed, Direction::Both);
    Recurrence { with, layout, direction, ..plain(kind, sizes) }
}

/// A form for each engine and each way of an exchange.
pub fn recurrences() -> Vec<Form> {
    use DType::{F16, F32};
    let own = |name: &str, sizes: [i64; 2]| {
        let cells = user_cells::all().unwrap();
        let cell = cells.into_iter().find(|cell| cell.name == name).unwrap();
        recurrent(Recurrence::new(cell, sizes[0], sizes[1]), F16)
    };
    let options = CellOptions { projected: true, peephole: true, ..CellOptions::default() };
    let full = Recurrence {
        cell: CellKind::Lstm.cell(&options).into(),
        ..sequences(CellKind::Lstm, [8, 20])
    };
    let stepped = sequences(CellKind::GruResetBefore, [6, 24]);
    let stepped_gradient = derivative(&stepped, F32);
    // Words of every step of 40 but the last have been cleared, or were another step's.
    let long = steps(&plain(CellKind::Lstm, [5, 64]), 40, F16);
    let gradient = recurrent(derivative(&sequences(CellKind::Lstm, [5, 64]), F16), F16);
    let integers = |kind, sizes| {
        let quantization = Some(Quantization::new(200.0, 100));
        recurrent(Recurrence { quantization, ..sequences(kind, sizes) }, DType::U8)
    };
    vec![
        form("rnn_cta", "rnn_cta", lstm([5, 40]), &[]),
        form("rnn_states", "rnn_cta", recurrent(sequences(CellKind::Lstm, [5, 40]), F16), &[]),
        form("rnn_simt", "rnn_cta", recurrent(full, F32), &[]),
        form("rnn_cluster", "rnn_cluster", lstm([5, 64]), &[("group_ctas", 2)]),
        form("rnn_turing", "rnn_cta", lstm([5, 40]), &[]).on("sim:t4"),
        form(
            "rnn_halves",
            "rnn_cluster",
            lstm([5, 64]),
            &[("group_ctas", 2), ("warps_k", 2), ("warps_n", 4)],
        ),
        form("rnn_counter", "rnn_grid", lstm([20, 128]), &[("group_ctas", 2), ("exchange", 0)]),
        form("rnn_words", "rnn_grid", long, &[("group_ctas", 2), ("exchange", 1)]),
        form(
            "rnn_stream",
            "rnn_stream",
            lstm([5, 128]),
            &[("exchange", 0), ("group_ctas", 2), ("smem_percent", 0), ("weight_registers", 0)],
        ),
        form("rnn_step", "rnn_step", recurrent(stepped, F16), &[]),
        form("rnn_norm", "rnn_cluster", own("layer_norm_lstm", [5, 64]), &[("group_ctas", 2)]),
        form("rnn_own", "rnn_cta", own("mgu", [5, 40]), &[]),
        form(
            "rnn_gradient",
            "rnn_cluster",
            gradient.clone(),
            &[("exchange", 0), ("group_ctas", 2)],
        ),
        form(
            "rnn_reduce_scatter",
            "rnn_cluster",
            gradient,
            &[("exchange", 1), ("group_ctas", 2), ("warps_k", 2), ("warps_n", 2)],
        ),
        form("rnn_gradient_step", "rnn_step", recurrent(stepped_gradient, F32), &[]),
        form(
            "rnn_integers",
            "rnn_grid",
            integers(CellKind::Gru, [5, 64]),
            &[("group_ctas", 2), ("exchange", 1), ("warps_k", 2), ("warps_n", 2)],
        ),
        form("rnn_integers_step", "rnn_step", integers(CellKind::GruResetBefore, [6, 24]), &[]),
    ]
}
