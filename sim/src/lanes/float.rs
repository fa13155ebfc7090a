//! Floating-point arithmetic in single and double precision, and scalar 16-bit arithmetic.
//!
//! Single-precision operations return the canonical NaN 0x7fffffff, as on hardware; double
//! precision returns the host's NaN.

use super::lane::{Lane, lane_ops};
use crate::half::Half;
use crate::rounding::{self, Mode};

/// Single or double precision arithmetic in a rounding mode.
pub(crate) trait Float: Lane {
    fn add<M: Mode>(self, other: Self) -> Self;
    fn mul<M: Mode>(self, other: Self) -> Self;
    fn fma<M: Mode>(self, b: Self, c: Self) -> Self;
    fn div<M: Mode>(self, other: Self) -> Self;
    fn sqrt<M: Mode>(self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn one() -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn min_nan(self, other: Self) -> Self;
    fn max_nan(self, other: Self) -> Self;
    fn sign_xor(self, other: Self, value: Self) -> Self;
    fn test(self, property: i64) -> bool;
}

/// Properties of `testp`, by immediate.
pub(crate) const TEST_PROPERTIES: [&str; 6] =
    ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];

macro_rules! float {
    ($($ty:ident, $bits:ident, $v:ident, $canonical:expr, $add:ident, $mul:ident, $fma:ident,
       $div:ident, $sqrt:ident;)*) => {$(
        impl Float for $ty {
            #[inline(always)]
            fn add<M: Mode>(self, other: $ty) -> $ty {
                let $v = rounding::$add::<M>(self, other);
                $canonical
            }
            #[inline(always)]
            fn mul<M: Mode>(self, other: $ty) -> $ty {
                let $v = rounding::$mul::<M>(self, other);
                $canonical
            }
            #[inline(always)]
            fn fma<M: Mode>(self, b: $ty, c: $ty) -> $ty {
                let $v = rounding::$fma::<M>(self, b, c);
                $canonical
            }
            #[inline(always)]
            fn div<M: Mode>(self, other: $ty) -> $ty {
                let $v = rounding::$div::<M>(self, other);
                $canonical
            }
            #[inline(always)]
            fn sqrt<M: Mode>(self) -> $ty {
                let $v = rounding::$sqrt::<M>(self);
                $canonical
            }
            #[inline(always)]
            fn neg(self) -> $ty {
                -self
            }
            #[inline(always)]
            fn abs(self) -> $ty {
                $ty::abs(self)
            }
            #[inline(always)]
            fn one() -> $ty {
                1.0
            }
            #[inline(always)]
            fn copysign(self, sign: $ty) -> $ty {
                $ty::copysign(self, sign)
            }
            #[inline(always)]
            fn min(self, other: $ty) -> $ty {
                let less = self < other || (self == other && self.is_sign_negative());
                let $v = if less || other.is_nan() { self } else { other };
                $canonical
            }
            #[inline(always)]
            fn max(self, other: $ty) -> $ty {
                let more = self > other || (self == other && self.is_sign_positive());
                let $v = if more || other.is_nan() { self } else { other };
                $canonical
            }
            #[inline(always)]
            fn min_nan(self, other: $ty) -> $ty {
                let $v = if self.is_nan() { self } else { Float::min(other, self) };
                let $v = if other.is_nan() { other } else { $v };
                $canonical
            }
            #[inline(always)]
            fn max_nan(self, other: $ty) -> $ty {
                let $v = if self.is_nan() { self } else { Float::max(other, self) };
                let $v = if other.is_nan() { other } else { $v };
                $canonical
            }
            #[inline(always)]
            fn sign_xor(self, other: $ty, value: $ty) -> $ty {
                let sign = (self.to_bits() ^ other.to_bits()) & (1 << ($bits::BITS - 1));
                $ty::from_bits(value.abs().to_bits() | sign)
            }
            #[inline(always)]
            fn test(self, property: i64) -> bool {
                match property {
                    0 => self.is_finite(),
                    1 => self.is_infinite(),
                    2 => !self.is_nan(),
                    3 => self.is_nan(),
                    // Zeros count as normal.
                    4 => self.is_normal() || self == 0.0,
                    _ => self.is_subnormal(),
                }
            }
        }
    )*};
}

/// Replaces NaN by the canonical NaN of single precision.
#[inline(always)]
pub(crate) fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(0x7fff_ffff) } else { value }
}

float! {
    f32, u32, v, canonical(v), add_single, mul_single, fma_single, div_single, sqrt_single;
    f64, u64, v, v, add_double, mul_double, fma_double, div_double, sqrt_double;
}

lane_ops! {
    FloatAdd<T: Float, M: Mode>(a: T, b: T) -> T = a.add::<M>(b);
    FloatSub<T: Float, M: Mode>(a: T, b: T) -> T = a.add::<M>(b.neg());
    FloatMul<T: Float, M: Mode>(a: T, b: T) -> T = a.mul::<M>(b);
    FloatFma<T: Float, M: Mode>(a: T, b: T, c: T) -> T = a.fma::<M>(b, c);
    FloatDiv<T: Float, M: Mode>(a: T, b: T) -> T = a.div::<M>(b);
    FloatRcp<T: Float, M: Mode>(a: T) -> T = T::one().div::<M>(a);
    FloatSqrt<T: Float, M: Mode>(a: T) -> T = a.sqrt::<M>();
    FloatNeg<T: Float>(a: T) -> T = a.neg();
    FloatAbs<T: Float>(a: T) -> T = a.abs();
    /// `copysign d, a, b`: magnitude of `b` with the sign of `a`.
    FloatCopySign<T: Float>(a: T, b: T) -> T = b.copysign(a);
    FloatMin<T: Float>(a: T, b: T) -> T = a.min(b);
    FloatMax<T: Float>(a: T, b: T) -> T = a.max(b);
    FloatMinNan<T: Float>(a: T, b: T) -> T = a.min_nan(b);
    FloatMaxNan<T: Float>(a: T, b: T) -> T = a.max_nan(b);
    /// `min.xorsign.abs`; bit 0 of the immediate enables NaN propagation.
    FloatMinXor<T: Float>(a: T, b: T; nan) -> T =
        a.sign_xor(b, if nan != 0 { a.abs().min_nan(b.abs()) } else { a.abs().min(b.abs()) });
    FloatMaxXor<T: Float>(a: T, b: T; nan) -> T =
        a.sign_xor(b, if nan != 0 { a.abs().max_nan(b.abs()) } else { a.abs().max(b.abs()) });
    FloatTest<T: Float>(a: T; property) -> bool = a.test(property);
}

/// `a * b + c` in a 16-bit format, rounded once, since the double product is exact.
#[inline(always)]
pub(crate) fn half_fma<H: Half>(a: H, b: H, c: H) -> H {
    let product = f64::from(a.single()) * f64::from(b.single());
    H::from_odd(rounding::add_to_odd(product, c.single().into()))
}

/// Minimum; -0 is less than +0.
#[inline(always)]
pub(crate) fn half_min<H: Half>(a: H, b: H, nan: bool) -> H {
    let (x, y) = (a.single(), b.single());
    half_pick(if nan { Float::min_nan(x, y) } else { Float::min(x, y) })
}

/// Maximum; +0 is greater than -0.
#[inline(always)]
pub(crate) fn half_max<H: Half>(a: H, b: H, nan: bool) -> H {
    let (x, y) = (a.single(), b.single());
    half_pick(if nan { Float::max_nan(x, y) } else { Float::max(x, y) })
}

#[inline(always)]
fn half_pick<H: Half>(value: f32) -> H {
    H::nearest(value)
}

/// Clamps to [0, 1]; NaN becomes +0.
#[inline(always)]
pub(crate) fn half_saturate<H: Half>(value: H) -> H {
    let single = value.single();
    if single > 1.0 {
        H::from_bits(H::ONE)
    } else if single > 0.0 {
        value
    } else {
        H::from_bits(0)
    }
}

/// Maps negative numbers to +0; NaN is kept.
#[inline(always)]
pub(crate) fn half_relu<H: Half>(value: H) -> H {
    if value.single() < 0.0 || value.bits() == 0x8000 { H::from_bits(0) } else { value }
}
