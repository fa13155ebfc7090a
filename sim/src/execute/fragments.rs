//! `wmma.mma`: gathers the fragments, multiplies as `mma.sync` does, and scatters the result.

use crate::context::Context;
use crate::format::Format;
use crate::half::F16;
use crate::lanes::{canonical, leveled};
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::{Fragment, FragmentMultiply};
use crate::warp::Warp;

/// Elements of a matrix in row-major order.
fn gathered<T: Copy + Default>(
    warp: &Warp,
    cx: &Context<'_>,
    fragment: Fragment,
    slots: &[Slot],
    value: impl Fn(u64) -> T,
) -> Vec<T> {
    let per = fragment.lane_elements() as usize;
    let mut out = vec![T::default(); usize::from(fragment.rows) * usize::from(fragment.columns)];
    for lane in 0..LANES {
        for element in 0..per {
            let at = lane * per + element;
            if at >= out.len() {
                break;
            }
            let register = slots[element / fragment.per_register()];
            let shift = element % fragment.per_register() * fragment.format.bits();
            let bits = match fragment.format {
                Format::F64 => warp.registers.wide(&cx.program.constants, register)[lane],
                _ => warp.registers.word(&cx.program.constants, register)[lane].into(),
            };
            out[at] = value(bits >> shift);
        }
    }
    out
}

/// Writes a matrix to a fragment, repeating it.
fn scatter(warp: &mut Warp, fragment: Fragment, slots: &[Slot], bits: &[u64]) {
    let (per, in_register) = (fragment.lane_elements() as usize, fragment.per_register());
    for (register, slot) in slots.iter().enumerate().take(fragment.registers.into()) {
        let row: [u64; LANES] = std::array::from_fn(|lane| {
            (0..in_register).fold(0, |all, part| {
                let at = lane * per + register * in_register + part;
                all | bits[at % bits.len()] << (part * fragment.format.bits())
            })
        });
        match fragment.format {
            Format::F64 => warp.registers.set_wide(*slot, &row, u32::MAX),
            _ => warp.registers.set_word(*slot, &row.map(|word| word as u32), u32::MAX),
        }
    }
}

/// D = A * B + C in row-major order.
#[inline(always)]
fn product<T: Copy>(
    op: FragmentMultiply,
    (a, b): (&[T], &[T]),
    mut sums: Vec<T>,
    muladd: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    let [_, n, k] = op.shape.map(usize::from);
    for (sums, a) in sums.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
        for (a, b) in a.iter().zip(b.chunks_exact(n)) {
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = muladd(*a, *b, *sum);
            }
        }
    }
    sums
}

leveled! {
    cx.has_v3 =>
    pub(super) fn multiply(
        warp: &mut Warp,
        cx: &Context<'_>,
        op: &MicroOp,
        which: FragmentMultiply,
    ) {
        let ([a, b, c, d], saturate) = (which.fragments(), which.saturate);
        let (writes, reads) = cx.list(op).split_at(d.registers.into());
        let (of_a, rest) = reads.split_at(a.registers.into());
        let (of_b, of_c) = rest.split_at(b.registers.into());
        let bits: Vec<u64> = if a.format == Format::F64 {
            let (a, b) = (
                gathered(warp, cx, a, of_a, f64::from_bits),
                gathered(warp, cx, b, of_b, f64::from_bits),
            );
            let c = gathered(warp, cx, c, of_c, f64::from_bits);
            let sums = product(which, (&a, &b), c, f64::mul_add);
            sums.into_iter().map(f64::to_bits).collect()
        } else if a.format.integer() {
            let value = |fragment: Fragment| {
                move |bits: u64| fragment.format.integer_value(bits as u32)
            };
            let (a, b) = (
                gathered(warp, cx, a, of_a, value(a)),
                gathered(warp, cx, b, of_b, value(b)),
            );
            let c = gathered(warp, cx, c, of_c, value(c));
            let dots = product(which, (&a, &b), vec![0; c.len()], |a, b, sum| a * b + sum);
            let add = |(dot, c): (i32, i32)| match saturate {
                true => c.saturating_add(dot),
                false => c.wrapping_add(dot),
            };
            dots.into_iter().zip(c).map(|pair| u64::from(add(pair) as u32)).collect()
        } else {
            let value = |fragment: Fragment| move |bits: u64| fragment.format.single(bits as u32);
            let (a, b) = (
                gathered(warp, cx, a, of_a, value(a)),
                gathered(warp, cx, b, of_b, value(b)),
            );
            let c = gathered(warp, cx, c, of_c, value(c));
            let sums = product(which, (&a, &b), c, f32::mul_add);
            let encode = |sum: f32| match d.format {
                Format::F16 => u64::from(F16::from_f32(canonical(sum)).0),
                _ => canonical(sum).to_bits().into(),
            };
            sums.into_iter().map(encode).collect()
        };
        scatter(warp, d, writes, &bits);
    }
}
