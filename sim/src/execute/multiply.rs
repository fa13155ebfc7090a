//! `mma.sync`: unpacks fragments to arrays, multiplies, and packs the result.
//!
//! Products are exact; floating-point accumulation starts with C and adds the products in K order,
//! each rounded to nearest. Hardware adds several products at once, in another order and with its
//! own rounding, so compare with a tolerance.

use crate::context::Context;
use crate::format::Format;
use crate::half::F16;
use crate::lanes::{canonical, leveled};
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::Multiply;
use crate::warp::Warp;

/// An operand in slices of eight elements along K: rows of half of A, or columns of B.
pub(super) type Slices<T, const K: usize> = [[T; 8]; K];

/// An accumulator tile of 8 x 8.
pub(super) type Sums<T> = [[T; 8]; 8];

/// Element of a lane's register. A lane holds `per` neighbours along K in one register; its eight
/// groups of lanes are the rows (or columns).
#[inline(always)]
pub(super) fn slice<T: Copy, const K: usize>(
    out: &mut Slices<T, K>,
    words: &[u32; LANES],
    first_k: usize,
    bits: usize,
    value: impl Fn(u32) -> T,
) {
    let per = 32 / bits;
    for part in 0..per {
        for (lane, word) in words.iter().enumerate() {
            out[first_k + lane % 4 * per + part][lane / 4] = value(word >> (part * bits));
        }
    }
}

/// Multiplies one half of A by B; `muladd` is the accumulation step.
#[inline(always)]
pub(super) fn accumulate<T: Copy, const K: usize>(
    a: &Slices<T, K>,
    b: &Slices<T, K>,
    k: usize,
    sums: &mut Sums<T>,
    muladd: impl Fn(T, T, T) -> T,
) {
    let mut out = *sums;
    for (a, b) in a[..k].iter().zip(&b[..k]) {
        for row in 0..8 {
            for column in 0..8 {
                out[row][column] = muladd(a[row], b[column], out[row][column]);
            }
        }
    }
    *sums = out;
}

/// Both operands of an MMA in slices: the halves of A, and B.
#[inline(always)]
pub(super) fn operands<T: Copy, const K: usize>(
    warp: &Warp,
    cx: &Context<'_>,
    product: Multiply,
    reads: &[Slot],
    zero: T,
    value: impl Fn(Format, u32) -> T,
) -> [Slices<T, K>; 3] {
    let mut out = [[[zero; 8]; K]; 3];
    let Multiply { a, b, .. } = product;
    let [in_a, in_b, _] = product.registers();
    let halves = usize::from(product.m) / 8;
    let word = |index: usize| warp.registers.word(&cx.program.constants, reads[index]);
    for index in 0..in_a {
        let first_k = index / halves * (128 / a.bits());
        slice(&mut out[index % halves], word(index), first_k, a.bits(), |w| value(a, w));
    }
    for index in 0..in_b {
        let first_k = index * (128 / b.bits());
        slice(&mut out[2], word(in_a + index), first_k, b.bits(), |w| value(b, w));
    }
    out
}

/// A floating-point MMA with K of at most `K`; inlined for each format, so that an operand's
/// conversion is one loop.
#[inline(always)]
fn floating<const K: usize>(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let k = usize::from(product.k);
    let slices = operands::<f32, K>(warp, cx, product, reads, 0.0, Format::single);
    let narrow = product.sum == Format::F16;
    for half in 0..2 {
        let mut sums = [[0.0_f32; 8]; 8];
        let c =
            |index: usize| *warp.registers.word(&cx.program.constants, reads[in_a + in_b + index]);
        let (low, high) = match narrow {
            true => (c(half), c(half)),
            false => (c(2 * half), c(2 * half + 1)),
        };
        for lane in 0..LANES {
            let pair = match narrow {
                true => [F16(low[lane] as u16).to_f32(), F16((high[lane] >> 16) as u16).to_f32()],
                false => [f32::from_bits(low[lane]), f32::from_bits(high[lane])],
            };
            sums[lane / 4][lane % 4 * 2..][..2].copy_from_slice(&pair);
        }
        accumulate(&slices[half], &slices[2], k, &mut sums, f32::mul_add);
        let (mut low, mut high) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            low[lane] = canonical(sums[lane / 4][lane % 4 * 2]).to_bits();
            high[lane] = canonical(sums[lane / 4][lane % 4 * 2 + 1]).to_bits();
        }
        if narrow {
            for lane in 0..LANES {
                let bits = |word: u32| u32::from(F16::from_f32(f32::from_bits(word)).0);
                low[lane] = bits(low[lane]) | bits(high[lane]) << 16;
            }
            warp.registers.set_word(writes[half], &low, u32::MAX);
        } else {
            warp.registers.set_word(writes[2 * half], &low, u32::MAX);
            warp.registers.set_word(writes[2 * half + 1], &high, u32::MAX);
        }
    }
}

#[inline(always)]
fn integral<const K: usize>(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let slices = operands::<i32, K>(warp, cx, product, reads, 0, Format::integer_value);
    for half in 0..usize::from(product.m) / 8 {
        let mut sums = [[0_i32; 8]; 8];
        let k = usize::from(product.k);
        accumulate(&slices[half], &slices[2], k, &mut sums, |a, b, sum| sum + a * b);
        for part in 0..2 {
            let index = 2 * half + part;
            let c = warp.registers.word(&cx.program.constants, reads[in_a + in_b + index]);
            let words = std::array::from_fn(|lane| {
                let sum = sums[lane / 4][lane % 4 * 2 + part];
                let c = c[lane] as i32;
                (if product.saturate { c.saturating_add(sum) } else { c.wrapping_add(sum) }) as u32
            });
            warp.registers.set_word(writes[index], &words, u32::MAX);
        }
    }
}

/// Double precision: a lane holds one element per register.
fn double(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let wide =
        |index: usize| warp.registers.wide(&cx.program.constants, reads[index]).map(f64::from_bits);
    let halves = usize::from(product.m) / 8;
    let mut out = Vec::with_capacity(in_c);
    for half in 0..halves {
        let mut sums = [wide(in_a + in_b + 2 * half), wide(in_a + in_b + 2 * half + 1)];
        for k in 0..usize::from(product.k) {
            let (a, b) = (wide(k / 4 * halves + half), wide(in_a + k / 4));
            for (part, sums) in sums.iter_mut().enumerate() {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    let (row, column) = (lane / 4, lane % 4 * 2 + part);
                    *sum = a[row * 4 + k % 4].mul_add(b[column * 4 + k % 4], *sum);
                }
            }
        }
        out.extend(sums);
    }
    for (slot, sums) in writes.iter().zip(out) {
        warp.registers.set_wide(*slot, &sums.map(f64::to_bits), u32::MAX);
    }
}

/// Declares specialised functions for frequent formats.
macro_rules! products {
    ($($name:ident = $of:ident::<$k:literal>($($field:ident: $value:expr),*);)*) => {$(
        leveled! {
            cx.has_v3 =>
            fn $name(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
                $of::<$k>(warp, cx, op, Multiply { $($field: $value,)* ..product })
            }
        }
    )*};
}

products! {
    f16_f32 = floating::<16>(m: 16, k: 16, a: Format::F16, b: Format::F16, sum: Format::F32);
    f16_f16 = floating::<16>(m: 16, k: 16, a: Format::F16, b: Format::F16, sum: Format::F16);
    bf16 = floating::<16>(m: 16, k: 16, a: Format::Bf16, b: Format::Bf16, sum: Format::F32);
    tf32 = floating::<8>(m: 16, k: 8, a: Format::Tf32, b: Format::Tf32, sum: Format::F32);
    e4m3 = floating::<32>(m: 16, k: 32, a: Format::E4m3, b: Format::E4m3, sum: Format::F32);
    s8 = integral::<32>(m: 16, k: 32, a: Format::S8, b: Format::S8, sum: Format::S32);
    other_floating = floating::<32>();
    other_integral = integral::<64>();
}

pub(super) fn multiply(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    use Format::{Bf16, E4m3, F16, F32, F64, S8, Tf32};
    let run = match (product.a, product.b, product.k, product.sum) {
        (F64, ..) => double,
        (F16, _, 16, F32) => f16_f32,
        (F16, _, 16, _) => f16_f16,
        (Bf16, _, 16, _) => bf16,
        (Tf32, _, 8, _) => tf32,
        (E4m3, E4m3, 32, F32) => e4m3,
        (S8, S8, 32, _) if product.m == 16 => s8,
        (format, ..) if format.integer() => other_integral,
        _ => other_floating,
    };
    run(warp, cx, op, product);
}
