//! Conversions of packed pairs of 8-bit floats.
//!
//! The immediate holds the flags `RELU` and `FORMAT_E5M2`.

use super::float::half_relu;
use super::lane::lane_ops;
use super::packed::RELU;
use crate::format::{E4M3, E5M2, Fp8};
use crate::half::F16;

/// Immediate flag: e5m2 instead of e4m3.
pub(crate) const FORMAT_E5M2: i64 = 16;

#[inline(always)]
fn format(flags: i64) -> Fp8 {
    if flags & FORMAT_E5M2 != 0 { E5M2 } else { E4M3 }
}

/// Code of a value; `.relu` maps negative values to zero and keeps NaN.
#[inline(always)]
fn code(value: f32, flags: i64) -> u32 {
    let clamped = if flags & RELU != 0 && value < 0.0 { 0.0 } else { value };
    format(flags).nearest(clamped).into()
}

#[inline(always)]
fn half(code: u32, flags: i64) -> u32 {
    let value = F16::from_f32(format(flags).value(code as u8));
    (if flags & RELU != 0 { half_relu(value) } else { value }).0.into()
}

lane_ops! {
    /// Packs two singles: `a` in the high byte.
    EightFromSingles(a: f32, b: f32; flags) -> u16 =
        (code(a, flags) << 8 | code(b, flags)) as u16;
    EightFromHalves(a: u32; flags) -> u16 = {
        let value = |bits: u32| F16(bits as u16).to_f32();
        (code(value(a >> 16), flags) << 8 | code(value(a), flags)) as u16
    };
    HalvesFromEight(a: u16; flags) -> u32 =
        half(u32::from(a) >> 8, flags) << 16 | half(u32::from(a) & 0xff, flags);
}
