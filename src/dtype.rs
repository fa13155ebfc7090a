//! Element types of tensors, and the exact conversions between their bytes and `f64`.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The storage type of a tensor's elements.
///
/// Every value of every type is exactly representable as an `f64`, so `f64` is the common currency
/// of the reference, of by-value tensors and of problem files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Two's complement, 32 bits.
    I32,
    /// Two's complement, 8 bits.
    I8,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1; any other byte reads as true.
    Bool,
}

impl DType {
    /// All types, widest first.
    pub const ALL: [DType; 8] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The name used in problem files, kernel names and texts.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// Whether the type is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::Bf16)
    }

    /// Whether every value of the type is also an `f32` value.
    pub const fn fits_f32(self) -> bool {
        !matches!(self, DType::F64 | DType::I32)
    }

    /// The distance from 1 to the next larger value; 0 for the integer types.
    pub const fn epsilon(self) -> f64 {
        match self {
            DType::F64 => f64::EPSILON,
            DType::F32 => f32::EPSILON as f64,
            DType::F16 => 0.000_976_562_5,
            DType::Bf16 => 0.007_812_5,
            DType::I32 | DType::I8 | DType::U8 | DType::Bool => 0.0,
        }
    }

    /// The smallest positive (subnormal) value; 0 for the integer types.
    pub const fn smallest(self) -> f64 {
        match self {
            DType::F64 => f64::from_bits(1),
            DType::F32 => f32::from_bits(1) as f64,
            DType::F16 => 5.960_464_477_539_063e-8,
            DType::Bf16 => 9.183_549_615_799_121e-41,
            DType::I32 | DType::I8 | DType::U8 | DType::Bool => 0.0,
        }
    }

    /// The smallest and the largest value of an integer type.
    pub const fn integer_range(self) -> Option<(f64, f64)> {
        match self {
            DType::I32 => Some((i32::MIN as f64, i32::MAX as f64)),
            DType::I8 => Some((i8::MIN as f64, i8::MAX as f64)),
            DType::U8 => Some((0.0, u8::MAX as f64)),
            _ => None,
        }
    }

    /// The value nearest to `value`, as it would read back from storage.
    ///
    /// Floating-point types round to nearest, ties to even, and overflow to infinity. `i32`, `i8`
    /// and `u8` round to nearest, ties to even, saturate, and turn NaN into 0. `bool` is 1 for
    /// every value but zero (NaN included).
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F64 => value,
            DType::F32 => value as f32 as f64,
            DType::F16 => f16::from_f32(round_to_odd(value)).to_f64(),
            DType::Bf16 => bf16::from_f32(round_to_odd(value)).to_f64(),
            DType::Bool => (value != 0.0) as u8 as f64,
            DType::I32 | DType::I8 | DType::U8 => {
                let (low, high) = self.integer_range().expect("an integer type has a range");
                let rounded = value.round_ties_even().clamp(low, high);
                // `+ 0.0` turns a negative zero into the integer zero it is stored as.
                if rounded.is_nan() { 0.0 } else { rounded + 0.0 }
            }
        }
    }

    /// Reads the element that starts `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter than [`DType::bytes`].
    pub fn read(self, bytes: &[u8]) -> f64 {
        match self {
            DType::F64 => f64::from_le_bytes(head(bytes)),
            DType::F32 => f32::from_le_bytes(head(bytes)) as f64,
            DType::F16 => f16::from_le_bytes(head(bytes)).to_f64(),
            DType::Bf16 => bf16::from_le_bytes(head(bytes)).to_f64(),
            DType::I32 => i32::from_le_bytes(head(bytes)) as f64,
            DType::I8 => bytes[0] as i8 as f64,
            DType::U8 => bytes[0] as f64,
            DType::Bool => (bytes[0] != 0) as u8 as f64,
        }
    }

    /// Writes `value`, rounded as by [`DType::round`], to the start of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter than [`DType::bytes`].
    pub fn write(self, value: f64, bytes: &mut [u8]) {
        let out = &mut bytes[..self.bytes()];
        match self {
            DType::F64 => out.copy_from_slice(&value.to_le_bytes()),
            DType::F32 => out.copy_from_slice(&(value as f32).to_le_bytes()),
            DType::F16 => out.copy_from_slice(&f16::from_f32(round_to_odd(value)).to_le_bytes()),
            DType::Bf16 => out.copy_from_slice(&bf16::from_f32(round_to_odd(value)).to_le_bytes()),
            DType::I32 => out.copy_from_slice(&(self.round(value) as i32).to_le_bytes()),
            DType::I8 => out[0] = self.round(value) as i8 as u8,
            DType::U8 | DType::Bool => out[0] = self.round(value) as u8,
        }
    }
}

/// The way from `f64` to a 16-bit type that rounds once.
///
/// Rounding to nearest twice (to `f32`, then to 16 bits) turns near-ties into ties. Rounding to odd
/// on the way keeps the discarded bits in sight; the device prelude uses the same trick.
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if nearest as f64 == value || !value.is_finite() {
        return nearest;
    }
    let toward_zero = match (nearest as f64).abs() > value.abs() {
        true => f32::from_bits(nearest.to_bits() - 1),
        false => nearest,
    };
    f32::from_bits(toward_zero.to_bits() | 1)
}

fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("a slice of N bytes is an array of N bytes")
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| {
            let known = DType::ALL.map(DType::name).join(", ");
            Error::bad_param(format!("unknown data type `{text}`: expected one of {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_saturate_and_round_to_even() {
        assert_eq!(DType::I8.round(300.0), 127.0);
        assert_eq!(DType::I8.round(-300.0), -128.0);
        assert_eq!(DType::I8.round(2.5), 2.0);
        assert_eq!(DType::U8.round(-0.4), 0.0);
        assert_eq!(DType::I32.round(f64::NAN), 0.0);
        assert_eq!(DType::I32.round(1e300), i32::MAX as f64);
        assert_eq!(DType::Bool.round(f64::NAN), 1.0);
    }

    #[test]
    fn sixteen_bit_types_round_once() {
        // Just above the midpoint of 1 and the next bf16: through f32 the excess is lost.
        let above_tie = 1.0 + 0.003_906_25 + 1e-12;
        assert_eq!(DType::Bf16.round(above_tie), 1.007_812_5);
        assert_eq!(DType::Bf16.round(-above_tie), -1.007_812_5);
        assert_eq!(DType::Bf16.round(1.0 + 0.003_906_25), 1.0);
        assert_eq!(DType::Bf16.round(1e300), f64::INFINITY);
        assert_eq!(DType::Bf16.round(1e-300), 0.0);
        let above_tie = 1.0 + DType::F16.epsilon() / 2.0 + 1e-12;
        assert_eq!(DType::F16.round(above_tie), 1.0 + DType::F16.epsilon());
    }

    #[test]
    fn bytes_round_trip() {
        for dtype in DType::ALL {
            let mut bytes = [0xAA; 8];
            for value in [0.0, 1.0, -1.0, 0.1, 100.0] {
                dtype.write(value, &mut bytes);
                assert_eq!(dtype.read(&bytes), dtype.round(value), "{dtype} {value}");
            }
        }
    }
}
