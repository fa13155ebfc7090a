//! `wgmma`: each warp computes its own 16 rows on issue; the result reaches its registers, poisoned
//! until then, when its group is waited for.

use super::Next;
use super::tile::{
    self, Slices, accumulate, accumulate_singles, column_at, packed, plus, singles, slice, unpacked,
};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::descriptor::descriptors;
use crate::failure::{Failure, misuse};
use crate::format::Format;
use crate::lanes::leveled;
use crate::matrix_descriptor::Descriptor;
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::unit::WarpgroupMultiply;
use crate::warp::Warp;
use crate::warpgroup::{InFlight, POISON, WARPS};

/// Eight rows of a matrix as stored: the words of both of their chunks along K. If it is MN-major,
/// the words of eight K indices instead.
type Stored = [[[u32; 4]; 8]; 2];

#[inline(always)]
fn stored(descriptor: &Descriptor, shared: &[u32], group: u64) -> Stored {
    let mut out = [[[0; 4]; 8]; 2];
    for (chunk, out) in (0..).zip(&mut out) {
        for (index, out) in (0..).zip(out) {
            let at = descriptor.address(group, index, chunk) as usize / 4;
            out.copy_from_slice(&shared[at..at + 4]);
        }
    }
    out
}

/// Bits of slices of rows, or with `columns` in the order of a tile's columns.
#[inline(always)]
fn slices<const K: usize>(
    out: &mut Slices<u32, K>,
    stored: &Stored,
    transposed: bool,
    bits: usize,
    columns: bool,
) {
    let per = 32 / bits;
    for (k, slice) in out.iter_mut().enumerate() {
        for (place, bits_of) in slice.iter_mut().enumerate() {
            let index = if columns { column_at(place) } else { place };
            *bits_of = match transposed {
                true => stored[k / 8 % 2][k % 8][index / 2] >> (index % 2 * 16),
                false => stored[k / (4 * per)][index][k / per % 4] >> (k % per * bits),
            };
        }
    }
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

/// A warp's share of a wgmma.
struct Share<'a> {
    warp: &'a Warp,
    cx: &'a Context<'a>,
    shared: &'a [u32],
    product: WarpgroupMultiply,
    reads: &'a [Slot],
    a: Option<Descriptor>,
    b: Descriptor,
}

impl Share<'_> {
    /// Bits of both halves of the warp's rows of A.
    #[inline(always)]
    fn rows<const K: usize>(&self, out: &mut [Slices<u32, K>; 2]) {
        let bits = self.product.a.bits();
        if let Some(a) = self.a {
            let first = u64::from(self.warp.index % 4) * 2;
            for (group, out) in (first..).zip(out) {
                slices(out, &stored(&a, self.shared, group), a.transposed, bits, false);
            }
            return;
        }
        for index in 0..4 {
            let words = self.warp.registers.word(&self.cx.program.constants, self.reads[index]);
            let first_k = index / 2 * (128 / bits);
            slice(&mut out[index % 2], words, first_k, bits, false, std::convert::identity);
        }
    }

    /// Bits of eight columns of B.
    #[inline(always)]
    fn columns<const K: usize>(&self, group: u64, out: &mut Slices<u32, K>) {
        let stored = stored(&self.b, self.shared, group);
        slices(out, &stored, self.b.transposed, self.product.b.bits(), true);
    }

    #[inline(always)]
    fn floating<const K: usize>(&self, words: &mut [[u32; LANES]]) {
        let WarpgroupMultiply { a, b, negated, .. } = self.product;
        let mut bits = [[[0; 8]; K]; 2];
        self.rows(&mut bits);
        let halves = [singles_of(&bits[0], a, negated[0]), singles_of(&bits[1], a, negated[0])];
        let narrow = self.product.sum == Format::F16;
        let step = self.cx.program.step(a, K);
        // The accumulators of eight columns: those of each half in one register, or in two.
        let per = if narrow { 1 } else { 2 };
        for (group, words) in (0..).zip(words.chunks_exact_mut(2 * per)) {
            self.columns(group, &mut bits[0]);
            let columns = singles_of(&bits[0], b, negated[1]);
            for (rows, words) in halves.iter().zip(words.chunks_exact_mut(per)) {
                let mut sums = match narrow {
                    true => unpacked(&words[0]),
                    false => singles([&words[0], &words[1]]),
                };
                accumulate_singles(rows, &columns, K, &mut sums, step);
                if narrow {
                    words[0] = packed(&sums);
                    continue;
                }
                for (odd, words) in words.iter_mut().enumerate() {
                    *words = tile::words(&sums, odd);
                }
            }
        }
    }

    #[inline(always)]
    fn integral<const K: usize>(&self, words: &mut [[u32; LANES]]) {
        let WarpgroupMultiply { a, b, saturate, .. } = self.product;
        let mut bits = [[[0; 8]; K]; 2];
        self.rows(&mut bits);
        let halves = [integers_of(&bits[0], a), integers_of(&bits[1], a)];
        for (group, words) in (0..).zip(words.chunks_exact_mut(4)) {
            self.columns(group, &mut bits[0]);
            let columns = integers_of(&bits[0], b);
            for (rows, words) in halves.iter().zip(words.chunks_exact_mut(2)) {
                let mut sums = [[0_i32; 8]; 8];
                accumulate(rows, &columns, K, &mut sums, |a, b, sum| sum + a * b);
                for (odd, words) in words.iter_mut().enumerate() {
                    *words = plus(words, &sums, odd, saturate);
                }
            }
        }
    }
}

/// Values of slices.
#[inline(always)]
fn singles_of<const K: usize>(
    bits: &Slices<u32, K>,
    format: Format,
    negated: bool,
) -> Slices<f32, K> {
    let mut out = [[0.0; 8]; K];
    for (out, bits) in out.iter_mut().zip(bits) {
        for place in 0..8 {
            let value = format.single(bits[place]);
            out[place] = if negated { -value } else { value };
        }
    }
    out
}

/// Values of slices of integers.
#[inline(always)]
fn integers_of<const K: usize>(bits: &Slices<u32, K>, format: Format) -> Slices<i32, K> {
    let mut out = [[0; 8]; K];
    for (out, bits) in out.iter_mut().zip(bits) {
        for place in 0..8 {
            out[place] = format.integer_value(bits[place]);
        }
    }
    out
}

/// Declares specialised functions for formats of A and B.
macro_rules! products {
    ($($name:ident = $of:ident::<$k:literal>($($field:ident: $value:expr),*);)*) => {$(
        leveled! {
            share.cx.has_v3 =>
            fn $name(share: &Share<'_>, words: &mut [[u32; LANES]]) {
                let product = WarpgroupMultiply { $($field: $value,)* ..share.product };
                Share { product, ..*share }.$of::<$k>(words)
            }
        }
    )*};
}

products! {
    f16 = floating::<16>(a: Format::F16, b: Format::F16);
    bf16 = floating::<16>(a: Format::Bf16, b: Format::Bf16);
    tf32 = floating::<8>(a: Format::Tf32, b: Format::Tf32);
    eight = floating::<32>();
    integers = integral::<32>();
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
    let share = Share { warp, cx, shared: &block.shared, product, reads, a, b };
    match product.a {
        Format::F16 => f16(&share, &mut words),
        Format::Bf16 => bf16(&share, &mut words),
        Format::Tf32 => tf32(&share, &mut words),
        format if format.integer() => integers(&share, &mut words),
        _ => eight(&share, &mut words),
    }
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
    if let Some(group) = committed.checked_sub(newest.saturating_add(1)) {
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
