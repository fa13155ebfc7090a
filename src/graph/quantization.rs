//! Numbers as 8-bit integers.

use std::fmt;

use crate::dtype::DType;
use crate::expr::Real;

/// How 8-bit integers stand for numbers: as `number * scale + shift`, rounded to nearest even and
/// saturated; NaN is the integer 0.
///
/// The shift is an integer that the type has, so that the number 0 is exact and sums of weights
/// with shifted integers are integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quantization {
    /// Integers per unit; positive, in f32.
    pub scale: Real,
    /// The integer that stands for 0.
    pub shift: i64,
}

/// Extent of a sum of products of weights with shifted integers below which it has 32 bits.
pub(crate) const SUMMED_MAX: i64 = i32::MAX as i64 / (128 * 255);

impl Quantization {
    /// A scale, and the integer that stands for 0.
    pub fn new(scale: f64, shift: i64) -> Quantization {
        Quantization { scale: Real::new(scale), shift }
    }

    /// Number per integer, in f32.
    pub fn unit(self) -> f64 {
        f64::from(1.0 / self.scale.get() as f32)
    }

    /// The rule that these parameters break for integers of a type.
    pub(crate) fn broken_rule(self, dtype: DType) -> Option<String> {
        let Quantization { scale, shift } = self;
        let is_normal = |value: f64| (value as f32).is_normal() && value > 0.0;
        if !is_normal(scale.get()) || !is_normal(self.unit()) {
            return Some(format!("the scale {scale} is not a positive number in f32"));
        }
        let (least, most) = dtype.integer_range().unwrap_or_default();
        match (least..=most).contains(&(shift as f64)) {
            true => None,
            false => Some(format!("the shift {shift} is not a number of {dtype}")),
        }
    }
}

impl fmt::Display for Quantization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scale {}, shift {}", self.scale, self.shift)
    }
}
