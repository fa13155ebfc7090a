//! Element formats of matrices, and the 8-bit floating-point formats.

use crate::half::{Bf16, F16};

/// Element format of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    E3m2,
    E2m3,
    E2m1,
    /// E2m1 in bits 2 to 5 of a byte.
    E2m1Byte,
    S8,
    U8,
    S4,
    U4,
    S32,
}

const NAMES: [(&str, Format); 15] = [
    ("f16", Format::F16),
    ("bf16", Format::Bf16),
    ("tf32", Format::Tf32),
    ("f32", Format::F32),
    ("f64", Format::F64),
    ("e4m3", Format::E4m3),
    ("e5m2", Format::E5m2),
    ("e3m2", Format::E3m2),
    ("e2m3", Format::E2m3),
    ("e2m1", Format::E2m1),
    ("s8", Format::S8),
    ("u8", Format::U8),
    ("s4", Format::S4),
    ("u4", Format::U4),
    ("s32", Format::S32),
];

impl Format {
    /// Parses a modifier.
    pub fn from_name(name: &str) -> Option<Format> {
        NAMES.iter().find(|(text, _)| *text == name).map(|&(_, format)| format)
    }

    /// Parses an MMA shape into M, N and K: `m16n8k16`.
    pub fn shape(name: &str) -> Option<[u32; 3]> {
        let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
    }

    /// Size of an element in bits.
    pub fn bits(self) -> usize {
        match self {
            Format::S4 | Format::U4 | Format::E2m1 => 4,
            Format::E4m3 | Format::E5m2 | Format::S8 | Format::U8 => 8,
            // Formats of 6 bits lie in the low bits of a byte.
            Format::E3m2 | Format::E2m3 | Format::E2m1Byte => 8,
            Format::F16 | Format::Bf16 => 16,
            Format::Tf32 | Format::F32 | Format::S32 => 32,
            Format::F64 => 64,
        }
    }

    /// Neighbours along K of which a sparse operand stores half.
    pub fn chunk(self) -> usize {
        match self.bits() {
            32 => 2,
            4 => 8,
            _ => 4,
        }
    }

    /// Whether accumulators are integers.
    pub fn integer(self) -> bool {
        matches!(self, Format::S8 | Format::U8 | Format::S4 | Format::U4 | Format::S32)
    }

    /// Exact value of an element; tf32 ignores the low 13 bits.
    #[inline(always)]
    pub fn single(self, bits: u32) -> f32 {
        match self {
            Format::F16 => F16(bits as u16).to_f32(),
            Format::Bf16 => Bf16(bits as u16).to_f32(),
            Format::Tf32 => f32::from_bits(bits & !0x1fff),
            Format::E4m3 => E4M3.value(bits as u8),
            Format::E5m2 => E5M2.value(bits as u8),
            Format::E3m2 => small(bits, 3, 2),
            Format::E2m3 => small(bits, 2, 3),
            Format::E2m1 => small(bits, 2, 1),
            Format::E2m1Byte => small(bits >> 2, 2, 1),
            _ => f32::from_bits(bits),
        }
    }

    /// The format of an element that takes a byte.
    pub fn in_byte(self) -> Format {
        if self == Format::E2m1 { Format::E2m1Byte } else { self }
    }

    /// Value of an integer element.
    #[inline(always)]
    pub fn integer_value(self, bits: u32) -> i32 {
        match self {
            Format::S8 => i32::from(bits as i8),
            Format::U8 => i32::from(bits as u8),
            Format::S4 => (bits << 28) as i32 >> 28,
            Format::U4 => (bits & 15) as i32,
            _ => bits as i32,
        }
    }
}

/// Value of a code without infinities or NaN: a sign, exponent bits, fraction bits.
#[inline(always)]
pub(crate) fn small(code: u32, exponent_bits: u32, fraction_bits: u32) -> f32 {
    let fraction = code & ((1 << fraction_bits) - 1);
    let exponent = code >> fraction_bits & ((1 << exponent_bits) - 1);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let significand = if exponent == 0 { fraction } else { fraction | 1 << fraction_bits };
    let power = exponent.max(1) as i32 - bias - fraction_bits as i32;
    let magnitude = significand as f32 * f32::from_bits(((power + 127) as u32) << 23);
    let negative = code >> (exponent_bits + fraction_bits) & 1 != 0;
    if negative { -magnitude } else { magnitude }
}

/// Value of a scale: ue8m0, a power of 2, or ue4m3, an e4m3 without sign.
pub(crate) fn scale(code: u8, fraction: bool) -> f64 {
    match (fraction, code) {
        (true, _) => E4M3.value(code & 0x7f).into(),
        (false, 0xff) => f64::NAN,
        (false, _) => f64::from_bits((u64::from(code) + 1023 - 127) << 52),
    }
}

/// An 8-bit floating-point format: fraction bits, minimum exponent, maximum code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fp8 {
    fraction_bits: u32,
    exponent_min: i32,
    code_max: u8,
    /// Codes above this one, without sign, are NaN.
    code_infinite: u8,
}

/// No infinities, one NaN, maximum 448.
pub(crate) const E4M3: Fp8 =
    Fp8 { fraction_bits: 3, exponent_min: -6, code_max: 0x7e, code_infinite: 0x7e };
/// The high byte of f16; maximum 57344.
pub(crate) const E5M2: Fp8 =
    Fp8 { fraction_bits: 2, exponent_min: -14, code_max: 0x7b, code_infinite: 0x7c };

impl Fp8 {
    /// Exact value of a code; branch-free, so that loops over codes vectorise.
    #[inline(always)]
    pub fn value(self, code: u8) -> f32 {
        let select = |condition: bool, yes: u32, no: u32| if condition { yes } else { no };
        let magnitude = u32::from(code & 0x7f);
        let bias = (self.exponent_min - 1 + 127) as u32;
        let normal = (magnitude << (23 - self.fraction_bits)).wrapping_add(bias << 23);
        let unit = self.exponent_min - self.fraction_bits as i32;
        let scale = f32::from_bits(((unit + 127) as u32) << 23);
        let subnormal = (magnitude as i32 as f32 * scale).to_bits();
        let finite = select(magnitude >> self.fraction_bits == 0, subnormal, normal);
        let bounded = select(magnitude > self.code_max.into(), 0x7f80_0000, finite);
        let signed = bounded | u32::from(code & 0x80) << 24;
        f32::from_bits(select(magnitude > self.code_infinite.into(), 0x7fff_ffff, signed))
    }

    /// Rounds to the nearest code, ties to even, saturating at the largest finite value.
    #[inline(always)]
    pub fn nearest(self, value: f32) -> u8 {
        if value.is_nan() {
            return 0x7f;
        }
        let magnitude = value.abs();
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(self.exponent_min);
        if exponent > 16 {
            return self.code_max | sign;
        }
        let unit = exponent - self.fraction_bits as i32;
        let units = magnitude / f32::from_bits(((unit + 127) as u32) << 23);
        let base = ((exponent - self.exponent_min) as u32) << self.fraction_bits;
        let code = base + units.round_ties_even() as u32;
        code.min(self.code_max.into()) as u8 | sign
    }
}
