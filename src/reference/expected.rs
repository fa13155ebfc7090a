//! Reference results with error bounds, and their comparison with actual results.

use crate::reference::approx::{Approx, Arithmetic};
use crate::tensor::TensorDesc;

/// Reference values in row-major order, each with the maximum error of an implementation that
/// computes in the stated math precision; 0 requires the exact bits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expected {
    /// Reference values.
    pub values: Vec<f64>,
    /// Error bounds. An infinite bound admits any number, [`ANYTHING`](crate::reference::ANYTHING)
    /// NaN as well.
    pub bounds: Vec<f64>,
}

/// The worst element of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Row-major index of the element.
    pub index: usize,
    /// Actual value.
    pub actual: f64,
    /// Reference value.
    pub expected: f64,
    /// Error bound.
    pub bound: f64,
    /// Error divided by the bound; above 1 the comparison fails.
    pub ratio: f64,
}

/// An operand of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand<'a> {
    pub desc: &'a TensorDesc,
    pub expected: &'a Expected,
}

impl Operand<'_> {
    /// Element rounded to the math precision.
    pub fn at(&self, arithmetic: Arithmetic, position: usize) -> Approx {
        arithmetic.operand(self.expected.values[position], self.expected.bounds[position])
    }

    /// Element without rounding.
    pub fn approx(&self, position: usize) -> Approx {
        let (values, bounds) = (&self.expected.values, &self.expected.bounds);
        Approx { value: values[position], error: bounds[position] }
    }
}

impl Expected {
    /// Rounds results to their storage type.
    pub(super) fn stored(
        results: impl IntoIterator<Item = Approx>,
        tensor: &TensorDesc,
    ) -> Expected {
        let stored = results.into_iter().map(|result| result.stored(tensor.dtype));
        let (values, bounds) = stored.map(|result| (result.value, result.error)).unzip();
        Expected { values, bounds }
    }

    /// The element with the largest error relative to its bound; `None` if all are exact.
    ///
    /// NaN matches NaN and an element bounded by [`ANYTHING`](crate::reference::ANYTHING); an
    /// infinity matches the same infinity.
    ///
    /// # Panics
    /// When `actual` has a different length.
    pub fn worst(&self, actual: &[f64]) -> Option<Deviation> {
        assert_eq!(actual.len(), self.values.len(), "compared tensors have equal length");
        let deviation = |index: usize| {
            let (actual, expected, bound) = (actual[index], self.values[index], self.bounds[index]);
            let same = actual == expected || (actual.is_nan() && expected.is_nan());
            if same {
                return None;
            }
            let ratio = match bound {
                bound if bound.is_nan() => 0.0,
                _ if actual.is_nan() || expected.is_nan() => f64::INFINITY,
                f64::INFINITY => 0.0,
                bound => (actual - expected).abs() / bound,
            };
            Some(Deviation { index, actual, expected, bound, ratio })
        };
        (0..actual.len()).filter_map(deviation).max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }
}
