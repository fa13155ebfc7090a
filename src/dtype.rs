//! Element types of tensors, and the exact conversions between their bytes and `f64`.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The storage type of a tensor's elements.
///
/// Every value of every type, of `i64` those up to 2^53 in magnitude, is exactly representable as
/// an `f64`, so `f64` is the common currency of the reference, of by-value tensors and of problem
/// files.
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
    /// 8 bits: 4 of exponent, 3 of mantissa, no infinities, up to 448 (Micikevicius et al. 2022,
    /// "FP8 Formats for Deep Learning"). Storage only: operands of attention.
    F8E4M3,
    /// 8 bits: 5 of exponent, 2 of mantissa, the upper half of a binary16, with infinities, up to
    /// 57344 (Micikevicius et al. 2022). Storage only: operands of attention.
    F8E5M2,
    /// Two's complement, 64 bits. Storage only: lengths, offsets, pages and seeds as clients have
    /// them, moved, compared and selected.
    I64,
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
    pub const ALL: [DType; 11] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::Bf16,
        DType::I64,
        DType::I32,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::I8,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The name used in problem files, kernel names and texts.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// Whether the type is a floating-point type that operations compute with: of 16 bits or more.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::Bf16)
    }

    /// Whether the values of the type are integers that those of 32 bits hold.
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::I32 | DType::I8 | DType::U8 | DType::Bool)
    }

    /// Whether the type is a floating-point type of 8 bits.
    pub const fn is_f8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// Whether every value of the type is also an `f32` value.
    pub const fn fits_f32(self) -> bool {
        !matches!(self, DType::F64 | DType::I64 | DType::I32)
    }

    /// The distance from 1 to the next larger value; 0 for the integer types.
    pub const fn epsilon(self) -> f64 {
        match self {
            DType::F64 => f64::EPSILON,
            DType::F32 => f32::EPSILON as f64,
            DType::F16 => 0.000_976_562_5,
            DType::Bf16 => 0.007_812_5,
            DType::F8E4M3 => 0.125,
            DType::F8E5M2 => 0.25,
            DType::I64 | DType::I32 | DType::I8 | DType::U8 | DType::Bool => 0.0,
        }
    }

    /// The smallest positive (subnormal) value; 0 for the integer types.
    pub const fn smallest(self) -> f64 {
        match self {
            DType::F64 => f64::from_bits(1),
            DType::F32 => f32::from_bits(1) as f64,
            DType::F16 => 5.960_464_477_539_063e-8,
            DType::Bf16 => 9.183_549_615_799_121e-41,
            DType::F8E4M3 => 0.001_953_125,
            DType::F8E5M2 => 0.000_015_258_789_062_5,
            DType::I64 | DType::I32 | DType::I8 | DType::U8 | DType::Bool => 0.0,
        }
    }

    /// The smallest and the largest value of an integer type.
    pub const fn integer_range(self) -> Option<(f64, f64)> {
        match self {
            DType::I64 => Some((i64::MIN as f64, i64::MAX as f64)),
            DType::I32 => Some((i32::MIN as f64, i32::MAX as f64)),
            DType::I8 => Some((i8::MIN as f64, i8::MAX as f64)),
            DType::U8 => Some((0.0, u8::MAX as f64)),
            _ => None,
        }
    }

    /// The value nearest to `value`, as it would read back from storage.
    ///
    /// Floating-point types round to nearest, ties to even, and overflow to infinity. Those of 8
    /// bits saturate instead, as PTX's conversions do, but for an infinity that the type has.
    /// `i64`, `i32`, `i8` and `u8` round to nearest, ties to even, saturate, and turn NaN into 0.
    /// `bool` is 1 for every value but zero (NaN included).
    pub fn round(self, value: f64) -> f64 {
        match self {
            DType::F64 => value,
            DType::F32 => value as f32 as f64,
            DType::F16 => f16::from_f32(round_to_odd(value)).to_f64(),
            DType::Bf16 => bf16::from_f32(round_to_odd(value)).to_f64(),
            DType::F8E4M3 | DType::F8E5M2 => self.read(&[self.eight_bits(value)]),
            DType::Bool => (value != 0.0) as u8 as f64,
            DType::I64 | DType::I32 | DType::I8 | DType::U8 => {
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
            DType::F8E4M3 => e4m3(bytes[0]),
            DType::F8E5M2 => f16::from_bits(u16::from(bytes[0]) << 8).to_f64(),
            DType::I64 => i64::from_le_bytes(head(bytes)) as f64,
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
            DType::F8E4M3 | DType::F8E5M2 => out[0] = self.eight_bits(value),
            DType::I64 => out.copy_from_slice(&(self.round(value) as i64).to_le_bytes()),
            DType::I32 => out.copy_from_slice(&(self.round(value) as i32).to_le_bytes()),
            DType::I8 => out[0] = self.round(value) as i8 as u8,
            DType::U8 | DType::Bool => out[0] = self.round(value) as u8,
        }
    }
}

impl DType {
    /// The nearest 8 bits, ties to even, of a floating-point type of 8 bits.
    fn eight_bits(self, value: f64) -> u8 {
        let sign = u8::from(value.is_sign_negative()) << 7;
        if value.is_nan() {
            return sign | 0x7f;
        }
        if value.is_infinite() && self == DType::F8E5M2 {
            return sign | 0x7c;
        }
        let largest = if self == DType::F8E4M3 { 0x7e } else { 0x7b };
        // Magnitudes are ordered as their bits are.
        let magnitude = value.abs();
        let below = (0..=largest).rev().find(|bits| self.read(&[*bits]) <= magnitude);
        let below = below.expect("zero is the least magnitude");
        if below == largest {
            return sign | largest;
        }
        let [low, high] = [below, below + 1].map(|bits| self.read(&[bits]));
        let nearer = (magnitude - low).total_cmp(&(high - magnitude));
        let up = nearer.is_gt() || (nearer.is_eq() && below & 1 == 1);
        sign | (below + u8::from(up))
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

/// The value of 1 bit of sign, 4 of exponent with a bias of 7 and 3 of mantissa.
fn e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if bits >> 7 == 1 { -magnitude } else { magnitude }
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
    fn eight_bit_floats_round_to_even_and_saturate() {
        for (dtype, largest) in [(DType::F8E4M3, 448.0), (DType::F8E5M2, 57344.0)] {
            assert_eq!(dtype.round(1e300), largest);
            assert_eq!(dtype.round(-1e9), -largest);
            assert_eq!(dtype.round(dtype.smallest() / 2.0), 0.0);
            assert_eq!(dtype.round(dtype.smallest() * 0.75), dtype.smallest());
            assert_eq!(dtype.round(1.0 + dtype.epsilon() / 2.0), 1.0);
            assert_eq!(dtype.round(1.0 + dtype.epsilon() * 1.5), 1.0 + 2.0 * dtype.epsilon());
            assert!(dtype.round(f64::NAN).is_nan());
            for bits in 0..=255 {
                let value = dtype.read(&[bits]);
                let mut written = [0];
                dtype.write(value, &mut written);
                assert!(written == [bits] || value.is_nan(), "{dtype} {bits:#x}");
            }
        }
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
