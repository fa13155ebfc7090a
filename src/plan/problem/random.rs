//! Random values that tensors with a meaning may have: lengths in range, pages that are there.

use crate::attention::{AttentionCall, AttentionExtent};
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::Mode;
use crate::graph::{AttentionShape, Op, Operation, OperationGraph, RowLayout};
use crate::plan::problem::values::{Values, random_tensors};
use crate::rnn::{Extent, Network, Role};
use crate::tensor::TensorDesc;

/// Reproducible values for every input of a graph: in [-2, 2), or what an operand means where that
/// is something else. Variances are positive, lengths and pages are there, nobody takes the root of
/// a negative number; elements that share memory are equal.
///
/// # Errors
/// `Io` when there is not enough host memory.
pub fn random_values(graph: &OperationGraph, seed: u64) -> Result<Values> {
    let mut values = unrounded(graph.inputs(), seed)?;
    for operation in graph.operations() {
        let tensor = |uid: &i64| graph.tensor(*uid).expect("operations name tensors of the graph");
        let operands: Vec<&TensorDesc> = operation.inputs.iter().map(tensor).collect();
        let shape = match &operation.op {
            Op::Attention(op) => Some(op.shape(&operands)?),
            _ => None,
        };
        for (at, (slot, operand)) in operation.op.slots().inputs.iter().zip(&operands).enumerate() {
            let Some(own) = values.get_mut(&operand.uid) else { continue };
            match (&operation.op, &shape) {
                (_, Some(shape)) => attended(slot, operation, graph, shape, own),
                (Op::Pointwise(op), _) => own.iter_mut().for_each(|value| {
                    *value = pointwise(op.mode, at, *value);
                }),
                (Op::Recurrence(op), _) => {
                    let steps = operands[0].dims[1] / op.batch.max(1);
                    own.iter_mut().for_each(|value| *value = carried(slot, steps, *value));
                }
                (Op::Matmul(_), _) => {
                    let [a, b] = [0, 1].map(|at| &operands[at].dims);
                    let extents = [a[a.len() - 2], b[b.len() - 1], a[a.len() - 1]];
                    own.iter_mut().for_each(|value| *value = extent(slot, extents, *value));
                }
                _ => own.iter_mut().for_each(|value| *value = statistic(slot, *value)),
            }
        }
    }
    for tensor in graph.inputs() {
        let own = values.get_mut(&tensor.uid).expect("every input has values");
        own.iter_mut().for_each(|value| *value = tensor.dtype.round(*value));
        tensor.stored(own);
    }
    Ok(values)
}

/// Random numbers in [-2, 2), as integers where a tensor holds such.
fn unrounded<'a>(tensors: impl Iterator<Item = &'a TensorDesc>, seed: u64) -> Result<Values> {
    let widened = |tensor: &TensorDesc| match tensor.dtype.is_float() {
        true => TensorDesc { dtype: DType::F64, ..tensor.clone() },
        false => tensor.clone(),
    };
    let tensors: Vec<TensorDesc> = tensors.map(widened).collect();
    random_tensors(tensors.iter(), seed)
}

/// A value in [0.5, 1.5] that keeps what is random about one in [-2, 2).
fn positive(value: f64) -> f64 {
    (value.abs() + 1.0) / 2.0
}

/// What an operand of a mode means that has no result for negative numbers.
fn pointwise(mode: Mode, slot: usize, value: f64) -> f64 {
    match (mode, slot) {
        (Mode::Log | Mode::Sqrt | Mode::Rsqrt | Mode::Pow, 0) => positive(value),
        // Away from 0: quotients and remainders are not all noise.
        (Mode::Div | Mode::Mod, 1) => positive(value).copysign(value),
        _ => value,
    }
}

/// What an operand of a norm or of its parts means.
fn statistic(slot: &str, value: f64) -> f64 {
    /// Elements of every channel.
    const COUNT: f64 = 64.0;
    match slot {
        "epsilon" => positive(value) / 1024.0,
        "exp_avg_factor" => positive(value) / 4.0,
        "accum_count" => COUNT,
        // A mean in [-1, 1) and a square of it that leaves a variance.
        "sum" => COUNT * value / 2.0,
        "sq_sum" => COUNT * (1.0 + positive(value)),
        "inv_variance" | "inv_std" | "saved_inv_std" | "prev_running_var" | "input_running_var" => {
            positive(value)
        }
        _ => value,
    }
}

/// What an operand of a recurrence means.
fn carried(slot: &str, steps: i64, value: f64) -> f64 {
    match slot {
        "lengths" => ((value + 2.0) / 4.0 * (steps + 1) as f64).floor().min(steps as f64),
        "reset" => f64::from(u8::from(value > 1.75)),
        _ => value,
    }
}

/// What an operand of a product means.
fn extent(slot: &str, [m, n, k]: [i64; 3], value: f64) -> f64 {
    let within = |extent: i64| (extent as f64 * (value.abs() + 2.0) / 4.0).round();
    match slot {
        "m_override" => within(m),
        "n_override" => within(n),
        "k_override" => within(k),
        _ => value,
    }
}

/// Makes random numbers in [-2, 2) values of an attention's operand.
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
        // What integers were rounded from is gone: their position is as good.
        let part = ((at * 37 + 11) % 64) as f64 / 64.0;
        let within =
            |begin: i64, end: i64| (begin as f64 + part * (end - begin + 1) as f64).floor();
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
            _ => *value,
        };
    }
}

/// Plausible random values of a network's named inputs, by uid.
pub(in crate::plan) fn of_network(network: &Network, seed: u64) -> Result<Values> {
    rounded(&network.named_inputs(), seed, |tensor, at, value| {
        network_value(network, tensor, at, value)
    })
}

/// Plausible random values of an attention layer's named inputs, by uid.
pub(in crate::plan) fn of_layer(call: &AttentionCall, seed: u64) -> Result<Values> {
    rounded(&call.named_inputs(), seed, |tensor, _, value| layer_value(call, tensor, value))
}

/// What random numbers in [-2, 2) become, element by element.
fn rounded(
    tensors: &[TensorDesc],
    seed: u64,
    plausible: impl Fn(&TensorDesc, usize, f64) -> f64,
) -> Result<Values> {
    // Unrounded: what they become depends on the tensor.
    let raw = |tensor: &TensorDesc| TensorDesc { dtype: DType::F64, ..tensor.clone() };
    let raws: Vec<TensorDesc> = tensors.iter().map(raw).collect();
    let mut values = random_tensors(raws.iter(), seed)?;
    for tensor in tensors {
        let own = values.get_mut(&tensor.uid).expect("every tensor has values");
        for (at, value) in own.iter_mut().enumerate() {
            *value = tensor.dtype.round(plausible(tensor, at, *value));
        }
    }
    Ok(values)
}

/// What a random number in [-2, 2) stands for in a tensor of a network.
fn network_value(network: &Network, tensor: &TensorDesc, at: usize, value: f64) -> f64 {
    let Extent { batch, rows } = network.extent;
    match Role::ALL.into_iter().find(|role| role.name() == tensor.name) {
        Some(Role::Lengths) if network.rnn.layout == RowLayout::Packed => {
            (rows / batch + i64::from((at as i64) < rows % batch)) as f64
        }
        Some(Role::Lengths) => ((value + 2.0) / 4.0 * (rows / batch + 1) as f64).floor(),
        Some(Role::Reset) => f64::from(u8::from(value > 1.75)),
        Some(_) => value / 2.0,
        // What torch draws weights from.
        None => value / 2.0 / (network.rnn.hidden_size as f64).sqrt(),
    }
}

/// What a random number in [-2, 2) stands for in a tensor of an attention layer.
fn layer_value(call: &AttentionCall, tensor: &TensorDesc, value: f64) -> f64 {
    let AttentionExtent { queries, keys, .. } = call.layer.extent;
    let part = (value + 2.0) / 4.0;
    let within = |begin: i64, end: i64| (begin as f64 + part * (end - begin + 1) as f64).floor();
    match tensor.name.as_str() {
        "query_lengths" => within(queries / 2, queries),
        "key_lengths" => within(keys / 2, keys),
        "low_window" => within(0, keys / 4),
        "high_window" => within(keys / 2, keys),
        name if name.starts_with("w_") => value / 2.0 / (tensor.dims[2] as f64).sqrt(),
        _ => value / 2.0,
    }
}
