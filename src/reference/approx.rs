//! Running error analysis (Wilkinson; Higham, "Accuracy and Stability of Numerical Algorithms",
//! 3.3): numbers that know how far an implementation may be off, whose arithmetic adds up what each
//! operation may lose.

use crate::dtype::DType;

/// A value as the reference computes it, and the most that an implementation's may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Approx {
    pub value: f64,
    pub error: f64,
}

/// Arithmetic in one precision. A result may be off by one unit in the last place, twice what
/// rounding to nearest loses: fused, reordered and truncating implementations stay within it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arithmetic {
    dtype: DType,
}

impl Approx {
    pub fn exact(value: f64) -> Approx {
        Approx { value, error: 0.0 }
    }

    /// The value rounded to its storage, and how far off what is stored may be.
    pub fn stored(self, dtype: DType) -> Approx {
        let Approx { value, error } = self;
        let rounded = dtype.round(value);
        if error == 0.0 {
            return Approx::exact(rounded);
        }
        if !(value.abs() + error).is_finite() {
            let same = value.is_infinite() && error.is_finite();
            return Approx { value: rounded, error: if same { 0.0 } else { f64::INFINITY } };
        }
        let reach = dtype.round(value.abs() + error);
        let last_place = match dtype {
            DType::Bool => 1.0,
            _ if dtype.integer_range().is_some() => 1.0,
            _ => (reach * dtype.epsilon()).max(dtype.smallest()),
        };
        // An integer is right when the real number is nowhere near the next boundary.
        let stays = |delta: f64| dtype.round(value + delta) == rounded;
        match dtype.is_float() {
            false if stays(error) && stays(-error) => Approx::exact(rounded),
            _ => Approx { value: rounded, error: error + last_place },
        }
    }

    pub fn neg(self) -> Approx {
        Approx { value: -self.value, ..self }
    }

    pub fn abs(self) -> Approx {
        Approx { value: self.value.abs(), ..self }
    }
}

impl Arithmetic {
    pub fn new(dtype: DType) -> Arithmetic {
        Arithmetic { dtype }
    }

    /// An operand, rounded to the precision that is computed in.
    pub fn operand(self, value: f64, error: f64) -> Approx {
        self.rounded(Approx { value, error })
    }

    fn rounded(self, from: Approx) -> Approx {
        let value = self.dtype.round(from.value);
        Approx { value, error: from.error + (value - from.value).abs() }
    }

    /// A result that is `value` in exact arithmetic on operands whose errors move it by `error`.
    fn result(self, value: f64, error: f64) -> Approx {
        let own = (value.abs() + error) * self.dtype.epsilon() + self.dtype.smallest();
        Approx { value, error: error + own }
    }

    pub fn add(self, a: Approx, b: Approx) -> Approx {
        self.result(a.value + b.value, a.error + b.error)
    }

    pub fn sub(self, a: Approx, b: Approx) -> Approx {
        self.add(a, b.neg())
    }

    pub fn mul(self, a: Approx, b: Approx) -> Approx {
        let error = a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error;
        self.result(a.value * b.value, error)
    }

    /// A quotient; without a bound where the divisor may be 0.
    pub fn div(self, a: Approx, b: Approx) -> Approx {
        let value = a.value / b.value;
        let least = b.value.abs() - b.error;
        if least <= 0.0 {
            return Approx { value, error: f64::INFINITY };
        }
        // Device division and its approximations are within 2 units in the last place.
        let error = (a.error + value.abs() * b.error) / least;
        self.result(value, error + value.abs() * self.dtype.epsilon())
    }

    /// A root; the error is that of the end of the interval that moves it more.
    pub fn sqrt(self, a: Approx) -> Approx {
        let value = a.value.sqrt();
        let error = value - (a.value - a.error).max(0.0).sqrt();
        self.result(value, error)
    }

    /// One over a root: `rsqrt.approx` and a division of a root are within 2 units.
    pub fn rsqrt(self, a: Approx) -> Approx {
        self.div(Approx::exact(1.0), self.sqrt(a))
    }

    /// A sum in any order: `n - 1` additions, of which each may lose a unit of all magnitudes.
    pub fn sum(self, terms: impl IntoIterator<Item = Approx>) -> Approx {
        let (mut value, mut compensation, mut magnitude, mut error, mut count) =
            (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64, 0_u64);
        for term in terms {
            // Neumaier's summation: the reference's own error does not matter.
            let next = value + term.value;
            compensation += match value.abs() >= term.value.abs() {
                true => (value - next) + term.value,
                false => (term.value - next) + value,
            };
            value = next;
            magnitude += term.value.abs() + term.error;
            error += term.error;
            count += 1;
        }
        // Infinities have no compensation.
        let value = if compensation.is_nan() { value } else { value + compensation };
        let steps = count.saturating_sub(1) as f64;
        let own = steps * (self.dtype.epsilon() * magnitude + self.dtype.smallest());
        // What overflows on the way does not come back.
        let overflows = self.dtype.round(magnitude + own).is_infinite() && value.is_finite();
        Approx { value, error: if overflows { f64::INFINITY } else { error + own } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums and products in `f32`, in several orders, stay within the bounds.
    #[test]
    fn bounds_hold_for_single_precision() {
        let arithmetic = Arithmetic::new(DType::F32);
        let mut state = 1_u64;
        let mut next = || {
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        for count in [1, 2, 3, 100, 1000] {
            let values: Vec<(f32, f32)> = (0..count).map(|_| (next(), next())).collect();
            let exact = |x: f32| Approx::exact(x.into());
            let terms = values.iter().map(|(a, b)| arithmetic.mul(exact(*a), exact(*b)));
            let bound = arithmetic.sum(terms);
            let forwards: f32 = values.iter().map(|(a, b)| a * b).sum();
            let backwards: f32 = values.iter().rev().map(|(a, b)| a * b).sum();
            let fused = values.iter().fold(0.0, |sum, (a, b)| a.mul_add(*b, sum));
            for got in [forwards, backwards, fused] {
                let error = (f64::from(got) - bound.value).abs();
                assert!(error <= bound.error, "{count}: {error} {bound:?}");
            }
            // It says no more than the theory: each product and each addition loses a unit.
            let magnitude: f64 = values.iter().map(|(a, b)| f64::from((a * b).abs())).sum();
            let most = 1.001 * count as f64 * f64::from(f32::EPSILON) * magnitude + 1e-40;
            assert!(bound.error <= most, "{count}: {bound:?} {most}");
        }
    }

    #[test]
    fn roots_and_quotients_move_with_their_operands() {
        let arithmetic = Arithmetic::new(DType::F64);
        let x = Approx { value: 4.0, error: 1.0 };
        let root = arithmetic.sqrt(x);
        assert!(root.error >= 5.0_f64.sqrt() - 2.0 && root.error >= 2.0 - 3.0_f64.sqrt());
        let quotient = arithmetic.div(Approx::exact(1.0), x);
        assert!(quotient.error >= 1.0 / 3.0 - 0.25, "{quotient:?}");
        assert_eq!(arithmetic.div(x, Approx { value: 0.5, error: 0.5 }).error, f64::INFINITY);
    }

    #[test]
    fn storage_adds_its_rounding() {
        assert_eq!(Approx::exact(1.0 / 3.0).stored(DType::F16).error, 0.0);
        let near = Approx { value: 2.4, error: 0.05 };
        assert_eq!(near.stored(DType::I32), Approx::exact(2.0));
        assert_eq!(Approx { value: 2.4, error: 0.2 }.stored(DType::I32).error, 1.2);
        // 70000 is beyond f16; 1 more or less does not change that, but the bound is not so fine.
        let over = Approx { value: 70_000.0, error: 1.0 }.stored(DType::F16);
        assert_eq!((over.value, over.error), (f64::INFINITY, f64::INFINITY));
    }
}
