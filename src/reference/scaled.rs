//! `alpha * computed + beta * before`, of convolutions and resamplings.

use crate::dtype::DType;
use crate::expr::{Math, Mode, Pointwise, Real};
use crate::reference::approx::Approx;
use crate::reference::expected::{Expected, Operand};
use crate::reference::pointwise;
use crate::tensor::TensorDesc;

/// What is computed in this precision, scaled and stored: rounded once where `alpha` is 1 and
/// `beta` 0, else to the precision first.
pub(super) fn scaled(
    computed: impl Iterator<Item = Approx>,
    result: &TensorDesc,
    math: DType,
    [alpha, beta]: [Real; 2],
    before: Option<&Operand<'_>>,
) -> Expected {
    let reads_result = beta.get() != 0.0;
    if alpha.get() == 1.0 && !reads_result {
        return Expected::stored(computed, result);
    }
    let sum = TensorDesc { dtype: math, ..result.clone() };
    let sums = Expected::stored(computed, &sum);
    let mut given = vec![Operand { desc: &sum, expected: &sums }];
    given.extend(before.filter(|_| reads_result));
    let math = if math == DType::F64 { Math::F64 } else { Math::F32 };
    let mode = if reads_result { Mode::Add } else { Mode::Identity };
    let beta = if reads_result { beta.get() } else { 1.0 };
    let scaling = Pointwise::new(mode).alphas(alpha.get(), beta).math(math);
    pointwise::evaluate(&scaling, &given, result)
}
