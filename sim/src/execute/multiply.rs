//! `mma.sync`: fragments to arrays, sums of products, back to fragments.
//!
//! Products are exact; a floating sum starts with C and takes the products in the order of k, each
//! rounded to nearest. Hardware adds several products at once, in another order and with its own
//! rounding: compare with a tolerance.

use super::unit::list;
use crate::format::Format;
use crate::half::F16;
use crate::lanes::canonical;
use crate::launch::Context;
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::Multiply;
use crate::warp::Warp;

/// Elements along k, at most.
pub(super) const K_MAX: usize = 64;

/// An operand as k slices of eight elements: rows of half of A, or columns of B.
pub(super) type Slices<T> = [[T; 8]; K_MAX];

/// A sum: eight rows of eight columns.
pub(super) type Sums<T> = [[T; 8]; 8];

/// The element of one lane's register: the lane holds `per` neighbours along k in one of its
/// registers, whose eight lanes groups are the rows (or columns).
#[inline(always)]
pub(super) fn slice<T: Copy>(
    out: &mut Slices<T>,
    words: &[u32; LANES],
    first_k: usize,
    bits: usize,
    value: impl Fn(u32) -> T,
) {
    let per = 32 / bits;
    for part in 0..per {
        let values: [T; LANES] = std::array::from_fn(|lane| value(words[lane] >> (part * bits)));
        for (lane, value) in values.into_iter().enumerate() {
            out[first_k + lane % 4 * per + part][lane / 4] = value;
        }
    }
}

/// Sums of one half of A with B; `muladd` is the sum's step.
#[inline(always)]
pub(super) fn accumulate<T: Copy>(
    a: &Slices<T>,
    b: &Slices<T>,
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

/// Both operands of a product as slices: the halves of A, and B.
#[inline(always)]
fn operands<T: Copy>(
    warp: &Warp,
    cx: &Context<'_>,
    product: Multiply,
    reads: &[Slot],
    zero: T,
    value: impl Fn(Format, u32) -> T,
) -> [Slices<T>; 3] {
    let mut out = [[[zero; 8]; K_MAX]; 3];
    let [in_a, in_b, _] = product.registers();
    let halves = usize::from(product.m) / 8;
    let word = |index: usize| warp.registers.word(&cx.program.constants, reads[index]);
    for index in 0..in_a {
        let bits = product.a.bits();
        let first_k = index / halves * 4 * (32 / bits);
        slice(&mut out[index % halves], word(index), first_k, bits, |w| value(product.a, w));
    }
    for index in 0..in_b {
        let bits = product.b.bits();
        let first_k = index * 4 * (32 / bits);
        slice(&mut out[2], word(in_a + index), first_k, bits, |w| value(product.b, w));
    }
    out
}

#[inline(always)]
fn floating(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = list(cx, op).split_at(in_c);
    let k = usize::from(product.k);
    let slices = match product.a {
        // The formats whose conversion is worth a loop of its own.
        Format::F16 => operands(warp, cx, product, reads, 0.0, |_, w| Format::F16.single(w)),
        Format::Bf16 => operands(warp, cx, product, reads, 0.0, |_, w| Format::Bf16.single(w)),
        _ => operands(warp, cx, product, reads, 0.0, Format::single),
    };
    let narrow = product.sum == Format::F16;
    for half in 0..usize::from(product.m) / 8 {
        let mut sums = [[0.0_f32; 8]; 8];
        let c =
            |index: usize| *warp.registers.word(&cx.program.constants, reads[in_a + in_b + index]);
        let (low, high) = match narrow {
            true => (c(half), c(half).map(|word| word >> 16)),
            false => (c(2 * half), c(2 * half + 1)),
        };
        let of = if narrow { Format::F16 } else { Format::F32 };
        for lane in 0..LANES {
            sums[lane / 4][lane % 4 * 2] = of.single(low[lane]);
            sums[lane / 4][lane % 4 * 2 + 1] = of.single(high[lane]);
        }
        accumulate(&slices[half], &slices[2], k, &mut sums, f32::mul_add);
        let flat = |lane: usize, part: usize| canonical(sums[lane / 4][lane % 4 * 2 + part]);
        if narrow {
            let pair = |value: f32| u32::from(F16::from_f32(value).0);
            let words = std::array::from_fn(|lane| pair(flat(lane, 0)) | pair(flat(lane, 1)) << 16);
            warp.registers.set_word(writes[half], &words, u32::MAX);
            continue;
        }
        for part in 0..2 {
            let words = std::array::from_fn(|lane| flat(lane, part).to_bits());
            warp.registers.set_word(writes[2 * half + part], &words, u32::MAX);
        }
    }
}

#[inline(always)]
fn integral(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = list(cx, op).split_at(in_c);
    let slices = operands(warp, cx, product, reads, 0, Format::integer_value);
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

/// Double precision: a lane holds one element of each of its registers.
fn double(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = list(cx, op).split_at(in_c);
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

#[inline(always)]
fn any(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    match product.a {
        Format::F64 => double(warp, cx, op, product),
        format if format.integer() => integral(warp, cx, op, product),
        _ => floating(warp, cx, op, product),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn any_v3(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    any(warp, cx, op, product);
}

pub(super) fn multiply(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    #[cfg(target_arch = "x86_64")]
    if cx.has_v3 {
        // SAFETY: `has_v3` says that the processor has these instructions.
        return unsafe { any_v3(warp, cx, op, product) };
    }
    any(warp, cx, op, product);
}
