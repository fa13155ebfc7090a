//! Conversions of packed pairs of floats of 4 and 6 bits, and of exponents.
//!
//! A pair of 4-bit floats takes a byte, one of 6-bit floats two, each in the low bits of its own.
//! The immediate holds the format's bits of exponent and fraction, and flags.

use super::float::half_relu;
use super::lane::lane_ops;
use super::packed::RELU;
use crate::format::small;
use crate::half::F16;

/// Immediate flag: round exponents up instead of toward zero.
pub(crate) const EXPONENT_UP: i64 = 1;
/// Immediate flag: infinite values give the largest exponent instead of NaN.
pub(crate) const EXPONENT_FINITE: i64 = 2;

/// The immediate of a format.
pub(crate) fn narrow_format(exponent_bits: i64, fraction_bits: i64) -> i64 {
    exponent_bits << 16 | fraction_bits << 24
}

/// Bits of exponent and fraction.
#[inline(always)]
fn format(flags: i64) -> (u32, u32) {
    ((flags >> 16 & 0xff) as u32, (flags >> 24 & 0xff) as u32)
}

/// Nearest code, ties to even, at most the largest; a NaN is the largest positive one.
#[inline(always)]
fn code(value: f32, flags: i64) -> u32 {
    let (exponent_bits, fraction_bits) = format(flags);
    let max = (1 << (exponent_bits + fraction_bits)) - 1;
    if value.is_nan() {
        return max;
    }
    if flags & RELU != 0 && value < 0.0 {
        return 0;
    }
    let sign = (value.to_bits() >> 31) << (exponent_bits + fraction_bits);
    let exponent_min = 2 - (1 << (exponent_bits - 1));
    let magnitude = value.abs();
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(exponent_min);
    if exponent > 8 {
        return max | sign;
    }
    let unit = exponent - fraction_bits as i32;
    let units = magnitude / f32::from_bits(((unit + 127) as u32) << 23);
    let base = ((exponent - exponent_min) as u32) << fraction_bits;
    (base + units.round_ties_even() as u32).min(max) | sign
}

/// Bits that a code takes in a pair.
#[inline(always)]
fn width(flags: i64) -> u32 {
    let (exponent_bits, fraction_bits) = format(flags);
    if exponent_bits + fraction_bits == 3 { 4 } else { 8 }
}

#[inline(always)]
fn half(code: u32, flags: i64) -> u32 {
    let (exponent_bits, fraction_bits) = format(flags);
    let value = F16::from_f32(small(code, exponent_bits, fraction_bits));
    (if flags & RELU != 0 { half_relu(value) } else { value }).0.into()
}

/// Exponent of a magnitude: a power of two as ue8m0.
#[inline(always)]
fn exponent(bits: u32, flags: i64) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    let code = magnitude >> 23;
    // 2^-127, the smallest power, is a subnormal single.
    let above = magnitude & 0x7f_ffff != 0 && magnitude > 0x40_0000 && code != 0xff;
    let rounded = code + u32::from(flags & EXPONENT_UP != 0 && above);
    let infinite = rounded == 0xff && magnitude <= 0x7f80_0000;
    if infinite && flags & EXPONENT_FINITE != 0 { 0xfe } else { rounded }
}

/// A power of two in bfloat16.
#[inline(always)]
fn power(code: u32) -> u32 {
    match code {
        0 => 0x40,
        0xff => 0x7fff,
        code => code << 7,
    }
}

lane_ops! {
    /// Packs two singles: `a` in the high part.
    NarrowFromSingles(a: f32, b: f32; flags) -> u16 =
        (code(a, flags) << width(flags) | code(b, flags)) as u16;
    HalvesFromNarrow(a: u16; flags) -> u32 =
        half(u32::from(a) >> width(flags), flags) << 16
            | half(u32::from(a) & ((1 << width(flags)) - 1), flags);
    ExponentsFromSingles(a: f32, b: f32; flags) -> u16 =
        (exponent(a.to_bits(), flags) << 8 | exponent(b.to_bits(), flags)) as u16;
    ExponentsFromHalves(a: u32; flags) -> u16 =
        (exponent(a & 0xffff_0000, flags) << 8 | exponent(a << 16, flags)) as u16;
    HalvesFromExponents(a: u16) -> u32 =
        power(u32::from(a) >> 8) << 16 | power(u32::from(a) & 0xff);
}
