//! Results with their bounds, and how far others are from them.

use crate::reference::approx::{Approx, Arithmetic};
use crate::tensor::TensorDesc;

/// Values in row-major index order, and for each the largest error an implementation that computes
/// in the stated math precision may show (0 where only the exact bits will do).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expected {
    /// What the result should be.
    pub values: Vec<f64>,
    /// How far off it may be; where infinite it may be any number, and anything, NaN included, only
    /// where it is [`ANYTHING`](crate::reference::ANYTHING).
    pub bounds: Vec<f64>,
}

/// The worst element of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Row-major position.
    pub index: usize,
    /// The value that came out.
    pub actual: f64,
    /// The value that should have.
    pub expected: f64,
    /// How far off it may be.
    pub bound: f64,
    /// The error as a multiple of the bound; above 1 the comparison fails.
    pub ratio: f64,
}

/// A tensor that an operation reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operand<'a> {
    pub desc: &'a TensorDesc,
    pub expected: &'a Expected,
}

impl Operand<'_> {
    /// An element, rounded to the precision that is computed in.
    pub fn at(&self, arithmetic: Arithmetic, position: usize) -> Approx {
        arithmetic.operand(self.expected.values[position], self.expected.bounds[position])
    }

    /// An element as it is.
    pub fn approx(&self, position: usize) -> Approx {
        let (values, bounds) = (&self.expected.values, &self.expected.bounds);
        Approx { value: values[position], error: bounds[position] }
    }
}

impl Expected {
    /// Results as they are stored.
    pub(super) fn stored(
        results: impl IntoIterator<Item = Approx>,
        tensor: &TensorDesc,
    ) -> Expected {
        let stored = results.into_iter().map(|result| result.stored(tensor.dtype));
        let (values, bounds) = stored.map(|result| (result.value, result.error)).unzip();
        Expected { values, bounds }
    }

    /// The element that is furthest off in terms of its bound; `None` when all are exact.
    ///
    /// NaN matches NaN and what may be [`ANYTHING`](crate::reference::ANYTHING), an infinity the
    /// same infinity.
    ///
    /// # Panics
    /// When `actual` has another length.
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
