//! 16-bit floating-point formats: exact conversions, branch-free so that loops over lanes
//! vectorise.

/// Canonical NaN of f16 arithmetic and conversions.
const F16_NAN: u16 = 0x7fff;
/// Canonical NaN of bf16 arithmetic and conversions.
const BF16_NAN: u16 = 0x7fff;

/// IEEE binary16 by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct F16(pub u16);

/// bfloat16 by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bf16(pub u16);

/// Branch-free selection.
#[inline(always)]
fn select(condition: bool, yes: u32, no: u32) -> u32 {
    if condition { yes } else { no }
}

/// Shifts magnitude bits right by `shift`, rounding to nearest even.
#[inline(always)]
fn shift_nearest_even(bits: u32, shift: u32) -> u32 {
    let half = (1_u32 << (shift - 1)).wrapping_sub(1);
    bits.wrapping_add(half + ((bits >> shift) & 1)) >> shift
}

impl F16 {
    /// Exact conversion.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let bits = u32::from(self.0);
        let magnitude = bits & 0x7fff;
        let special = (magnitude << 13) | 0x7f80_0000;
        // With the fraction in f32's position the value is too small by 2^112, which one exact
        // multiplication corrects for normal and subnormal values alike.
        let finite = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
        f32::from_bits(select(magnitude >= 0x7c00, special, finite) | ((bits & 0x8000) << 16))
    }

    /// Rounds to nearest even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let sign = (bits >> 16) & 0x8000;
        let normal = shift_nearest_even(magnitude.wrapping_sub((127 - 15) << 23), 13);
        // Adding 0.5 aligns f32's last place with f16's subnormal unit 2^-24.
        let shifted = f32::from_bits(magnitude) + f32::from_bits(0x3f00_0000);
        let subnormal = shifted.to_bits().wrapping_sub(0x3f00_0000);
        let finite = select(magnitude < 0x3880_0000, subnormal, normal);
        let bounded = select(magnitude >= 0x4780_0000, 0x7c00, finite);
        let signed = bounded | sign;
        F16(select(magnitude > 0x7f80_0000, F16_NAN.into(), signed) as u16)
    }

    /// Rounds toward zero; finite values stay finite.
    #[inline(always)]
    pub fn from_f32_toward_zero(value: f32) -> F16 {
        let nearest = F16::from_f32(value);
        let over = nearest.to_f32().abs() > value.abs();
        if over { F16(nearest.0 - 1) } else { nearest }
    }
}

impl Bf16 {
    /// Exact conversion.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds to nearest even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        Bf16(select(bits & 0x7fff_ffff > 0x7f80_0000, BF16_NAN.into(), rounded) as u16)
    }

    /// Rounds toward zero.
    #[inline(always)]
    pub fn from_f32_toward_zero(value: f32) -> Bf16 {
        let bits = value.to_bits();
        let nan = bits & 0x7fff_ffff > 0x7f80_0000;
        Bf16(select(nan, BF16_NAN.into(), bits >> 16) as u16)
    }
}

/// A 16-bit format, for operations common to both.
pub(crate) trait Half: Copy {
    /// The value 1.
    const ONE: u16;
    /// Errors of `ex2.approx`, relative, and `tanh.approx`, absolute, as powers of two, without
    /// that of the rounding to the type.
    const EX2_ERROR: f64;
    const TANH_ERROR: f64;
    fn from_bits(bits: u16) -> Self;
    fn bits(self) -> u16;
    fn single(self) -> f32;
    fn nearest(value: f32) -> Self;
    fn toward_zero(value: f32) -> Self;

    /// Rounds a double that was rounded to odd.
    #[inline(always)]
    fn from_odd(value: f64) -> Self {
        Self::nearest(crate::rounding::single_to_odd(value))
    }
}

macro_rules! half {
    ($($name:ident, $one:expr, $ex2:expr, $tanh:expr);*) => {$(
        impl Half for $name {
            const ONE: u16 = $one;
            const EX2_ERROR: f64 = $ex2;
            const TANH_ERROR: f64 = $tanh;
            #[inline(always)]
            fn from_bits(bits: u16) -> Self {
                $name(bits)
            }
            #[inline(always)]
            fn bits(self) -> u16 {
                self.0
            }
            #[inline(always)]
            fn single(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn nearest(value: f32) -> Self {
                $name::from_f32(value)
            }
            #[inline(always)]
            fn toward_zero(value: f32) -> Self {
                $name::from_f32_toward_zero(value)
            }
        }
    )*};
}

half!(F16, 0x3c00, -10.8, -12.0; Bf16, 0x3f80, -8.0, -9.0);
