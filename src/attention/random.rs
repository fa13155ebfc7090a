//! Random values of a layer call's inputs.

use crate::attention::extent::AttentionExtent;
use crate::error::Result;
use crate::frontend::{Values, random_values_of};
use crate::tensor::TensorDesc;

/// Reproducible random values of a call's named inputs, with lengths and windows in range.
pub(super) fn random_values(
    inputs: &[TensorDesc],
    extent: AttentionExtent,
    seed: u64,
) -> Result<Values> {
    random_values_of(inputs, seed, |tensor, _, value| value_of(extent, tensor, value))
}

/// Maps a random number in [-2, 2) to an element of a named input.
fn value_of(extent: AttentionExtent, tensor: &TensorDesc, value: f64) -> f64 {
    let AttentionExtent { queries, keys, .. } = extent;
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
