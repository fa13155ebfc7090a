//! Running error analysis (Wilkinson; Higham, "Accuracy and Stability of Numerical Algorithms",
//! 3.3): values with an error bound for implementations, and arithmetic that accumulates the
//! bounds.

use crate::dtype::DType;

/// A reference value and the maximum deviation of an implementation.
///
/// An infinite error admits any number including infinities; [`ANYTHING`] admits NaN as well. A NaN
/// value with a finite error is certain: an implementation must return NaN too.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Approx {
    pub value: f64,
    pub error: f64,
}

/// Error bound of a result that may be anything, NaN included. With every other bound, an
/// implementation may return NaN only where the reference does.
pub const ANYTHING: f64 = f64::NAN;

/// Arithmetic in one precision. A result may be off by one ulp, twice the error of
/// round-to-nearest, which covers fused, reordered and truncating implementations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arithmetic {
    dtype: DType,
}

impl Approx {
    pub fn exact(value: f64) -> Approx {
        Approx { value, error: 0.0 }
    }

    /// Rounds to a storage type, including the error of the stored value.
    pub fn stored(self, dtype: DType) -> Approx {
        let Approx { value, error } = self;
        let rounded = dtype.round(value);
        if error == 0.0 || self.is_certainly_nan() {
            return Approx::exact(rounded);
        }
        if error.is_nan() {
            return Approx { value: rounded, error: ANYTHING };
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
        // An integer is certain if no rounding boundary lies within the error.
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

    /// A value without any error bound.
    pub fn anything(value: f64) -> Approx {
        Approx { value, error: ANYTHING }
    }

    /// Whether an implementation must return NaN.
    pub fn is_certainly_nan(self) -> bool {
        self.value.is_nan() && !self.error.is_nan()
    }

    /// End points of the interval of an implementation's value, the value itself, and 0 if it lies
    /// inside.
    pub fn ends(self) -> impl Iterator<Item = f64> + Clone {
        let Approx { value, error } = self;
        let (below, above) = match error.is_finite() {
            true => (value - error, value + error),
            false => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let points = [
            Some(value),
            Some(below).filter(|_| error != 0.0),
            Some(above).filter(|_| error != 0.0),
            Some(0.0).filter(|_| below < 0.0 && above > 0.0),
            Some(f64::NAN).filter(|_| error.is_nan()),
        ];
        points.into_iter().flatten()
    }
}

impl Arithmetic {
    pub fn new(dtype: DType) -> Arithmetic {
        Arithmetic { dtype }
    }

    /// Distance from 1 to the next larger number.
    pub fn epsilon(self) -> f64 {
        self.dtype.epsilon()
    }

    /// An operand, rounded to the math precision.
    pub fn operand(self, value: f64, error: f64) -> Approx {
        self.rounded(Approx { value, error })
    }

    fn rounded(self, from: Approx) -> Approx {
        let value = self.dtype.round(from.value);
        match value == from.value || from.value.is_nan() {
            true => from,
            false => Approx { value, error: from.error + (value - from.value).abs() },
        }
    }

    /// A result with exact value `value` and propagated operand error `error`.
    fn result(self, value: f64, error: f64) -> Approx {
        let own = (value.abs() + error) * self.dtype.epsilon() + self.dtype.smallest();
        Approx { value, error: error + own }
    }

    /// Whether an implementation's value may overflow the type.
    pub fn may_be_infinite(self, of: Approx) -> bool {
        !self.dtype.round(of.value.abs() + of.error).is_finite()
    }

    /// Result of an operation on operands that may be infinite or NaN: `result`, computed for
    /// finite operands, adjusted by evaluating the operation at the end points of their intervals,
    /// rounded and not.
    fn beyond(
        self,
        operands: [Approx; 2],
        operation: impl Fn(f64, f64) -> f64,
        result: Approx,
    ) -> Approx {
        let ends = |of: Approx| of.ends().flat_map(|end| [end, self.dtype.round(end)]);
        let [a, b] = operands.map(ends);
        let results: Vec<f64> =
            a.flat_map(|a| b.clone().map(move |b| (a, b))).map(|(a, b)| operation(a, b)).collect();
        let first = results[0];
        if results.iter().all(|of| of.is_nan()) {
            return Approx::exact(f64::NAN);
        }
        if results.iter().any(|of| of.is_nan()) {
            return Approx::anything(result.value);
        }
        if results.iter().all(|of| *of == first) {
            return Approx::exact(first);
        }
        // An overflowing result keeps its bound: its sign is known.
        let known = result.error.is_finite() && self.may_be_infinite(result);
        let opposite = |of: &f64| of.is_infinite() && of.signum() != result.value.signum();
        let error = match known && !results.iter().any(opposite) {
            true => result.error,
            false => f64::INFINITY,
        };
        Approx { value: result.value, error }
    }

    fn binary(
        self,
        operands: [Approx; 2],
        operation: impl Fn(f64, f64) -> f64,
        error: f64,
    ) -> Approx {
        let [a, b] = operands;
        let result = self.result(operation(a.value, b.value), error);
        match operands.into_iter().any(|of| self.may_be_infinite(of)) {
            true => self.beyond(operands, operation, result),
            false => result,
        }
    }

    pub fn add(self, a: Approx, b: Approx) -> Approx {
        self.binary([a, b], |a, b| a + b, a.error + b.error)
    }

    pub fn sub(self, a: Approx, b: Approx) -> Approx {
        self.add(a, b.neg())
    }

    pub fn mul(self, a: Approx, b: Approx) -> Approx {
        let error = a.value.abs() * b.error + b.value.abs() * a.error + a.error * b.error;
        self.binary([a, b], |a, b| a * b, error)
    }

    /// Quotient: unbounded where the divisor may be 0, and possibly NaN where the dividend may be 0
    /// too.
    pub fn div(self, a: Approx, b: Approx) -> Approx {
        let value = a.value / b.value;
        let least = b.value.abs() - b.error;
        if least.is_nan() || least <= 0.0 {
            let result = Approx { value, error: f64::INFINITY };
            return self.beyond([a, b], |a, b| a / b, result);
        }
        // Device division and its approximations are within 2 ulp.
        let error = (a.error + value.abs() * b.error) / least;
        self.binary([a, b], |a, b| a / b, error + value.abs() * self.dtype.epsilon())
    }

    /// Square root, with the error at the interval end that moves it more. The operand is
    /// nonnegative in every implementation: a sum of squares, possibly with a positive term.
    pub fn sqrt(self, a: Approx) -> Approx {
        let value = a.value.sqrt();
        if self.may_be_infinite(a) || value.is_nan() {
            let least = if a.value < 0.0 { f64::NEG_INFINITY } else { 0.0 };
            let root = |a: f64, _| a.max(least).sqrt();
            let root = |a: f64, b| if a.is_nan() { a } else { root(a, b) };
            let result = Approx { value, error: f64::INFINITY };
            return self.beyond([a, Approx::exact(0.0)], root, result);
        }
        let error = value - (a.value - a.error).max(0.0).sqrt();
        self.result(value, error)
    }

    /// Reciprocal square root: `rsqrt.approx` and a division by a square root are within 2 ulp.
    pub fn rsqrt(self, a: Approx) -> Approx {
        self.div(Approx::exact(1.0), self.sqrt(a))
    }

    /// A variance computed as a difference: a negative number is clamped to 0; NaN propagates, and
    /// negative infinity, a square of the mean that overflowed, is NaN.
    pub fn variance(self, a: Approx) -> Approx {
        let clamped = |value: f64| match value {
            f64::NEG_INFINITY => f64::NAN,
            negative if negative < 0.0 => 0.0,
            value => value,
        };
        let result = Approx { value: clamped(a.value), ..a };
        match self.may_be_infinite(a) {
            true => self.beyond([a, Approx::exact(0.0)], |a, _| clamped(a), result),
            false => result,
        }
    }

    /// Sum in any order: `n - 1` additions, each off by up to one ulp of the sum of magnitudes.
    pub fn sum(self, terms: impl IntoIterator<Item = Approx>) -> Approx {
        let (mut value, mut compensation, mut error, mut count) = (0.0_f64, 0.0_f64, 0.0_f64, 0);
        let (mut above, mut below) = (0.0_f64, 0.0_f64);
        let (mut nan, mut infinite) = (false, [false; 2]);
        for term in terms {
            // Neumaier's summation keeps the reference's own error negligible.
            let next = value + term.value;
            compensation += match value.abs() >= term.value.abs() {
                true => (value - next) + term.value,
                false => (term.value - next) + value,
            };
            value = next;
            above += (term.value + term.error).max(0.0);
            below += (term.error - term.value).max(0.0);
            error += term.error;
            nan |= term.is_certainly_nan();
            if term.value.is_infinite() && term.error.is_finite() {
                infinite[usize::from(term.value < 0.0)] = true;
            }
            count += 1;
        }
        if nan || infinite == [true; 2] {
            return Approx::exact(f64::NAN);
        }
        // Infinities have no compensation.
        let value = if compensation.is_nan() { value } else { value + compensation };
        if error.is_nan() {
            return Approx::anything(value);
        }
        let steps = f64::from(count).max(1.0) - 1.0;
        let own =
            |magnitude: f64| steps * (self.dtype.epsilon() * magnitude + self.dtype.smallest());
        let overflows = |reach: f64| self.dtype.round(reach + own(reach)).is_infinite();
        let result = Approx { value, error: error + own(above + below) };
        match [above, below].map(overflows) {
            [false, false] => result,
            // Partial sums may be infinities of both signs.
            [true, true] if count > 1 => Approx::anything(value),
            _ if value.is_infinite() && error.is_finite() => Approx::exact(value),
            _ if self.may_be_infinite(result) => result,
            // An intermediate overflow is not recovered.
            _ => Approx { value, error: f64::INFINITY },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f32` sums and dot products in several orders are within the bounds.
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
            // The bound is tight: one ulp per multiplication and per addition.
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

    /// Infinities and NaN are certain where every implementation returns them; bounds admit NaN
    /// only where some implementation does.
    #[test]
    fn what_is_not_finite_is_certain_or_said_to_be_open() {
        let arithmetic = Arithmetic::new(DType::F32);
        let of = |value, error| Approx { value, error };
        let (one, infinity) = (Approx::exact(1.0), Approx::exact(f64::INFINITY));
        let (near_zero, nan) = (of(0.05, 0.1), Approx::exact(f64::NAN));
        for (certain, expected) in [
            (arithmetic.add(infinity, one), f64::INFINITY),
            (arithmetic.mul(infinity, of(2.0, 0.1)), f64::INFINITY),
            (arithmetic.sqrt(infinity), f64::INFINITY),
            (arithmetic.rsqrt(infinity), 0.0),
            (arithmetic.div(one, infinity.neg()), 0.0),
            (arithmetic.sum([one, infinity, of(3.0, 1.0)]), f64::INFINITY),
        ] {
            assert_eq!(certain, Approx::exact(expected));
        }
        for certain in [
            arithmetic.sub(infinity, infinity),
            arithmetic.mul(infinity, Approx::exact(0.0)),
            arithmetic.mul(nan, Approx::anything(1.0)),
            arithmetic.div(Approx::exact(0.0), Approx::exact(0.0)),
            arithmetic.sqrt(one.neg()),
            arithmetic.sum([one, nan, Approx::anything(1.0)]),
            arithmetic.sum([infinity, infinity.neg()]),
            arithmetic.variance(nan),
        ] {
            assert!(certain.is_certainly_nan(), "{certain:?}");
            assert!(certain.stored(DType::F16).is_certainly_nan());
        }
        for open in [
            arithmetic.mul(infinity, near_zero),
            arithmetic.div(near_zero, near_zero),
            arithmetic.sqrt(of(-1.0, 2.0)),
            arithmetic.add(of(3e38, 1e38), of(-3e38, 1e38)),
            arithmetic.sum([3e38, 3e38, -3e38, -3e38].map(Approx::exact)),
        ] {
            assert!(open.error.is_nan() && open.stored(DType::F32).error.is_nan(), "{open:?}");
        }
        // Any number, but not NaN.
        for number in [arithmetic.div(one, near_zero), arithmetic.mul(one, of(1.0, f64::INFINITY))]
        {
            assert_eq!(number.error, f64::INFINITY, "{number:?}");
        }
    }

    #[test]
    fn storage_adds_its_rounding() {
        assert_eq!(Approx::exact(1.0 / 3.0).stored(DType::F16).error, 0.0);
        let near = Approx { value: 2.4, error: 0.05 };
        assert_eq!(near.stored(DType::I32), Approx::exact(2.0));
        assert_eq!(Approx { value: 2.4, error: 0.2 }.stored(DType::I32).error, 1.2);
        // 70000 overflows f16; an error of 1 cannot change that, but the bound does not track it.
        let over = Approx { value: 70_000.0, error: 1.0 }.stored(DType::F16);
        assert_eq!((over.value, over.error), (f64::INFINITY, f64::INFINITY));
    }
}
