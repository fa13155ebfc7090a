//! `mma.sync`.
//!
//! Products are exact; floating-point accumulation starts with C and adds the products in K order,
//! each rounded to nearest. Hardware adds several products at once, in another order and with its
//! own rounding, so compare with a tolerance.

use super::tile::{
    Slices, accumulate, accumulate_singles, packed, plus, singles, slice, unpacked, words,
};
use crate::context::Context;
use crate::format::Format;
use crate::lanes::leveled;
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::Multiply;
use crate::warp::Warp;

/// Operands of an MMA: the rows of the halves of A, and the columns of B.
#[derive(Clone, Copy)]
pub(super) struct Operands<T, const K: usize> {
    pub rows: [Slices<T, K>; 2],
    pub columns: Slices<T, K>,
}

impl<T: Copy, const K: usize> Operands<T, K> {
    #[inline(always)]
    pub fn new(zero: T) -> Operands<T, K> {
        Operands { rows: [[[zero; 8]; K]; 2], columns: [[zero; 8]; K] }
    }

    /// Reads the fragments.
    #[inline(always)]
    pub fn read(
        &mut self,
        warp: &Warp,
        cx: &Context<'_>,
        product: Multiply,
        reads: &[Slot],
        value: impl Fn(Format, u32) -> T,
    ) {
        let Multiply { a, b, .. } = product;
        let [in_a, in_b, _] = product.registers();
        let halves = usize::from(product.m) / 8;
        let word = |index: usize| warp.registers.word(&cx.program.constants, reads[index]);
        for index in 0..in_a {
            let first_k = index / halves * (128 / a.bits());
            let rows = &mut self.rows[index % halves];
            slice(rows, word(index), first_k, a.bits(), false, |w| value(a, w));
        }
        for index in 0..in_b {
            let (columns, first_k) = (&mut self.columns, index * (128 / b.bits()));
            slice(columns, word(in_a + index), first_k, b.bits(), true, |w| value(b, w));
        }
    }
}

/// A floating-point MMA with K of at most `K`; inlined for each format, so that an operand's
/// conversion is one loop.
#[inline(always)]
fn floating<const K: usize>(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let k = usize::from(product.k);
    let mut operands = Operands::<f32, K>::new(0.0);
    operands.read(warp, cx, product, reads, Format::single);
    let narrow = product.sum == Format::F16;
    let step = cx.program.step(product.a, k);
    for (half, rows) in operands.rows.iter().enumerate() {
        let c =
            |index: usize| warp.registers.word(&cx.program.constants, reads[in_a + in_b + index]);
        let mut sums = match narrow {
            true => unpacked(c(half)),
            false => singles([c(2 * half), c(2 * half + 1)]),
        };
        accumulate_singles(rows, &operands.columns, k, &mut sums, step);
        if narrow {
            warp.registers.set_word(writes[half], &packed(&sums), u32::MAX);
        } else {
            for odd in 0..2 {
                warp.registers.set_word(writes[2 * half + odd], &words(&sums, odd), u32::MAX);
            }
        }
    }
}

#[inline(always)]
fn integral<const K: usize>(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let k = usize::from(product.k);
    let mut operands = Operands::<i32, K>::new(0);
    operands.read(warp, cx, product, reads, Format::integer_value);
    for (half, rows) in operands.rows[..usize::from(product.m) / 8].iter().enumerate() {
        let mut sums = [[0_i32; 8]; 8];
        accumulate(rows, &operands.columns, k, &mut sums, |a, b, sum| sum + a * b);
        for odd in 0..2 {
            let index = 2 * half + odd;
            let c = warp.registers.word(&cx.program.constants, reads[in_a + in_b + index]);
            let words = plus(c, &sums, odd, product.saturate);
            warp.registers.set_word(writes[index], &words, u32::MAX);
        }
    }
}

/// Double precision: a lane holds one element per register, and half a tile is summed at a time.
#[inline(always)]
fn double<const K: usize>(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let wide = |index: usize| warp.registers.wide(&cx.program.constants, reads[index]);
    let (halves, k) = (usize::from(product.m) / 8, usize::from(product.k));
    let (mut rows, mut columns) = ([[[0.0; 8]; K]; 2], [[[0.0; 4]; K]; 2]);
    for index in 0..in_a {
        let (words, first_k) = (wide(index), index / halves * 4);
        for (k, out) in rows[index % halves][first_k..][..4].iter_mut().enumerate() {
            for row in 0..8 {
                out[row] = f64::from_bits(words[row * 4 + k]);
            }
        }
    }
    for index in 0..in_b {
        let words = wide(in_a + index);
        for (odd, columns) in columns.iter_mut().enumerate() {
            for (k, out) in columns[index * 4..][..4].iter_mut().enumerate() {
                for at in 0..4 {
                    out[at] = f64::from_bits(words[(at * 2 + odd) * 4 + k]);
                }
            }
        }
    }
    let mut out = [[0; LANES]; 4];
    for (index, out) in out[..in_c].iter_mut().enumerate() {
        let c = wide(in_a + in_b + index);
        let mut sums = [[0.0; 4]; 8];
        for lane in 0..LANES {
            sums[lane / 4][lane % 4] = f64::from_bits(c[lane]);
        }
        accumulate(&rows[index / 2], &columns[index % 2], k, &mut sums, f64::mul_add);
        for lane in 0..LANES {
            out[lane] = sums[lane / 4][lane % 4].to_bits();
        }
    }
    for (slot, sums) in writes.iter().zip(&out) {
        warp.registers.set_wide(*slot, sums, u32::MAX);
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
    f64_small = double::<4>(m: 8, k: 4, a: Format::F64, b: Format::F64, sum: Format::F64);
    f64 = double::<16>(a: Format::F64, b: Format::F64, sum: Format::F64);
    other_floating = floating::<32>();
    other_integral = integral::<64>();
}

pub(super) fn multiply(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, product: Multiply) {
    use Format::{Bf16, E4m3, F16, F32, F64, S8, Tf32};
    let run = match (product.a, product.b, product.k, product.sum) {
        (F64, _, 4, _) if product.m == 8 => f64_small,
        (F64, ..) => f64,
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
