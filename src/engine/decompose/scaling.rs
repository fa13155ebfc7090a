//! `alpha` and `beta` of convolutions and resamplings as an operation behind them.

use crate::dtype::DType;
use crate::engine::decompose::calculus::Calculus;
use crate::expr::{Math, Mode, Pointwise, Real};
use crate::graph::{Convolution, Op, Operation};

/// An operation without factors, and the factors that it had.
pub(super) struct Scaled {
    /// The operation, which computes what is scaled.
    pub(super) op: Op,
    /// Of its result, and of what the result's memory held.
    pub(super) factors: [Real; 2],
}

impl Scaled {
    pub(super) fn of(op: &Convolution) -> Scaled {
        Scaled { op: Op::Convolution(op.unscaled()), factors: [op.alpha, op.beta] }
    }

    /// `result = alpha * computed + beta * before`, where `before` is the last of the operands.
    pub(super) fn write(self, calculus: &mut Calculus, operation: &Operation) {
        let Scaled { op, factors: [alpha, beta] } = self;
        let own = op.slots().inputs.len();
        let (operands, before) = operation.inputs.split_at(own);
        if alpha.get() == 1.0 && before.is_empty() {
            return calculus.keep(op, operation);
        }
        let mut outputs = operation.outputs.clone();
        let result = outputs[0];
        let dims = calculus.dims(result).to_vec();
        let math = op.math();
        outputs[0] = calculus.intermediate("sum", &dims, math);
        let sum = outputs[0];
        calculus.operations.push(Operation { op, inputs: operands.to_vec(), outputs });
        calculus.math = if math == DType::F64 { Math::F64 } else { Math::F32 };
        match before {
            [before, ..] => {
                let scaling = Pointwise::new(Mode::Add).alphas(alpha.get(), beta.get());
                calculus.apply_into(scaling, &[sum, *before], result);
            }
            [] => {
                let scaling = Pointwise::new(Mode::Identity).alphas(alpha.get(), 1.0);
                calculus.apply_into(scaling, &[sum], result);
            }
        }
    }
}
