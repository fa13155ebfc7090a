//! `result = alpha * computed + beta * before`, of convolutions and resamplings.

use crate::error::{Error, Result};
use crate::expr::Real;
use crate::tensor::TensorDesc;

/// Checks that `alpha` and `beta` are numbers.
///
/// # Errors
/// `BadParam` naming the factor.
pub(super) fn check_factors(name: &str, factors: [Real; 2]) -> Result<()> {
    for (factor, value) in ["alpha", "beta"].into_iter().zip(factors) {
        if !value.get().is_finite() {
            return Err(Error::bad_param(format!("{name}: {factor} is {}", value.get())));
        }
    }
    Ok(())
}

/// Checks that what a result is added to has its dimensions.
///
/// # Errors
/// `BadParam` naming both.
pub(super) fn check_before(
    name: &str,
    before: Option<&TensorDesc>,
    result: &TensorDesc,
) -> Result<()> {
    match before {
        Some(before) if before.dims != result.dims => Err(Error::bad_param(format!(
            "{name}: `{}` is {:?}, what it is added to, `{}`, is {:?}",
            before.name, before.dims, result.name, result.dims
        ))),
        _ => Ok(()),
    }
}
