//! Values of tensors on the host.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::TensorDesc;

/// Values of tensors by uid, in row-major order.
pub type Values = HashMap<i64, Vec<f64>>;

/// Reproducible random values in [-2, 2), rounded to each tensor's type, regardless of meaning.
///
/// # Errors
/// `Io` when host memory is exhausted.
pub(crate) fn random_tensors<'a>(
    tensors: impl Iterator<Item = &'a TensorDesc>,
    seed: u64,
) -> Result<Values> {
    // xorshift64* (Vigna 2016). Packs contain digests of outputs computed from these values.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f64 / (1u64 << 22) as f64 - 2.0
    };
    let mut values = |tensor: &TensorDesc| {
        let count = tensor.elements().unwrap_or(0) as usize;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| {
            Error::io(format!("failed to allocate {count} values on the host for {tensor}"))
        })?;
        values.extend((0..count).map(|_| tensor.dtype.round(next())));
        Ok((tensor.uid, values))
    };
    tensors.map(&mut values).collect()
}

/// Reproducible random values of tensors with a meaning: `plausible` maps a tensor, the index of an
/// element and a random number in [-2, 2) to the element's value, which is then rounded.
///
/// # Errors
/// `Io` when host memory is exhausted.
pub(crate) fn random_values_of(
    tensors: &[TensorDesc],
    seed: u64,
    plausible: impl Fn(&TensorDesc, usize, f64) -> f64,
) -> Result<Values> {
    // Not rounded yet: an i32 length, for instance, is computed from the random number.
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
