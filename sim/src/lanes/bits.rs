//! Logic, shifts, bit fields, permutations and moves.

use super::int::Int;
use super::lane::{Lane, lane_ops};

/// Bitwise operations.
pub(crate) trait Bits: Lane {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! bits {
    ($($ty:ty),*) => {$(
        impl Bits for $ty {
            #[inline(always)]
            fn and(self, other: $ty) -> $ty {
                self & other
            }
            #[inline(always)]
            fn or(self, other: $ty) -> $ty {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: $ty) -> $ty {
                self ^ other
            }
            #[inline(always)]
            fn not(self) -> $ty {
                !self
            }
        }
    )*};
}

bits!(bool, u32, u64);

/// Bit counting and bit fields of a 32- or 64-bit value.
pub(crate) trait Field: Lane {
    fn population(self) -> u32;
    fn leading_zeros(self) -> u32;
    fn reversed(self) -> Self;
    /// Highest bit that differs from the sign, or that is set if unsigned; all ones if there is
    /// none.
    fn find(self) -> u32;
    fn find_shift(self) -> u32;
    fn extract(self, position: u32, length: u32) -> Self;
    /// Inserts the low bits of `self` into `base`.
    fn insert(self, base: Self, position: u32, length: u32) -> Self;
}

macro_rules! field {
    ($($ty:ident, $unsigned:ident, $signed:expr;)*) => {$(
        impl Field for $ty {
            #[inline(always)]
            fn population(self) -> u32 {
                self.count_ones()
            }
            #[inline(always)]
            fn leading_zeros(self) -> u32 {
                <$ty>::leading_zeros(self)
            }
            #[inline(always)]
            fn reversed(self) -> $ty {
                self.reverse_bits()
            }
            #[inline(always)]
            fn find(self) -> u32 {
                let value = if $signed && self < <$ty>::default() { !self } else { self };
                ($ty::BITS - 1).wrapping_sub(<$ty>::leading_zeros(value))
            }
            #[inline(always)]
            fn find_shift(self) -> u32 {
                let found = Field::find(self);
                if found == u32::MAX { found } else { $ty::BITS - 1 - found }
            }
            #[inline(always)]
            fn extract(self, position: u32, length: u32) -> $ty {
                let (position, length) = (position & 0xff, length & 0xff);
                let top = (position + length).wrapping_sub(1).min($ty::BITS - 1);
                let negative = $signed && length != 0 && (self >> top) & 1 != 0;
                let shifted = if position < $ty::BITS { self as $unsigned >> position } else { 0 };
                let kept = (top + 1).saturating_sub(position).min(length);
                let ones = if kept >= $ty::BITS { $unsigned::MAX } else { (1 << kept) - 1 };
                let kept_bits = shifted & ones;
                (if negative { kept_bits | !ones } else { kept_bits }) as $ty
            }
            #[inline(always)]
            fn insert(self, base: $ty, position: u32, length: u32) -> $ty {
                let (position, length) = (position & 0xff, length & 0xff);
                let ones = if length >= $ty::BITS { $unsigned::MAX } else { (1 << length) - 1 };
                let shift = |value: $unsigned| {
                    if position < $ty::BITS { value << position } else { 0 }
                };
                let mask = shift(ones);
                ((base as $unsigned & !mask) | (shift(self as $unsigned) & mask)) as $ty
            }
        }
    )*};
}

field! {
    u32, u32, false;
    i32, u32, true;
    u64, u64, false;
    i64, u64, true;
}

/// `lop3` with the truth table `imm` of three inputs.
#[inline(always)]
fn logic(a: u32, b: u32, c: u32, table: i64) -> u32 {
    let term = |index: u32, value: u32| if table >> index & 1 != 0 { value } else { 0 };
    let (na, nb, nc) = (!a, !b, !c);
    term(0, na & nb & nc)
        | term(1, na & nb & c)
        | term(2, na & b & nc)
        | term(3, na & b & c)
        | term(4, a & nb & nc)
        | term(5, a & nb & c)
        | term(6, a & b & nc)
        | term(7, a & b & c)
}

/// Byte `selector & 7` of eight, or its replicated sign if bit 3 of the selector is set.
#[inline(always)]
fn permuted_byte(bytes: u64, selector: u32) -> u32 {
    let byte = (bytes >> (8 * (selector & 7))) as u8;
    let sign = (byte as i8 >> 7) as u8;
    u32::from(if selector & 8 != 0 { sign } else { byte })
}

/// `prmt` in its default mode.
#[inline(always)]
fn permute(a: u32, b: u32, selectors: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    (0..4).fold(0, |out, i| out | permuted_byte(bytes, selectors >> (4 * i)) << (8 * i))
}

/// Selectors of `prmt`'s other modes, from the low two bits of `c`.
#[inline(always)]
fn permute_mode(mode: i64, c: u32) -> u32 {
    let at = (c & 3) as usize;
    match mode {
        1 => [0x3210, 0x4321, 0x5432, 0x6543][at],
        2 => [0x5670, 0x6701, 0x7012, 0x0123][at],
        3 => [0x0000, 0x1111, 0x2222, 0x3333][at],
        4 => [0x3210, 0x3211, 0x3222, 0x3333][at],
        5 => [0x0000, 0x1110, 0x2210, 0x3210][at],
        6 => [0x1010, 0x3232, 0x1010, 0x3232][at],
        _ => c,
    }
}

/// 32 bits of `high:low` starting at bit `by`.
#[inline(always)]
fn funnel_right(low: u32, high: u32, by: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> by) as u32
}

/// High word of `high:low` shifted left.
#[inline(always)]
fn funnel_left(low: u32, high: u32, by: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) << by >> 32) as u32
}

lane_ops! {
    Move<T: Lane>(a: T) -> T = a;
    And<T: Bits>(a: T, b: T) -> T = a.and(b);
    Or<T: Bits>(a: T, b: T) -> T = a.or(b);
    Xor<T: Bits>(a: T, b: T) -> T = a.xor(b);
    Not<T: Bits>(a: T) -> T = a.not();
    LogicalNot<T: Int>(a: T) -> T = T::from_bool(a == T::from_bool(false));
    ShiftLeft<T: Int>(a: T, b: u32) -> T = a.shift_left(b);
    ShiftRight<T: Int>(a: T, b: u32) -> T = a.shift_right(b);
    FunnelLeftWrap(a: u32, b: u32, c: u32) -> u32 = funnel_left(a, b, c & 31);
    FunnelLeftClamp(a: u32, b: u32, c: u32) -> u32 = funnel_left(a, b, c.min(32));
    FunnelRightWrap(a: u32, b: u32, c: u32) -> u32 = funnel_right(a, b, c & 31);
    FunnelRightClamp(a: u32, b: u32, c: u32) -> u32 = funnel_right(a, b, c.min(32));
    Population<T: Field>(a: T) -> u32 = a.population();
    LeadingZeros<T: Field>(a: T) -> u32 = a.leading_zeros();
    Reverse<T: Field>(a: T) -> T = a.reversed();
    Find<T: Field>(a: T) -> u32 = a.find();
    FindShift<T: Field>(a: T) -> u32 = a.find_shift();
    Extract<T: Field>(a: T, b: u32, c: u32) -> T = a.extract(b, c);
    /// `c` holds the position in its low half and the length in its high half.
    Insert<T: Field>(a: T, b: T, c: u32) -> T = a.insert(b, c & 0xff, c >> 16);
    /// Packs position and length into the operand of [`Insert`].
    InsertRange(a: u32, b: u32) -> u32 = (a & 0xff) | (b & 0xff) << 16;
    Logic(a: u32, b: u32, c: u32; table) -> u32 = logic(a, b, c, table);
    Permute(a: u32, b: u32, c: u32; mode) -> u32 = permute(a, b, permute_mode(mode, c));
    Select<T: Lane>(a: T, b: T, c: bool) -> T = if c { a } else { b };
    SelectSigned<T: Lane>(a: T, b: T, c: i32) -> T = if c >= 0 { a } else { b };
    SelectSignedFloat<T: Lane>(a: T, b: T, c: f32) -> T = if c >= 0.0 { a } else { b };
    /// Negative subnormals are flushed to zero, which counts as nonnegative.
    SelectSignedFlushed<T: Lane>(a: T, b: T, c: f32) -> T =
        if c > -f32::MIN_POSITIVE { a } else { b };
    /// All ones if the condition holds.
    SetOnes(a: bool) -> u32 = if a { u32::MAX } else { 0 };
    /// 1.0 if the condition holds.
    SetFloat(a: bool) -> f32 = if a { 1.0 } else { 0.0 };
    PackHalves(a: u16, b: u16) -> u32 = u32::from(a) | u32::from(b) << 16;
    PackBytes(a: u8, b: u8) -> u32 = u32::from(a) | u32::from(b) << 8;
    PackWords(a: u32, b: u32) -> u64 = u64::from(a) | u64::from(b) << 32;
    HighByte(a: u16) -> u32 = u32::from(a >> 8);
    HighHalf(a: u32) -> u32 = a >> 16;
    LowWord(a: u64) -> u32 = a as u32;
    HighWord(a: u64) -> u32 = (a >> 32) as u32;
}
