//! Numbers as 8-bit integers, and sums of products of those.

use crate::dtype::DType;
use crate::graph::Quantization;
use crate::reference::approx::{Approx, Arithmetic};

/// A quantization, whose conversions are computed in one precision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantized {
    own: Quantization,
    dtype: DType,
    arithmetic: Arithmetic,
}

impl Quantized {
    pub fn new(own: Quantization, dtype: DType, arithmetic: Arithmetic) -> Quantized {
        Quantized { own, dtype, arithmetic }
    }

    /// The integer that stands for a number.
    pub fn stored(self, number: Approx) -> Approx {
        let (arithmetic, scale) = (self.arithmetic, self.own.scale.get());
        let scaled = arithmetic.mul(number, arithmetic.operand(scale, 0.0));
        let sum = arithmetic.add(scaled, Approx::exact(self.zero()));
        // Where no step rounds, a tie is certain.
        let is_exact = |value: f64| self.arithmetic.operand(value, 0.0) == Approx::exact(value);
        let product = number.value * scale;
        let certain = number.error == 0.0 && [scale, product, sum.value].into_iter().all(is_exact);
        if certain { Approx::exact(sum.value) } else { sum }.stored(self.dtype)
    }

    /// The integer that stands for 0.
    pub fn zero(self) -> f64 {
        self.own.shift as f64
    }

    /// What an integer stands for.
    pub fn number(self, stored: f64) -> Approx {
        let shifted = Approx::exact(stored - self.zero());
        self.arithmetic.mul(shifted, self.unit())
    }

    fn unit(self) -> Approx {
        let unit = self.own.unit();
        Approx { value: unit, error: unit * self.arithmetic.epsilon() }
    }

    /// The sum of products of integer weights with shifted integers, without rounding.
    pub fn sum(self, weights: impl Iterator<Item = f64>, integers: &[Approx]) -> Approx {
        let (mut value, mut error) = (0.0, 0.0);
        for (weight, of) in weights.zip(integers) {
            value += weight * (of.value - self.zero());
            error += weight.abs() * of.error;
        }
        Approx { value, error }
    }

    /// What a sum stands for, where 1 in the weights stands for `scale`.
    pub fn gate(self, sum: Approx, scale: Approx) -> Approx {
        let arithmetic = self.arithmetic;
        let sum = arithmetic.operand(sum.value, sum.error);
        arithmetic.mul(sum, arithmetic.mul(scale, self.unit()))
    }
}
