//! `result = alpha * computed + beta * before`, of convolutions and resamplings.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Real;
use crate::tensor::TensorDesc;

/// Checks that `alpha` and `beta` are numbers, in the precision in which they scale as well: `f64`
/// where the operation's math is, `f32` elsewhere.
///
/// # Errors
/// `BadParam` naming the factor.
pub(super) fn check_factors(name: &str, math: DType, factors: [Real; 2]) -> Result<()> {
    let scaling = if math == DType::F64 { DType::F64 } else { DType::F32 };
    for (factor, value) in ["alpha", "beta"].into_iter().zip(factors) {
        if !value.get().is_finite() {
            return Err(Error::bad_param(format!("{name}: {factor} is {}", value.get())));
        }
        if !scaling.round(value.get()).is_finite() {
            return Err(Error::bad_param(format!(
                "{name}: {factor} is {:e}, which is infinite in {scaling}",
                value.get()
            )));
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
