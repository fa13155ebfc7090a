//! Positions of windows along a spatial dimension, in whole numbers.

use serde::Serialize;

use crate::graph::{Fraction, Resample, ResampleMode, common_denominator};

/// A spatial dimension. All positions are counted in parts of an element: `unit` of them are one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) at: usize,
    pub(super) image: i64,
    pub(super) response: i64,
    /// Taps of a window.
    pub(super) window: i64,
    pub(super) unit: i64,
    /// From a window to its neighbour.
    pub(super) stride: i64,
    /// From the first window back to the image: its start is at `o * stride - padding`.
    pub(super) padding: i64,
    /// Whole elements that make starts positive, and the start of the first window behind them.
    lead: i64,
    shift: i64,
    /// The windows that hold element `i` start at `i * unit + first` or behind it, and before `i *
    /// unit + last`.
    first: i64,
    last: i64,
    /// In front of its loops in a kernel.
    margin: String,
}

impl Line {
    /// The dimension of a valid resampling.
    pub(super) fn of(op: &Resample, at: usize, image: i64, response: i64) -> Line {
        let sampling = &op.sampling;
        let [stride, pre] = [sampling.strides[at], sampling.pre_paddings[at]];
        let nearest = op.mode == ResampleMode::Nearest;
        let half = Fraction::new(1, 2).expect("it is one");
        let parts = if nearest { vec![stride, pre, half] } else { vec![stride, pre] };
        let common = |parts: &[Fraction]| common_denominator(parts).expect("the graph is valid");
        let over = |of: Fraction, unit: i64| of.over(unit.into()) as i64;
        let finest = common(&parts);
        // The nearest element is the one that the position half an element further lies in.
        let moved = over(pre, finest) - if nearest { finest / 2 } else { 0 };
        let moved = Fraction::new(moved, finest).expect("a fraction");
        let unit = common(&[stride, moved]);
        let [stride, padding] = [stride, moved].map(|of| over(of, unit));
        let lead = padding.div_euclid(unit) + i64::from(padding.rem_euclid(unit) != 0);
        let (window, first, last) = match op.mode {
            ResampleMode::Nearest => (1, padding, padding + unit),
            ResampleMode::Bilinear => (2, padding - unit + 1, padding + unit),
            _ => {
                let window = sampling.window_dims[at].numerator();
                (window, padding - window + 1, padding + 1)
            }
        };
        let shift = lead * unit - padding;
        let margin = " ".repeat(4 * (at + 1));
        Line {
            at,
            image,
            response,
            window,
            unit,
            stride,
            padding,
            lead,
            shift,
            first,
            last,
            margin,
        }
    }

    /// The largest number on the way to a position.
    pub(super) fn reach(&self) -> i64 {
        let Line { image, response, window, unit, stride, padding, lead, shift, .. } = self;
        let starts = response.saturating_mul(*stride).saturating_add(*shift);
        let ends = image.saturating_mul(*unit).saturating_add(*window);
        let ends = ends.saturating_add(padding.abs()).saturating_add(lead.abs());
        starts.saturating_add(ends).saturating_add(*unit).saturating_add(*stride)
    }
}
