//! Ranges of bits, by the pseudo-code of the PTX document.

use super::lane::lane_ops;

/// Immediate flag: amounts are clamped instead of wrapped.
pub(crate) const CLAMPS: i64 = 1;
/// Immediate flag: the value is signed.
pub(crate) const SIGNED: i64 = 2;

/// Extends the low `amount` bits of a value.
#[inline(always)]
fn extend_from(value: u32, amount: u32, flags: i64) -> u32 {
    let low = amount & 31;
    let beyond = amount >= 32 && flags & CLAMPS != 0;
    let mask = if beyond { 0 } else { u32::MAX << low };
    let signed = flags & SIGNED != 0 && low != 0 && !beyond;
    let negative = signed && value >> (low.wrapping_sub(1) & 31) & 1 != 0;
    value & !mask | if negative { mask } else { 0 }
}

/// `width` ones from bit `first` on.
#[inline(always)]
fn bit_mask(first: u32, width: u32, flags: i64) -> u32 {
    let clamps = flags & CLAMPS != 0;
    let (low, sum) = (first & 31, (first & 31) + (width & 31));
    let from = if clamps && first >= 32 { 0 } else { u32::MAX << low };
    let open = sum >= 32 || clamps && (first >= 32 || width >= 32);
    let beyond = if open { 0 } else { u32::MAX << (sum & 31) };
    from & !beyond
}

/// Position of the `offset`-th set bit from `base` on, upwards if positive; all ones if there is
/// none.
#[inline(always)]
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    let set = |at: i64| (0..32).contains(&at) && mask >> at & 1 != 0;
    let mut at = i64::from(base);
    if offset == 0 {
        return if set(at) { base } else { u32::MAX };
    }
    let mut left = offset.unsigned_abs();
    for _ in 0..32 {
        if set(at) {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += if offset > 0 { 1 } else { -1 };
    }
    u32::MAX
}

lane_ops! {
    ExtendFrom(a: u32, b: u32; flags) -> u32 = extend_from(a, b, flags);
    BitMask(a: u32, b: u32; flags) -> u32 = bit_mask(a, b, flags);
    FindNth(a: u32, b: u32, c: i32) -> u32 = find_nth(a, b, c);
}
