//! Element types of tensors, and the exact conversions between their bytes and `f64`.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The storage type of a tensor's elements.
///
/// Every value of every type, for `i64` up to 2^53 in magnitude, is exactly representable as an
/// `f64`, which is therefore the interchange type of the reference, by-value tensors and problem
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
    /// 8-bit float: 4 exponent bits, 3 mantissa bits, no infinities, maximum 448 (Micikevicius et
    /// al. 2022, "FP8 Formats for Deep Learning"). Storage only: operands of attention.
    F8E4M3,
    /// 8-bit float with 5 exponent bits and 2 mantissa bits: the upper half of a binary16. Storage
    /// only, as [`DType::F8E4M3`].
    F8E5M2,
    /// 64-bit two's complement. Storage only: lengths, offsets, page tables and seeds, which may be
    /// moved, compared and selected.
    I64,
    /// 32-bit two's complement.
    I32,
    /// 8-bit two's complement.
    I8,
    /// Unsigned 8-bit integer.
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

    /// Size of an element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::Bf16 => 2,
            DType::F8E4M3 | DType::F8E5M2 | DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Name in problem files, kernel names and messages.
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

    /// Whether the type is a floating-point type of at least 16 bits.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::Bf16)
    }

    /// Whether the type is an integer type of at most 32 bits.
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::I32 | DType::I8 | DType::U8 | DType::Bool)
    }

    /// Whether the type is an 8-bit floating-point type.
    pub const fn is_f8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// Whether `f32` represents every value of the type.
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

    /// Rounds `value` to the type, as if written to storage and read back.
    ///
    /// Floating-point types round to nearest even and overflow to infinity. 8-bit floats saturate
    /// instead, as PTX's conversions do, except for infinities that the type can represent. `i64`,
    /// `i32`, `i8` and `u8` round to nearest even, saturate, and map NaN to 0. `bool` is 1 for
    /// every value but zero (NaN included).
    #[inline]
    pub fn round(self, value: f64) -> f64 {
        match self {
            // What is one already, as most are.
            DType::I32 if f64::from(value as i32) == value => f64::from(value as i32),
            other => other.rounded(value),
        }
    }

    fn rounded(self, value: f64) -> f64 {
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
                // `+ 0.0` turns negative zero into zero, as integer storage does.
                if rounded.is_nan() { 0.0 } else { rounded + 0.0 }
            }
        }
    }

    /// Reads the element at the start of `bytes`.
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
    /// Encodes a value as an 8-bit float, rounding to nearest even.
    fn eight_bits(self, value: f64) -> u8 {
        let sign = u8::from(value.is_sign_negative()) << 7;
        if value.is_nan() {
            return sign | 0x7f;
        }
        if value.is_infinite() && self == DType::F8E5M2 {
            return sign | 0x7c;
        }
        let largest = if self == DType::F8E4M3 { 0x7e } else { 0x7b };
        // Magnitudes are ordered as their bit patterns.
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

/// Rounds an `f64` to odd in `f32`, so that a subsequent rounding to a 16-bit type is correct.
///
/// Rounding to nearest twice (to `f32`, then to 16 bits) turns near-ties into ties; rounding to odd
/// preserves the discarded bits. The device prelude uses the same technique.
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

/// Decodes e4m3: 1 sign bit, 4 exponent bits with bias 7, 3 mantissa bits.
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
        // Just above the midpoint of 1 and the next bf16: rounding through f32 loses the excess.
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
