//! Type conversions.
//!
//! Integers are extended by their own signedness; floating-point values are rounded to an integer,
//! then saturated. Frequent conversions are direct; the others go through a double rounded to odd,
//! so that the final rounding is correct.

use super::float::canonical;
use super::lane::{Lane, lane_ops};
use crate::half::{Bf16, F16, Half};
use crate::rounding::{self, Direction, Mode};

/// A value that can be extended to 32 or 64 bits.
pub(crate) trait Extend: Lane {
    fn word(self) -> u32;
    fn wide(self) -> u64;
    fn integer(self) -> i128;
}

/// An integer type to which values saturate.
pub(crate) trait Clamp: Lane {
    fn clamp_integer(value: i128) -> Self;
    fn clamp_float(value: f64) -> Self;
    /// Result for NaN: zero, except for 64-bit results and double sources, where it is the sign
    /// bit.
    fn nan() -> Self;
}

macro_rules! integers {
    ($($ty:ident),*) => {$(
        impl Extend for $ty {
            #[inline(always)]
            fn word(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn integer(self) -> i128 {
                self.into()
            }
        }
        impl Clamp for $ty {
            #[inline(always)]
            fn clamp_integer(value: i128) -> $ty {
                value.clamp($ty::MIN.into(), $ty::MAX.into()) as $ty
            }
            #[inline(always)]
            fn clamp_float(value: f64) -> $ty {
                value as $ty
            }
            #[inline(always)]
            fn nan() -> $ty {
                (1_u64 << ($ty::BITS - 1)) as $ty
            }
        }
    )*};
}

integers!(u8, i8, u16, i16, u32, i32, u64, i64);

/// A floating-point value with an exact conversion to double.
pub(crate) trait Real: Lane {
    const DOUBLE: bool = false;
    fn double(self) -> f64;
}

impl Real for f64 {
    const DOUBLE: bool = true;
    #[inline(always)]
    fn double(self) -> f64 {
        self
    }
}

macro_rules! real {
    ($($ty:ty, $v:ident, $value:expr;)*) => {$(
        impl Real for $ty {
            #[inline(always)]
            fn double(self) -> f64 {
                let $v = self;
                $value.into()
            }
        }
    )*};
}

real! {
    f32, v, v;
    F16, v, v.to_f32();
    Bf16, v, v.to_f32();
}

/// A floating-point format to which doubles, possibly rounded to odd, are rounded.
pub(crate) trait FromReal: Lane {
    fn from_real<M: Mode>(value: f64) -> Self;
}

impl FromReal for f64 {
    #[inline(always)]
    fn from_real<M: Mode>(value: f64) -> f64 {
        value
    }
}

impl FromReal for f32 {
    #[inline(always)]
    fn from_real<M: Mode>(value: f64) -> f32 {
        canonical(rounding::single::<M>(value))
    }
}

/// Rounds to a 16-bit format in a rounding mode.
#[inline(always)]
fn half<H: Half, M: Mode>(value: f64) -> H {
    let odd = rounding::single_to_odd(value);
    let nearest = H::nearest(odd);
    let back = f64::from(nearest.single());
    let bits = nearest.bits();
    // A step away from zero increments the bits; from zero it takes the sign of the step.
    match M::DIRECTION {
        Direction::Nearest => nearest,
        Direction::Zero => H::toward_zero(odd),
        Direction::Down if back > value => H::from_bits(step_down(bits)),
        Direction::Up if back < value => H::from_bits(step_down(bits ^ 0x8000) ^ 0x8000),
        Direction::Down | Direction::Up => nearest,
    }
}

/// Next lower value of a finite or infinite value given by its bits.
#[inline(always)]
fn step_down(bits: u16) -> u16 {
    match bits {
        0 | 0x8000 => 0x8001,
        positive if positive & 0x8000 == 0 => positive - 1,
        negative => negative + 1,
    }
}

macro_rules! from_real_half {
    ($($ty:ty),*) => {$(
        impl FromReal for $ty {
            #[inline(always)]
            fn from_real<M: Mode>(value: f64) -> $ty {
                half::<$ty, M>(value)
            }
        }
    )*};
}

from_real_half!(F16, Bf16);

/// Rounds to an integral value.
#[inline(always)]
fn integral<M: Mode>(value: f64) -> f64 {
    match M::DIRECTION {
        Direction::Nearest => value.round_ties_even(),
        Direction::Zero => value.trunc(),
        Direction::Down => value.floor(),
        Direction::Up => value.ceil(),
    }
}

#[inline(always)]
fn integer_from<S: Real, D: Clamp, M: Mode>(value: S) -> D {
    let value = value.double();
    // Saturating conversion maps NaN to zero.
    if value.is_nan() && (S::DOUBLE || size_of::<D>() == 8) {
        return D::nan();
    }
    D::clamp_float(integral::<M>(value))
}

/// Rounds a single to tf32 (10 fraction bits), with ties away from zero or to even.
#[inline(always)]
fn tf32(value: f32, away: bool) -> u32 {
    let bits = value.to_bits();
    let half = if away { 0x1000 } else { 0x0fff + ((bits >> 13) & 1) };
    let rounded = bits.wrapping_add(half) & !0x1fff;
    if value.is_nan() { 0x7fff_ffff } else { rounded }
}

lane_ops! {
    ExtendWord<S: Extend>(a: S) -> u32 = a.word();
    ExtendWide<S: Extend>(a: S) -> u64 = a.wide();
    ClampInteger<S: Extend, D: Clamp>(a: S) -> D = D::clamp_integer(a.integer());
    IntegerFrom<S: Real, D: Clamp, M: Mode>(a: S) -> D = integer_from::<S, D, M>(a);
    SingleFromS32(a: i32) -> f32 = a as f32;
    SingleFromU32(a: u32) -> f32 = a as f32;
    SingleFromS64(a: i64) -> f32 = a as f32;
    SingleFromU64(a: u64) -> f32 = a as f32;
    DoubleFromS32(a: i32) -> f64 = a.into();
    DoubleFromU32(a: u32) -> f64 = a.into();
    DoubleFromInteger<S: Extend, M: Mode>(a: S) -> f64 =
        rounding::double_from_integer::<M>(a.integer());
    /// Rounds an integer to a format shorter than double.
    RealFromInteger<S: Extend, D: FromReal, M: Mode>(a: S) -> D =
        D::from_real::<M>(rounding::double_to_odd(a.integer()));
    /// Rounds a floating-point value to a format.
    RealFrom<S: Real, D: FromReal, M: Mode>(a: S) -> D = D::from_real::<M>(a.double());
    /// Rounds a floating-point value to an integral value.
    Integral<S: Real, D: FromReal, M: Mode>(a: S) -> D =
        D::from_real::<rounding::Nearest>(integral::<M>(a.double()));
    SingleFromF16(a: F16) -> f32 = canonical(a.to_f32());
    SingleFromBf16(a: Bf16) -> f32 = canonical(a.to_f32());
    HalfFromSingle<H: Half>(a: f32) -> u16 = H::nearest(a).bits();
    HalfFromSingleRelu<H: Half>(a: f32) -> u16 = super::float::half_relu(H::nearest(a)).bits();
    HalfFromSingleZeroRelu<H: Half>(a: f32) -> u16 =
        super::float::half_relu(H::toward_zero(a)).bits();
    HalfSaturate<H: Half>(a: u16) -> u16 = super::float::half_saturate(H::from_bits(a)).bits();
    SingleIdentity(a: f32) -> f32 = canonical(a);
    DoubleIdentity(a: f64) -> f64 = a;
    Tf32Away(a: f32) -> u32 = tf32(a, true);
    Tf32Nearest(a: f32) -> u32 = tf32(a, false);
}
