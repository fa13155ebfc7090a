//! Values of tensors on the host.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::tensor::TensorDesc;

/// Values of tensors by uid, in row-major order.
pub type Values = HashMap<i64, Vec<f64>>;

/// Reproducible values in [-2, 2) for tensors, whatever they mean.
///
/// # Errors
/// `Io` when there is not enough host memory.
pub(in crate::plan) fn random_tensors<'a>(
    tensors: impl Iterator<Item = &'a TensorDesc>,
    seed: u64,
) -> Result<Values> {
    // xorshift64*: any fixed generator will do, and canaries depend on this one.
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
