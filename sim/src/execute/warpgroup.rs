//! `wgmma`: each warp computes its own 16 rows on issue; the result reaches its registers, poisoned
//! until then, when its group is waited for.

use super::Next;
use super::multiply::{self, accumulate, slice};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::descriptor::descriptors;
use crate::failure::{Failure, misuse};
use crate::format::Format;
use crate::half::F16;
use crate::lanes::{canonical, leveled};
use crate::matrix_descriptor::Descriptor;
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::WarpgroupMultiply;
use crate::warp::Warp;
use crate::warpgroup::{InFlight, POISON, WARPS};

/// Maximum K.
const K_MAX: usize = 32;

type Slices<T> = multiply::Slices<T, K_MAX>;

/// Eight rows in slices along K.
#[inline(always)]
fn slices<T: Copy>(
    descriptor: &Descriptor,
    shared: &[u32],
    group: u64,
    bits: usize,
    zero: T,
    value: impl Fn(u32) -> T,
) -> Slices<T> {
    let mut out = [[zero; 8]; K_MAX];
    let read = |index: u64, chunk: u64| -> [u32; 4] {
        let at = descriptor.address(group, index, chunk) as usize / 4;
        [shared[at], shared[at + 1], shared[at + 2], shared[at + 3]]
    };
    for chunk in 0..2 {
        let words: [[u32; 4]; 8] = std::array::from_fn(|index| read(index as u64, chunk));
        let chunk = chunk as usize;
        if descriptor.transposed {
            for (index, words) in words.iter().enumerate() {
                for (pair, word) in words.iter().enumerate() {
                    out[8 * chunk + index][2 * pair] = value(*word);
                    out[8 * chunk + index][2 * pair + 1] = value(word >> 16);
                }
            }
            continue;
        }
        let per = 32 / bits;
        for (k, out) in out[chunk * 4 * per..][..4 * per].iter_mut().enumerate() {
            let (word, part) = (k / per, k % per);
            *out = std::array::from_fn(|row| value(words[row][word] >> (part * bits)));
        }
    }
    out
}

/// Takes the accumulator of a wgmma: pending in the same registers, or their values.
fn addend(
    warp: &mut Warp,
    cx: &Context<'_>,
    writes: &[Slot],
    adds: bool,
) -> Result<Vec<[u32; LANES]>, Failure> {
    let flights = &mut warp.products.in_flight;
    if let Some(at) = flights.iter().position(|flight| flight.slots == writes) {
        let words = flights.remove(at).words;
        return Ok(if adds { words } else { vec![[0; LANES]; writes.len()] });
    }
    if flights.iter().any(|flight| flight.slots.iter().any(|slot| writes.contains(slot))) {
        return misuse(0, "wgmma on part of the accumulators of another that is pending");
    }
    if !adds {
        return Ok(vec![[0; LANES]; writes.len()]);
    }
    let word = |slot: &Slot| *warp.registers.word(&cx.program.constants, *slot);
    let words: Vec<[u32; LANES]> = writes.iter().map(word).collect();
    if words.iter().all(|row| row.iter().all(|&word| word == POISON)) {
        return misuse(
            0,
            "wgmma adds to accumulators that were copied before they were waited for",
        );
    }
    Ok(words)
}

/// The rows of A of one warp: a word per register.
struct Rows<'a> {
    warp: &'a Warp,
    cx: &'a Context<'a>,
    shared: &'a [u32],
    product: WarpgroupMultiply,
    reads: &'a [Slot],
    a: Option<Descriptor>,
    b: Descriptor,
}

impl Rows<'_> {
    /// Both halves of the warp's rows of A.
    #[inline(always)]
    fn halves<T: Copy>(&self, zero: T, value: impl Fn(u32) -> T) -> [Slices<T>; 2] {
        let bits = self.product.a.bits();
        if let Some(a) = self.a {
            let first = u64::from(self.warp.index % 4) * 2;
            return [0, 1].map(|half| slices(&a, self.shared, first + half, bits, zero, &value));
        }
        let mut out = [[[zero; 8]; K_MAX]; 2];
        for index in 0..4 {
            let words = self.warp.registers.word(&self.cx.program.constants, self.reads[index]);
            slice(&mut out[index % 2], words, index / 2 * (128 / bits), bits, &value);
        }
        out
    }

    #[inline(always)]
    fn floating<const NARROW: bool>(&self, words: &mut [[u32; LANES]]) {
        let WarpgroupMultiply { a, b, negated, .. } = self.product;
        let sign = |value: f32, negated: bool| if negated { -value } else { value };
        let halves = self.halves(0.0, |bits| sign(a.single(bits), negated[0]));
        for group in 0..u64::from(self.product.n) / 8 {
            let value = |bits| sign(b.single(bits), negated[1]);
            let columns = slices(&self.b, self.shared, group, b.bits(), 0.0, value);
            for (half, rows) in halves.iter().enumerate() {
                let mut sums = [[0.0_f32; 8]; 8];
                let at = group as usize * if NARROW { 2 } else { 4 };
                for lane in 0..LANES {
                    let (low, high) = match NARROW {
                        true => {
                            let word = words[at + half][lane];
                            (F16(word as u16).to_f32(), F16((word >> 16) as u16).to_f32())
                        }
                        false => {
                            let word = |part: usize| words[at + 2 * half + part][lane];
                            (f32::from_bits(word(0)), f32::from_bits(word(1)))
                        }
                    };
                    sums[lane / 4][lane % 4 * 2] = low;
                    sums[lane / 4][lane % 4 * 2 + 1] = high;
                }
                accumulate(rows, &columns, self.product.k.into(), &mut sums, f32::mul_add);
                for lane in 0..LANES {
                    let sum = |part: usize| canonical(sums[lane / 4][lane % 4 * 2 + part]);
                    if NARROW {
                        let bits = |part: usize| u32::from(F16::from_f32(sum(part)).0);
                        words[at + half][lane] = bits(0) | bits(1) << 16;
                    } else {
                        words[at + 2 * half][lane] = sum(0).to_bits();
                        words[at + 2 * half + 1][lane] = sum(1).to_bits();
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn integral(&self, words: &mut [[u32; LANES]]) {
        let WarpgroupMultiply { a, b, saturate, .. } = self.product;
        let halves = self.halves(0, |bits| a.integer_value(bits));
        for group in 0..u64::from(self.product.n) / 8 {
            let value = |bits| b.integer_value(bits);
            let columns = slices(&self.b, self.shared, group, b.bits(), 0, value);
            for (half, rows) in halves.iter().enumerate() {
                let mut sums = [[0_i32; 8]; 8];
                let k = self.product.k.into();
                accumulate(rows, &columns, k, &mut sums, |a, b, sum| sum + a * b);
                for part in 0..2 {
                    let row = &mut words[group as usize * 4 + 2 * half + part];
                    for (lane, word) in row.iter_mut().enumerate() {
                        let (old, sum) = (*word as i32, sums[lane / 4][lane % 4 * 2 + part]);
                        let new =
                            if saturate { old.saturating_add(sum) } else { old.wrapping_add(sum) };
                        *word = new as u32;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn add_to(&self, words: &mut [[u32; LANES]]) {
        match self.product.sum {
            Format::S32 => self.integral(words),
            Format::F16 => self.floating::<true>(words),
            _ => self.floating::<false>(words),
        }
    }
}

leveled! {
    rows.cx.has_v3 =>
    fn add(rows: &Rows<'_>, words: &mut [[u32; LANES]]) {
        rows.add_to(words)
    }
}

/// Issues a wgmma.
pub(super) fn multiply(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    product: WarpgroupMultiply,
) -> Result<(), Failure> {
    let (writes, reads) = cx.list(op).split_at(product.registers());
    let (a, b) = descriptors(warp, block, cx, product, reads)?;
    let scale = reads[if product.a_registers { 5 } else { 2 }];
    let adds = match warp.registers.predicate(scale) {
        0 => false,
        u32::MAX => true,
        _ => return misuse(0, "the lanes of a warp have different scale-d"),
    };
    let mut words = addend(warp, cx, writes, adds)?;
    let rows = Rows { warp, cx, shared: &block.shared, product, reads, a, b };
    add(&rows, &mut words);
    for slot in writes {
        warp.registers.set_word(*slot, &[POISON; LANES], u32::MAX);
    }
    warp.products.in_flight.push(InFlight { slots: writes.to_vec(), words, group: None });
    block.products_issued[warp.index as usize] += 1;
    block.progressed = true;
    Ok(())
}

pub(super) fn commit(warp: &mut Warp, block: &BlockState) {
    let group = warp.products.committed;
    for flight in warp.products.in_flight.iter_mut().filter(|flight| flight.group.is_none()) {
        flight.group = Some(group);
    }
    warp.products.committed += 1;
    warp.products.ends.push(block.products_issued[warp.index as usize]);
}

/// Writes the results of all groups but the newest to their registers, once every warp of the
/// warpgroup has issued its share.
pub(super) fn wait(warp: &mut Warp, block: &BlockState, newest: u32) -> Next {
    let committed = warp.products.committed;
    let first = warp.index as usize / WARPS * WARPS;
    if let Some(group) = committed.checked_sub(newest + 1) {
        let end = warp.products.ends[group as usize];
        let group = block.products_issued[first..].iter().take(WARPS);
        if group.into_iter().any(|&issued| issued < end) {
            return Next::Retry(u32::MAX);
        }
    }
    let over = |flight: &InFlight| flight.group.is_some_and(|group| committed - group > newest);
    for flight in warp.products.in_flight.extract_if(.., |flight| over(flight)) {
        for (slot, words) in flight.slots.iter().zip(&flight.words) {
            warp.registers.set_word(*slot, words, u32::MAX);
        }
    }
    Next::Go
}
