//! `alpha` and `beta` of convolutions as operations behind them.

use crate::engine::decompose::calculus::Calculus;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Convolution, MatmulMath, Op, Operation};

/// `result = alpha * convolution + beta * before`.
pub(super) fn scaled(calculus: &mut Calculus, op: &Convolution, operation: &Operation) {
    if op.is_unscaled() {
        return calculus.keep(Op::Convolution(op.clone()), operation);
    }
    let (result, operands) = (operation.outputs[0], operation.inputs[..2].to_vec());
    let dims = calculus.dims(result).to_vec();
    let sum = calculus.intermediate("sum", &dims, op.math.dtype());
    let convolution = Op::Convolution(op.unscaled());
    let outputs = vec![sum];
    calculus.operations.push(Operation { op: convolution, inputs: operands, outputs });
    calculus.math = if op.math == MatmulMath::F64 { Math::F64 } else { Math::F32 };
    let alpha = op.alpha.get();
    match operation.inputs.get(2) {
        Some(before) => {
            let scaling = Pointwise::new(Mode::Add).alphas(alpha, op.beta.get());
            calculus.apply_into(scaling, &[sum, *before], result);
        }
        None => {
            let scaling = Pointwise::new(Mode::Identity).alphas(alpha, 1.0);
            calculus.apply_into(scaling, &[sum], result);
        }
    }
}
