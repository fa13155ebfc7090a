//! Integer arithmetic.

use super::lane::{Lane, lane_ops};

/// An integer type.
pub(crate) trait Int: Lane + Ord {
    type Double: Lane;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    fn mul_wide(self, other: Self) -> Self::Double;
    fn add_double(a: Self::Double, b: Self::Double) -> Self::Double;
    /// Quotient; division by zero returns all ones, as on hardware.
    fn div(self, other: Self) -> Self;
    /// Remainder; that of a division by zero is the dividend.
    fn rem(self, other: Self) -> Self;
    fn abs(self) -> Self;
    fn neg(self) -> Self;
    fn abs_difference(self, other: Self) -> Self;
    /// Carry of the unsigned sum with a carry in.
    fn carries(self, other: Self, carry: bool) -> bool;
    /// Borrow of the unsigned difference with a borrow in.
    fn complement(self) -> Self;
    fn from_bool(value: bool) -> Self;
    fn shift_left(self, by: u32) -> Self;
    /// Arithmetic shift if signed; `by` is clamped.
    fn shift_right(self, by: u32) -> Self;
}

macro_rules! int {
    ($($ty:ident, $double:ident, $wide:ident, $unsigned:ident, $abs:expr;)*) => {$(
        impl Int for $ty {
            type Double = $double;
            #[inline(always)]
            fn add(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: $ty) -> $ty {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn mul_high(self, other: $ty) -> $ty {
                ((self as $wide).wrapping_mul(other as $wide) >> $ty::BITS) as $ty
            }
            #[inline(always)]
            fn mul_wide(self, other: $ty) -> $double {
                (self as $double).wrapping_mul(other as $double)
            }
            #[inline(always)]
            fn add_double(a: $double, b: $double) -> $double {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn div(self, other: $ty) -> $ty {
                if other == 0 { $unsigned::MAX as $ty } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: $ty) -> $ty {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn abs(self) -> $ty {
                let abs: fn($ty) -> $ty = $abs;
                abs(self)
            }
            #[inline(always)]
            fn neg(self) -> $ty {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs_difference(self, other: $ty) -> $ty {
                if self > other { self.wrapping_sub(other) } else { other.wrapping_sub(self) }
            }
            #[inline(always)]
            fn carries(self, other: $ty, carry: bool) -> bool {
                let (sum, first) = (self as $unsigned).overflowing_add(other as $unsigned);
                first | sum.overflowing_add(carry as $unsigned).1
            }
            #[inline(always)]
            fn complement(self) -> $ty {
                !self
            }
            #[inline(always)]
            fn from_bool(value: bool) -> $ty {
                value as $ty
            }
            #[inline(always)]
            fn shift_left(self, by: u32) -> $ty {
                if by < $ty::BITS { self << (by & ($ty::BITS - 1)) } else { 0 }
            }
            #[inline(always)]
            fn shift_right(self, by: u32) -> $ty {
                if by < $ty::BITS {
                    self >> (by & ($ty::BITS - 1))
                } else if self < $ty::default() {
                    $unsigned::MAX as $ty
                } else {
                    0
                }
            }
        }
    )*};
}

int! {
    u16, u32, u32, u16, |value| value;
    i16, i32, i32, u16, i16::wrapping_abs;
    u32, u64, u64, u32, |value| value;
    i32, i64, i64, u32, i32::wrapping_abs;
    u64, u64, u128, u64, |value| value;
    i64, i64, i128, u64, i64::wrapping_abs;
}

/// Low 24 bits, sign-extended.
#[inline(always)]
fn signed_24(value: i32) -> i64 {
    i64::from(value << 8 >> 8)
}

/// Low 24 bits, zero-extended.
#[inline(always)]
fn unsigned_24(value: u32) -> u64 {
    u64::from(value & 0x00ff_ffff)
}

/// Dot product of four bytes, with separate signedness.
#[inline(always)]
fn dot_bytes(a: u32, b: u32, signed: (bool, bool)) -> u32 {
    let byte = |value: u32, index: u32, signed: bool| {
        let byte = (value >> (8 * index)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    let product = |i| byte(a, i, signed.0).wrapping_mul(byte(b, i, signed.1));
    (product(0) + product(1) + product(2) + product(3)) as u32
}

/// Dot product of the two halves of `a` with the two low bytes of `b`.
#[inline(always)]
fn dot_halves(a: u32, b: u32, signed: (bool, bool)) -> u32 {
    let half = |index: u32| {
        let half = (a >> (16 * index)) as u16;
        if signed.0 { i32::from(half as i16) } else { i32::from(half) }
    };
    let byte = |index: u32| {
        let byte = (b >> (8 * index)) as u8;
        if signed.1 { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (half(0) * byte(0) + half(1) * byte(1)) as u32
}

lane_ops! {
    IntAdd<T: Int>(a: T, b: T) -> T = a.add(b);
    IntSub<T: Int>(a: T, b: T) -> T = a.sub(b);
    IntMulLow<T: Int>(a: T, b: T) -> T = a.mul(b);
    IntMulHigh<T: Int>(a: T, b: T) -> T = a.mul_high(b);
    IntMulWide<T: Int>(a: T, b: T) -> T::Double = a.mul_wide(b);
    IntMadLow<T: Int>(a: T, b: T, c: T) -> T = a.mul(b).add(c);
    IntMadHigh<T: Int>(a: T, b: T, c: T) -> T = a.mul_high(b).add(c);
    IntMadWide<T: Int>(a: T, b: T, c: T::Double) -> T::Double = T::add_double(a.mul_wide(b), c);
    IntDiv<T: Int>(a: T, b: T) -> T = a.div(b);
    IntRem<T: Int>(a: T, b: T) -> T = a.rem(b);
    IntMin<T: Int>(a: T, b: T) -> T = a.min(b);
    IntMax<T: Int>(a: T, b: T) -> T = a.max(b);
    IntAbs<T: Int>(a: T) -> T = a.abs();
    IntNeg<T: Int>(a: T) -> T = a.neg();
    IntSad<T: Int>(a: T, b: T, c: T) -> T = a.abs_difference(b).add(c);
    AddSat(a: i32, b: i32) -> i32 = a.saturating_add(b);
    SubSat(a: i32, b: i32) -> i32 = a.saturating_sub(b);
    /// Sum with carry in.
    AddCarry<T: Int>(a: T, b: T, c: bool) -> T = a.add(b).add(T::from_bool(c));
    /// The carry out of [`AddCarry`].
    AddCarryOut<T: Int>(a: T, b: T, c: bool) -> bool = a.carries(b, c);
    /// Difference with carry in, which is 1 where nothing is borrowed.
    SubCarry<T: Int>(a: T, b: T, c: bool) -> T = a.add(b.complement()).add(T::from_bool(c));
    /// The carry out of [`SubCarry`].
    SubCarryOut<T: Int>(a: T, b: T, c: bool) -> bool = a.carries(b.complement(), c);
    Mul24LowU(a: u32, b: u32) -> u32 = unsigned_24(a).wrapping_mul(unsigned_24(b)) as u32;
    Mul24LowS(a: i32, b: i32) -> i32 = signed_24(a).wrapping_mul(signed_24(b)) as i32;
    Mul24HighU(a: u32, b: u32) -> u32 = (unsigned_24(a).wrapping_mul(unsigned_24(b)) >> 16) as u32;
    Mul24HighS(a: i32, b: i32) -> i32 = (signed_24(a).wrapping_mul(signed_24(b)) >> 16) as i32;
    /// Bits 0 and 1 of the immediate: whether the bytes of `a` and `b` are signed.
    Dp4a(a: u32, b: u32, c: u32; signed) -> u32 =
        c.wrapping_add(dot_bytes(a, b, (signed & 1 != 0, signed & 2 != 0)));
    /// Halves of `a` by the low bytes of `b`; the immediate is as for [`Dp4a`].
    Dp2aLow(a: u32, b: u32, c: u32; signed) -> u32 =
        c.wrapping_add(dot_halves(a, b, (signed & 1 != 0, signed & 2 != 0)));
    /// Halves of `a` by the high bytes of `b`.
    Dp2aHigh(a: u32, b: u32, c: u32; signed) -> u32 =
        c.wrapping_add(dot_halves(a, b >> 16, (signed & 1 != 0, signed & 2 != 0)));
}
