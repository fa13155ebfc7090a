//! Random numbers.

use crate::dtype::DType;
use crate::expr::{Distribution, Math, Real, position_from, random_words};
use crate::graph::Rng;
use crate::reference::approx::Approx;
use crate::reference::{Expected, Operand};
use crate::tensor::TensorDesc;

pub(super) fn evaluate(op: &Rng, operands: &[Operand<'_>], output: &TensorDesc) -> Expected {
    let number = |operand: &Operand<'_>| operand.expected.values[0] as i64;
    let mut given = operands.iter().map(number);
    let mut next = || given.next().expect("the operation was checked");
    let seed = op.seed.unwrap_or_else(&mut next);
    let offset = next();
    let subsequence = op.subsequence.then(next);
    let dtype = op.math.dtype();
    let element = |position: i64| {
        let position = position_from(subsequence, position as u64);
        let words = random_words(seed, offset, position);
        let value = op.distribution.value(op.math, words, position);
        match op.distribution {
            Distribution::Normal { mean, deviation } => {
                let spread = value - dtype.round(mean.get());
                let error = error_of_normal(op.math, spread, deviation);
                Approx { value, error }.stored(dtype)
            }
            _ => Approx::exact(value),
        }
    };
    let count = output.elements().unwrap_or(0);
    // A number of the math precision is rounded once more to another type.
    let twice = |of: Approx| if output.dtype == dtype { of } else { of.stored(output.dtype) };
    let elements = (0..count).map(|position| twice(element(position)));
    let (values, bounds) = elements.map(|of| (output.dtype.round(of.value), of.error)).unzip();
    Expected { values, bounds }
}

/// Error of a normal number before its last rounding, `spread` from the mean. CUDA C++ Programming
/// Guide, mathematical functions: `log` is within 1 ulp, of which the square root keeps half and
/// adds half; `sinpi` and `cospi` are within 1 ulp in f32 and 2 in f64; their product adds half an
/// ulp. Half an ulp more covers second-order terms.
fn error_of_normal(math: Math, spread: f64, deviation: Real) -> f64 {
    let ulps = if math == Math::F64 { 4.0 } else { 3.0 };
    let dtype: DType = math.dtype();
    spread.abs() * ulps * dtype.epsilon() + deviation.get() * dtype.smallest()
}
