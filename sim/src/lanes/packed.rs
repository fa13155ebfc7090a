//! 16-bit floating-point arithmetic, scalar and packed.
//!
//! Operations are defined for a single value; the packed form applies them to both halves. The
//! immediate holds the flags below.

use super::approx::{absolute, ex2, nearest, off_power, tanh};
use super::float::{half_fma, half_max, half_min, half_relu, half_saturate};
use super::lane::{LaneOp, lane_ops};
use crate::half::Half;
use std::marker::PhantomData;

/// Immediate flag: clamp the result to [0, 1].
pub(crate) const SATURATE: i64 = 1;
/// Immediate flag: clamp a negative result to 0.
pub(crate) const RELU: i64 = 2;
/// Immediate flag: propagate NaN.
pub(crate) const NAN: i64 = 4;
/// Immediate flag: flush subnormal operands and results to zero.
pub(crate) const FLUSH: i64 = 8;

/// Immediate flag: compare magnitudes; the sign of the result is the XOR of the signs.
pub(crate) const XOR_SIGN: i64 = 16;

/// A function of three 16-bit values.
pub(crate) trait HalfFunction<H: Half> {
    fn apply(a: H, b: H, c: H, flags: i64) -> H;
}

macro_rules! half_functions {
    ($($name:ident($a:ident, $b:ident, $c:ident, $flags:ident) = $body:expr;)*) => {$(
        pub(crate) struct $name;
        impl<H: Half> HalfFunction<H> for $name {
            #[inline(always)]
            fn apply($a: H, $b: H, $c: H, $flags: i64) -> H {
                $body
            }
        }
    )*};
}

half_functions! {
    HalfAdd(a, b, _c, _flags) = H::nearest(a.single() + b.single());
    HalfSub(a, b, _c, _flags) = H::nearest(a.single() - b.single());
    HalfMul(a, b, _c, _flags) = H::from_odd(f64::from(a.single()) * f64::from(b.single()));
    HalfFma(a, b, c, _flags) = half_fma(a, b, c);
    HalfMin(a, b, _c, flags) = extremum(a, b, flags, half_min);
    HalfMax(a, b, _c, flags) = extremum(a, b, flags, half_max);
    HalfNeg(a, _b, _c, _flags) = H::from_bits(a.bits() ^ 0x8000);
    HalfAbs(a, _b, _c, _flags) = H::from_bits(a.bits() & 0x7fff);
    HalfEx2(a, _b, _c, _flags) = H::nearest(ex2(a.single(), nearest));
    HalfTanh(a, _b, _c, _flags) = H::nearest(tanh(a.single(), nearest));
    HalfEx2Worst(a, _b, _c, _flags) =
        H::nearest(ex2(a.single(), |exact, bits| off_power(exact, bits, H::EX2_ERROR)));
    HalfTanhWorst(a, _b, _c, _flags) = H::nearest(tanh(a.single(), absolute(H::TANH_ERROR)));
}

#[inline(always)]
fn extremum<H: Half>(a: H, b: H, flags: i64, pick: impl Fn(H, H, bool) -> H) -> H {
    let nan = flags & NAN != 0;
    if flags & XOR_SIGN == 0 {
        return pick(a, b, nan);
    }
    let magnitude = |value: H| H::from_bits(value.bits() & 0x7fff);
    let result = pick(magnitude(a), magnitude(b), nan);
    let sign = if result.single().is_nan() { 0 } else { (a.bits() ^ b.bits()) & 0x8000 };
    H::from_bits(result.bits() | sign)
}

/// Flushes f16 subnormals to signed zero; has no effect for bf16.
#[inline(always)]
fn flush<H: Half>(value: H) -> H {
    let bits = value.bits();
    if bits & 0x7c00 == 0 { H::from_bits(bits & 0x8000) } else { value }
}

#[inline(always)]
fn finished<H: Half, F: HalfFunction<H>>(a: u16, b: u16, c: u16, flags: i64) -> u16 {
    let operand = |bits: u16| {
        let value = H::from_bits(bits);
        if flags & FLUSH != 0 { flush(value) } else { value }
    };
    let mut value = F::apply(operand(a), operand(b), operand(c), flags);
    if flags & FLUSH != 0 {
        value = flush(value);
    }
    if flags & SATURATE != 0 {
        value = half_saturate(value);
    }
    if flags & RELU != 0 {
        value = half_relu(value);
    }
    value.bits()
}

/// Scalar form.
pub(crate) struct Scalar<H, F>(PhantomData<(H, F)>);

impl<H: Half, F: HalfFunction<H>> LaneOp for Scalar<H, F> {
    type A = u16;
    type B = u16;
    type C = u16;
    type D = u16;
    #[inline(always)]
    fn eval(a: u16, b: u16, c: u16, flags: i64) -> u16 {
        finished::<H, F>(a, b, c, flags)
    }
}

/// Packed form.
pub(crate) struct Packed<H, F>(PhantomData<(H, F)>);

impl<H: Half, F: HalfFunction<H>> LaneOp for Packed<H, F> {
    type A = u32;
    type B = u32;
    type C = u32;
    type D = u32;
    #[inline(always)]
    fn eval(a: u32, b: u32, c: u32, flags: i64) -> u32 {
        let low = finished::<H, F>(a as u16, b as u16, c as u16, flags);
        let high = finished::<H, F>((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16, flags);
        u32::from(low) | u32::from(high) << 16
    }
}

lane_ops! {
    /// A value in each half of a word whose predicate holds.
    SetHalves(a: bool, b: bool; truth) -> u32 =
        (if a { truth as u32 } else { 0 }) | (if b { (truth as u32) << 16 } else { 0 });
    /// Packs two singles, `a` in the high half.
    PackNearest<H: Half>(a: f32, b: f32) -> u32 = pack(H::nearest(a), H::nearest(b));
    PackZero<H: Half>(a: f32, b: f32) -> u32 = pack(H::toward_zero(a), H::toward_zero(b));
    PackNearestRelu<H: Half>(a: f32, b: f32) -> u32 =
        pack(half_relu(H::nearest(a)), half_relu(H::nearest(b)));
    PackZeroRelu<H: Half>(a: f32, b: f32) -> u32 =
        pack(half_relu(H::toward_zero(a)), half_relu(H::toward_zero(b)));
}

#[inline(always)]
fn pack<H: Half>(high: H, low: H) -> u32 {
    u32::from(low.bits()) | u32::from(high.bits()) << 16
}
