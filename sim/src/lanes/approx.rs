//! The `.approx` functions.
//!
//! PTX bounds their errors (ex2 2^-22 relative, lg2 2^-22 absolute, sin and cos 2^-20.9 absolute on
//! [-pi, pi], tanh 2^-11 relative, rcp, sqrt and rsqrt about 1 ulp) without specifying the value
//! that the hardware returns. This machine evaluates them in double precision and rounds once, so
//! the error is at most 0.501 ulp, better than on hardware. Only correctly rounded operations are
//! used, so the result is the same on every host. For sin and cos this holds up to 2^20; beyond,
//! where PTX specifies nothing, argument reduction loses bits.
//!
//! With `Accuracy::Worst` they have the whole error that PTX documents instead.

use super::float::canonical;
use super::lane::lane_ops;
use crate::accuracy::off;

/// 2^x for |x| < 1100: power series of the fractional part with twelve terms, error below 2^-52.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let shifted = x + ROUND;
    let fraction = (x - (shifted - ROUND)) * std::f64::consts::LN_2;
    let mut sum = 1.0 / 479_001_600.0;
    for coefficient in [
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * fraction + coefficient;
    }
    // `ROUND` is 1.5 * 2^52, so the integer is in the low bits of the sum.
    let exponent = shifted.to_bits() as i32 as i64;
    sum * f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// A value from its exact one and the bits of its operand: rounded to nearest.
#[inline(always)]
pub(crate) fn nearest(exact: f64, _bits: u32) -> f32 {
    exact as f32
}

/// A value with a relative error of 2^`power`.
#[inline(always)]
pub(crate) fn relative(power: f64) -> impl Fn(f64, u32) -> f32 {
    let error = exp2(power);
    move |exact, bits| off(exact, exact.abs() * error, bits)
}

/// A value with an absolute error of 2^`power`.
#[inline(always)]
pub(crate) fn absolute(power: f64) -> impl Fn(f64, u32) -> f32 {
    let error = exp2(power);
    move |exact, bits| off(exact, error, bits)
}

/// 2^x.
#[inline(always)]
pub(crate) fn ex2(x: f32, rounded: impl Fn(f64, u32) -> f32) -> f32 {
    let bounded = f64::from(x).clamp(-300.0, 300.0);
    canonical(if x.is_nan() { x } else { rounded(exp2(bounded), x.to_bits()) })
}

/// Binary logarithm of a positive number.
#[inline(always)]
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    // Puts the significand in [sqrt(1/2), sqrt(2)).
    let shifted = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let exponent = (shifted as i64) >> 52;
    let significand = f64::from_bits(bits.wrapping_sub((exponent << 52) as u64));
    let ratio = (significand - 1.0) / (significand + 1.0);
    let square = ratio * ratio;
    let mut sum = 1.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        sum = sum * square + 1.0 / odd;
    }
    (exponent as i32 as f64) + 2.0 * std::f64::consts::LOG2_E * ratio * sum
}

/// Binary logarithm.
#[inline(always)]
fn lg2(x: f32, rounded: impl Fn(f64, u32) -> f32) -> f32 {
    let positive = x > 0.0 && x < f32::INFINITY;
    let regular = rounded(log2(f64::from(if positive { x } else { 1.0 })), x.to_bits());
    let edge = if x == 0.0 {
        f32::NEG_INFINITY
    } else if x > 0.0 {
        f32::INFINITY
    } else {
        f32::NAN
    };
    canonical(if positive { regular } else { edge })
}

/// Sine or cosine of the reduced argument, by quadrant.
#[inline(always)]
fn sine(x: f32, quarter_turns: i32, rounded: impl Fn(f64, u32) -> f32) -> f32 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // Pi / 2 in two parts, the first of 33 bits.
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let (finite, bits) = (x.is_finite(), x.to_bits());
    let x = f64::from(if finite { x } else { 0.0 });
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let turns = shifted - ROUND;
    let rest = (x - turns * HIGH) - turns * LOW;
    let square = rest * rest;
    let mut sine = -1.0 / 1_307_674_368_000.0;
    for term in [
        1.0 / 6_227_020_800.0,
        -1.0 / 39_916_800.0,
        1.0 / 362_880.0,
        -1.0 / 5_040.0,
        1.0 / 120.0,
        -1.0 / 6.0,
        1.0,
    ] {
        sine = sine * square + term;
    }
    let mut cosine = 1.0 / 20_922_789_888_000.0;
    for term in [
        -1.0 / 87_178_291_200.0,
        1.0 / 479_001_600.0,
        -1.0 / 3_628_800.0,
        1.0 / 40_320.0,
        -1.0 / 720.0,
        1.0 / 24.0,
        -0.5,
        1.0,
    ] {
        cosine = cosine * square + term;
    }
    let quadrant = (shifted.to_bits() as i32).wrapping_add(quarter_turns);
    let value = if quadrant & 1 == 0 { sine * rest } else { cosine };
    let signed = if quadrant & 2 == 0 { value } else { -value };
    let bounded = rounded(signed.clamp(-1.0, 1.0), bits).clamp(-1.0, 1.0);
    canonical(if finite { bounded } else { f32::NAN })
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32, rounded: impl Fn(f64, u32) -> f32) -> f32 {
    let magnitude = f64::from(x.abs()).min(20.0);
    let square = magnitude * magnitude;
    let power = exp2(2.0 * std::f64::consts::LOG2_E * magnitude);
    let large = (power - 1.0) / (power + 1.0);
    // Below 1/64 the difference cancels; three terms of the series have an error of 2^-40 there.
    let small = magnitude * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0)));
    let value = if magnitude < 1.0 / 64.0 { small } else { large };
    let value = rounded(value, x.to_bits()).clamp(0.0, 1.0);
    canonical(if x.is_nan() { x } else { value.copysign(x) })
}

lane_ops! {
    Ex2(a: f32) -> f32 = ex2(a, nearest);
    Lg2(a: f32) -> f32 = lg2(a, nearest);
    Sin(a: f32) -> f32 = sine(a, 0, nearest);
    Cos(a: f32) -> f32 = sine(a, 1, nearest);
    Tanh(a: f32) -> f32 = tanh(a, nearest);
    Ex2Worst(a: f32) -> f32 = ex2(a, |exact, bits| off_power(exact, bits, -22.0));
    Lg2Worst(a: f32) -> f32 = lg2(a, logarithmic);
    SinWorst(a: f32) -> f32 = sine(a, 0, off_sine);
    CosWorst(a: f32) -> f32 = sine(a, 1, off_sine);
    TanhWorst(a: f32) -> f32 = tanh(a, relative(-11.0));
    RsqrtWorst(a: f32) -> f32 = canonical(relative(-22.9)(1.0 / f64::from(a).sqrt(), a.to_bits()));
    RcpWorst(a: f32) -> f32 = canonical(relative(-23.0)(1.0 / f64::from(a), a.to_bits()));
    SqrtWorst(a: f32) -> f32 = canonical(relative(-23.0)(f64::from(a).sqrt(), a.to_bits()));
    DivWorst(a: f32, b: f32) -> f32 =
        canonical(relative(-22.0)(f64::from(a) / f64::from(b), a.to_bits() ^ b.to_bits()));
    Rsqrt(a: f32) -> f32 = canonical((1.0 / f64::from(a).sqrt()) as f32);
    /// The low word of the result is zero, as `rcp.approx.ftz.f64` specifies.
    RcpHigh(a: f64) -> f64 = high_word(1.0 / flush(a));
    RsqrtHigh(a: f64) -> f64 = high_word(1.0 / flush(a).sqrt());
    RsqrtDouble(a: f64) -> f64 = 1.0 / a.sqrt();
}

/// A power of two with a relative error of 2^`power`. Those of integers are exact: NVIDIA's own
/// libraries scale by them.
#[inline(always)]
pub(crate) fn off_power(exact: f64, bits: u32, power: f64) -> f32 {
    match f32::from_bits(bits).fract() == 0.0 {
        true => exact as f32,
        false => relative(power)(exact, bits),
    }
}

/// A sine or cosine off by 2^-20.9, but for that of zero, which is exact.
#[inline(always)]
fn off_sine(exact: f64, bits: u32) -> f32 {
    match bits << 1 {
        0 => exact as f32,
        _ => absolute(-20.9)(exact, bits),
    }
}

/// A logarithm off by 2^-22: absolute for operands in (1/2, 2), else relative.
#[inline(always)]
fn logarithmic(exact: f64, bits: u32) -> f32 {
    off(exact, exact.abs().max(1.0) * exp2(-22.0), bits)
}

#[inline(always)]
fn flush(value: f64) -> f64 {
    if value.is_subnormal() { 0.0_f64.copysign(value) } else { value }
}

#[inline(always)]
fn high_word(value: f64) -> f64 {
    f64::from_bits(value.to_bits() & !0xffff_ffff)
}
