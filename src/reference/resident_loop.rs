//! Resident loops, stage by stage in each trip.

use crate::expr::Activations;
use crate::graph::{LoopFold, LoopStage, LoopView, ResidentLoop};
use crate::reference::approx::Approx;
use crate::reference::index::{count, unravel};
use crate::reference::{Expected, Operand, bound, reduction};
use crate::tensor::TensorDesc;

/// The elements of a value.
type Value = Vec<Approx>;

/// Errors are bounded stage by stage, each by those of the values that it reads.
pub(super) fn evaluate(
    op: &ResidentLoop,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let frame = &op.frame;
    let (counts, operands) = operands.split_at(usize::from(frame.count));
    let most = counts.first().map_or(i64::MAX, |count| (count.expected.values[0] as i64).max(0));
    let given = |at: usize, trip: i64| -> Value {
        let operand = &operands[at];
        let leading = frame.leading(at);
        let size = count(&operand.desc.dims[leading..]);
        let mut first = 0;
        if leading == 1 {
            let last = operand.desc.dims[0] - 1;
            let trip = trip.min(last);
            let reverse = frame.iterated[at - frame.states];
            first = if reverse { last - trip } else { trip } as usize * size;
        }
        (first..first + size).map(|position| operand.approx(position)).collect()
    };
    let mut results: Vec<Expected> = outputs
        .iter()
        .map(|tensor| {
            let count = count(&tensor.dims);
            Expected { values: vec![0.0; count], bounds: vec![0.0; count] }
        })
        .collect();
    let first_stacked = frame.handed().count();
    let mut states: Vec<Value> = (0..frame.states).map(|at| given(at, 0)).collect();
    let mut trip = 0;
    let ended = loop {
        if trip >= most {
            break trip;
        }
        let mut values = states.clone();
        values.extend((frame.states..operands.len()).map(|at| given(at, trip)));
        for stage in &op.stages {
            values.extend(results_of(stage, &values));
        }
        let yielded: Vec<&Value> = op.yields.iter().map(|value| &values[*value]).collect();
        if frame.condition && yielded.last().is_some_and(|of| of[0].value == 0.0) {
            break trip;
        }
        if frame.condition && trip == frame.trips_max {
            break trip + 1;
        }
        for (at, reverse) in frame.stacked.iter().enumerate() {
            let position = if *reverse { most - 1 - trip } else { trip };
            let tensor = outputs[first_stacked + at];
            if position < tensor.dims[0] {
                let value = yielded[frame.states + at];
                put(&mut results[first_stacked + at], position as usize * value.len(), value);
            }
        }
        states = yielded.into_iter().take(frame.states).cloned().collect();
        trip += 1;
    };
    for (slot, state) in frame.handed().enumerate() {
        put(&mut results[slot], 0, &states[state]);
    }
    if let Some(trips) = results.last_mut().filter(|_| frame.condition) {
        trips.values[0] = ended as f64;
    }
    results
}

fn results_of(stage: &LoopStage, values: &[Value]) -> Vec<Value> {
    let mut results = vec![Value::new(); stage.program.outputs().len()];
    for element in 0..stage.elements() {
        let at = unravel(element, &stage.extents);
        let folds = stage.folds.iter().map(|fold| folded(fold, &at, values));
        let operands = stage.operands.iter().map(|view| read(view, &at, values));
        let inputs: Value = folds.chain(operands).collect();
        let outputs = bound::program(&stage.program, &inputs, Activations::Precise);
        for (result, output) in results.iter_mut().zip(outputs) {
            result.push(output);
        }
    }
    results
}

fn folded(fold: &LoopFold, at: &[i64], values: &[Value]) -> Approx {
    let term = |term: i64| {
        let at = [at, &unravel(term, &fold.extents)].concat();
        let inputs: Value = fold.operands.iter().map(|view| read(view, &at, values)).collect();
        bound::program(&fold.term, &inputs, Activations::Precise)[0]
    };
    reduction::reduced(fold.op, fold.dtype(), (0..fold.terms()).map(term).collect())
}

fn read(view: &LoopView, at: &[i64], values: &[Value]) -> Approx {
    let distance: i64 = view.strides.iter().zip(at).map(|(stride, at)| stride * at).sum();
    values[view.value][(view.first + distance) as usize]
}

fn put(result: &mut Expected, first: usize, value: &Value) {
    for (at, element) in value.iter().enumerate() {
        result.values[first + at] = element.value;
        result.bounds[first + at] = element.error;
    }
}
