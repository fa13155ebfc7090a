//! Operation graphs as a front-end: lowered to themselves, with random values that each operand may
//! have.

use crate::dtype::DType;
use crate::error::Result;
use crate::expr::Mode;
use crate::frontend::FrontEnd;
use crate::frontend::values::{Values, random_tensors};
use crate::graph::{
    AttentionShape, CtcInput, CtcLoss, LoopFrame, Op, Operation, OperationGraph, PointwiseLoop,
    ResidentLoop, Signal, SignalMode,
};
use crate::tensor::TensorDesc;

impl FrontEnd for OperationGraph {
    fn graphs(&self) -> Vec<&OperationGraph> {
        vec![self]
    }

    fn named_inputs(&self) -> Vec<TensorDesc> {
        self.inputs().cloned().collect()
    }

    fn named_outputs(&self) -> Vec<TensorDesc> {
        self.outputs().cloned().collect()
    }

    fn random_values(&self, seed: u64) -> Result<Values> {
        random_values(self, seed)
    }

    fn initial_values(&self, named: Values) -> Result<Values> {
        Ok(named)
    }

    fn named_values(&self, state: &Values) -> Values {
        self.outputs().map(|tensor| (tensor.uid, state[&tensor.uid].clone())).collect()
    }
}

/// Reproducible random values of a graph's inputs: in [-2, 2), or in the range that the operand
/// allows. Variances and operands of roots and logarithms are positive; lengths, offsets and pages
/// are in range; flags have the values that are waited for; elements that share memory are equal.
///
/// # Errors
/// `Io` when host memory is exhausted.
pub fn random_values(graph: &OperationGraph, seed: u64) -> Result<Values> {
    let mut values = unrounded(graph.inputs(), seed)?;
    for operation in graph.operations() {
        let tensor = |uid: &i64| graph.tensor(*uid).expect("operations name tensors of the graph");
        let operands: Vec<&TensorDesc> = operation.inputs.iter().map(tensor).collect();
        let shape = match &operation.op {
            Op::Attention(op) => Some(op.shape(&operands)?),
            Op::AttentionBackward(op) => Some(op.shape(&operands)?),
            _ => None,
        };
        for (at, (slot, operand)) in operation.op.slots().inputs.iter().zip(&operands).enumerate() {
            let Some(own) = values.get_mut(&operand.uid) else { continue };
            match (&operation.op, &shape) {
                (_, Some(shape)) => attended(slot, operation, graph, shape, own),
                (Op::Pointwise(op), _) => own.iter_mut().for_each(|value| {
                    *value = pointwise(op.mode, at, *value);
                }),
                (Op::Rng(_), _) => {
                    own.iter_mut().for_each(|value| *value = drawn_from(slot, *value))
                }
                (Op::Recurrence(op), _) => {
                    let steps = operands[0].dims[1] / op.batch.max(1);
                    own.iter_mut().for_each(|value| *value = carried(slot, steps, *value));
                }
                (Op::PointwiseLoop(PointwiseLoop { frame, .. }), _)
                | (Op::ResidentLoop(ResidentLoop { frame, .. }), _)
                    if *slot == "count" =>
                {
                    own.fill(trips(frame, &operands));
                }
                (Op::CtcLoss(op), _) => classified(slot, op, &operands[0].dims, own),
                (Op::Matmul(_), _) => {
                    let [a, b] = [0, 1].map(|at| &operands[at].dims);
                    let extents = [a[a.len() - 2], b[b.len() - 1], a[a.len() - 1]];
                    own.iter_mut().for_each(|value| *value = extent(slot, extents, *value));
                }
                _ => own.iter_mut().for_each(|value| *value = statistic(slot, *value)),
            }
        }
    }
    set_awaited(graph, &mut values);
    for tensor in graph.inputs() {
        let own = values.get_mut(&tensor.uid).expect("every input has values");
        own.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
        tensor.stored(own);
    }
    Ok(values)
}

/// As many trips as every iterated tensor of a loop has elements for.
fn trips(frame: &LoopFrame, operands: &[&TensorDesc]) -> f64 {
    /// Trips of a loop that iterates over nothing.
    const USUAL: i64 = 8;
    let iterated = operands.iter().skip(1 + frame.states).take(frame.iterated.len());
    iterated.map(|tensor| tensor.dims[0]).min().unwrap_or(USUAL) as f64
}

/// Gives the flags among a graph's inputs the values that it waits for.
pub(crate) fn set_awaited(graph: &OperationGraph, values: &mut Values) {
    for operation in graph.operations() {
        let Op::Signal(Signal { mode: SignalMode::Wait, value, .. }) = operation.op else {
            continue;
        };
        if let Some(flag) = values.get_mut(&operation.inputs[0]) {
            flag.fill(value as f64);
        }
    }
}

/// Random numbers in [-2, 2), rounded only for integer tensors.
fn unrounded<'a>(tensors: impl Iterator<Item = &'a TensorDesc>, seed: u64) -> Result<Values> {
    let widened = |tensor: &TensorDesc| match tensor.dtype.is_float() {
        true => TensorDesc { dtype: DType::F64, ..tensor.clone() },
        false => tensor.clone(),
    };
    let tensors: Vec<TensorDesc> = tensors.map(widened).collect();
    random_tensors(tensors.iter(), seed)
}

/// Maps a random number in [-2, 2) to [0.5, 1.5].
fn positive(value: f64) -> f64 {
    (value.abs() + 1.0) / 2.0
}

/// Maps a random number in [-2, 2) to an operand of a pointwise mode: positive where the mode is
/// undefined for negative numbers.
fn pointwise(mode: Mode, slot: usize, value: f64) -> f64 {
    match (mode, slot) {
        (Mode::Log | Mode::Sqrt | Mode::Rsqrt | Mode::Pow, 0) => positive(value),
        // Away from 0, where the error of a quotient or remainder is unbounded.
        (Mode::Div | Mode::Mod, 1) => positive(value).copysign(value),
        _ => value,
    }
}

/// Maps a random number in [-2, 2) to a seed or an offset that 32 bits hold.
fn drawn_from(slot: &str, value: f64) -> f64 {
    let reach = if slot == "seed" { 1e9 } else { 1e3 };
    (value * reach).floor()
}

/// Maps a random number in [-2, 2) to an operand of a norm or of batch norm statistics.
fn statistic(slot: &str, value: f64) -> f64 {
    /// Number of elements per channel.
    const COUNT: f64 = 64.0;
    match slot {
        "epsilon" => positive(value) / 1024.0,
        "exp_avg_factor" => positive(value) / 4.0,
        "accum_count" => COUNT,
        // A mean in [-1, 1) and a mean square of at least 1.5, so that the variance is positive.
        "sum" => COUNT * value / 2.0,
        "sq_sum" => COUNT * (1.0 + positive(value)),
        "inv_variance" | "inv_std" | "saved_inv_std" | "prev_running_var" | "input_running_var" => {
            positive(value)
        }
        _ => value,
    }
}

/// Maps a random number in [-2, 2) to an operand of a recurrence.
fn carried(slot: &str, steps: i64, value: f64) -> f64 {
    match slot {
        "lengths" => ((value + 2.0) / 4.0 * (steps + 1) as f64).floor().min(steps as f64),
        "reset" => f64::from(u8::from(value > 1.75)),
        _ => value,
    }
}

/// Maps a random number in [-2, 2) to an operand of a `matmul`.
fn extent(slot: &str, [m, n, k]: [i64; 3], value: f64) -> f64 {
    let within = |extent: i64| (extent as f64 * (value.abs() + 2.0) / 4.0).round();
    match slot {
        "m_override" => within(m),
        "n_override" => within(n),
        "k_override" => within(k),
        _ => value,
    }
}

/// A number in [0, 1) that stands for a position, and whole numbers within bounds by it: random
/// integers are rounded already.
fn spread(at: usize) -> (f64, impl Fn(i64, i64) -> f64) {
    let part = ((at * 37 + 11) % 64) as f64 / 64.0;
    let within =
        move |begin: i64, end: i64| (begin as f64 + part * (end - begin + 1) as f64).floor();
    (part, within)
}

/// Maps random numbers in [-2, 2), in place, to values of an operand of a CTC loss, so that every
/// sequence has steps enough for its labels.
fn classified(slot: &str, op: &CtcLoss, dims: &[i64], values: &mut [f64]) {
    let [steps, classes] = [0, 2].map(|axis| dims[axis]);
    for (at, value) in values.iter_mut().enumerate() {
        let (_, within) = spread(at);
        let probability = positive(*value) / classes as f64;
        *value = match (slot, op.input) {
            ("x", CtcInput::Probabilities) => probability,
            ("x", CtcInput::LogProbabilities) => probability.ln(),
            ("labels", _) => {
                let label = within(0, classes - 2);
                label + f64::from(u8::from(label >= op.blank as f64))
            }
            ("label_lengths", _) => within(0, op.label_length_max.min(steps / 4)),
            ("input_lengths", _) => within(steps / 2, steps),
            _ => *value,
        };
    }
}

/// Maps random numbers in [-2, 2), in place, to values of an operand of attention.
fn attended(
    slot: &str,
    operation: &Operation,
    graph: &OperationGraph,
    shape: &AttentionShape,
    values: &mut [f64],
) {
    let rows = |operand: usize, axis: usize| {
        let tensor = graph.tensor(operation.inputs[operand]);
        tensor.expect("operations name tensors of the graph").dims[axis]
    };
    let count = values.len().max(2) as i64 - 1;
    for (at, value) in values.iter_mut().enumerate() {
        let (part, within) = spread(at);
        *value = match slot {
            "query_lengths" => within(shape.queries / 2, shape.queries),
            "key_lengths" => within(shape.keys / 2, shape.keys),
            "key_begin" => within(0, shape.keys / 4),
            "key_end" => within(shape.keys / 2, shape.keys),
            "page_table" => within(0, (rows(1, 0) - 1).max(0)),
            "query_offsets" => (at as i64 * rows(0, 2) / count) as f64,
            "key_offsets" => (at as i64 * rows(1, 2) / count) as f64,
            "mask" => f64::from(u8::from(part < 0.75)),
            "descale_q" | "descale_k" | "descale_v" => positive(*value),
            // About that of scores of the unit variance that random queries and keys have.
            "lse" => *value + (shape.keys.max(1) as f64).ln() + 0.5,
            _ => *value,
        };
    }
}
