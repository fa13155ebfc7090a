//! Random values of a network's inputs.

use crate::dtype::DType;
use crate::error::Result;
use crate::frontend::{Values, random_values_of};
use crate::graph::RowLayout;
use crate::rnn::lower::{Extent, Network};
use crate::rnn::role::Role;
use crate::tensor::TensorDesc;

/// Reproducible random values of named inputs of a network, or of its training: states that neither
/// vanish nor saturate, lengths in range, a reset at every 16th step on average.
pub(super) fn random_values(network: &Network, inputs: &[TensorDesc], seed: u64) -> Result<Values> {
    let plausible = |tensor: &TensorDesc, at, value| value_of(network, tensor, at, value);
    random_values_of(inputs, seed, plausible)
}

/// Maps a random number in [-2, 2) to an element of a named input.
fn value_of(network: &Network, tensor: &TensorDesc, at: usize, value: f64) -> f64 {
    let Extent { batch, rows } = network.extent;
    let root = (network.rnn.hidden_size as f64).sqrt();
    match Role::ALL.into_iter().find(|role| role.name() == tensor.name) {
        Some(Role::Lengths) if network.rnn.layout == RowLayout::Packed => {
            (rows / batch + i64::from((at as i64) < rows % batch)) as f64
        }
        Some(Role::Lengths) => ((value + 2.0) / 4.0 * (rows / batch + 1) as f64).floor(),
        Some(Role::DropoutSeeds | Role::DropoutPositions) => (value * 1000.0).round(),
        Some(Role::Reset) => f64::from(u8::from(value > 1.75)),
        // Of a quantised network: numbers of the same size.
        Some(Role::Input | Role::HInitial) => match network.rnn.quantization {
            Some(own) => value / 2.0 * own.scale.get() + own.shift as f64,
            None => value / 2.0,
        },
        Some(_) => value / 2.0,
        None if tensor.dtype == DType::I8 => value / 2.0 * 127.0,
        None if tensor.name.contains("_scales_") => (1.0 + value / 8.0) / 127.0 / root,
        // The initial weights of `torch.nn.RNN`: uniform in +-1 / sqrt(hidden size).
        None => value / 2.0 / root,
    }
}
