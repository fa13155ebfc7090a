//! Pointwise loops, trip by trip for every element.

use crate::expr::Activations;
use crate::graph::PointwiseLoop;
use crate::reference::approx::Approx;
use crate::reference::index::{broadcast_position, unravel};
use crate::reference::{Expected, Operand, bound};
use crate::tensor::TensorDesc;

/// Errors are bounded trip by trip, each by those of the states before it.
pub(super) fn evaluate(
    op: &PointwiseLoop,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let (counts, operands) = operands.split_at(usize::from(op.frame.count));
    let most = counts.first().map_or(i64::MAX, |count| (count.expected.values[0] as i64).max(0));
    let domain = op.domain(operands.iter().map(|operand| operand.desc));
    let elements = domain.iter().product::<i64>();
    let mut results: Vec<Expected> = outputs
        .iter()
        .map(|tensor| {
            let count = tensor.elements().unwrap_or(0) as usize;
            Expected { values: vec![0.0; count], bounds: vec![0.0; count] }
        })
        .collect();
    // A loop without elements still makes its trips: of those that its condition knows.
    for element in 0..elements.max(1) {
        let index = if elements > 0 { unravel(element, &domain) } else { vec![0; domain.len()] };
        let read = |at: usize, trip: i64| {
            let operand = &operands[at];
            let trips = op.frame.leading(at);
            let dims = &operand.desc.dims[trips..];
            // Of what has no elements nothing is needed.
            if dims.contains(&0) {
                return Approx::exact(0.0);
            }
            let own = broadcast_position(&index, dims);
            if trips == 0 {
                return approx(operand.expected, own);
            }
            let last = operand.desc.dims[0] - 1;
            let trip = trip.min(last);
            let trip = if op.frame.iterated[at - op.frame.states] { last - trip } else { trip };
            let size = dims.iter().product::<i64>() as usize;
            approx(operand.expected, trip as usize * size + own)
        };
        if elements == 0 && !op.frame.condition {
            break;
        }
        let mut states: Vec<Approx> = (0..op.frame.states).map(|at| read(at, 0)).collect();
        let mut trip = 0;
        let ended = loop {
            if trip >= most {
                break trip;
            }
            let others = op.frame.states..operands.len();
            let inputs: Vec<Approx> =
                states.iter().copied().chain(others.map(|at| read(at, trip))).collect();
            let values = bound::program(&op.program, &inputs, Activations::Precise);
            let is_true = !op.frame.condition || values.last().is_some_and(|of| of.value != 0.0);
            if !is_true {
                break trip;
            }
            if op.frame.condition && trip == op.frame.trips_max {
                break trip + 1;
            }
            for (at, reverse) in op.frame.stacked.iter().enumerate() {
                let position = if *reverse { most - 1 - trip } else { trip };
                let slot = op.frame.last.iter().filter(|handed| **handed).count() + at;
                let tensor = outputs[slot];
                if position < tensor.dims[0] && elements > 0 {
                    let dims = &tensor.dims[1..];
                    let size = dims.iter().product::<i64>() as usize;
                    let own = position as usize * size + broadcast_position(&index, dims);
                    put(&mut results[slot], own, values[op.frame.states + at], tensor);
                }
            }
            for (state, value) in states.iter_mut().zip(&values) {
                *state = *value;
            }
            trip += 1;
        };
        let handed = (0..op.frame.states).filter(|state| op.frame.last[*state]);
        for (slot, state) in handed.enumerate().filter(|_| elements > 0) {
            let own = broadcast_position(&index, &outputs[slot].dims);
            put(&mut results[slot], own, states[state], outputs[slot]);
        }
        if op.frame.condition
            && let Some(trips) = results.last_mut()
        {
            trips.values[0] = ended as f64;
        }
    }
    results
}

fn approx(of: &Expected, at: usize) -> Approx {
    Approx { value: of.values[at], error: of.bounds[at] }
}

fn put(result: &mut Expected, at: usize, value: Approx, tensor: &TensorDesc) {
    let rounded = tensor.dtype.round(value.value);
    result.values[at] = rounded;
    result.bounds[at] = value.error + (rounded - value.value).abs();
}
