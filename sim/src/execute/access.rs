//! Loads and stores.
//!
//! An access transfers whole words where possible: `WORDS` words per lane between memory and
//! planes, where plane `k` holds word `k` of every lane. Sub-word accesses have one plane.

use crate::access::Access;
use crate::aim::{Aim, Attempt, Place, Span, addresses, lanes_of, resolve, word_groups};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::error::ErrorKind;
use crate::failure::Failure;
use crate::groups::{GROUP, Groups, Pattern};
use crate::lanes::leveled;
use crate::memory::store_part;
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::warp::Warp;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

type Plane = [u32; LANES];

/// Reads the words of one lane, or part of a word shifted down.
#[inline(always)]
fn read_lane(
    place: &Place<'_>,
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    k: usize,
) -> u32 {
    let word = |at: u64| at as usize / 4 + k;
    let (value, at) = match *place {
        Place::Global(allocation, at) => (allocation.words[word(at)].load(Relaxed), at),
        Place::Shared(at) => (block.shared[word(at)], at),
        Place::Peer(rank, at) => (block.peers.shared[rank][word(at)], at),
        Place::Local(at) => (warp.local[word(at)], at),
        Place::Param(at) => (cx.params[word(at)], at),
    };
    value >> (8 * (at % 4))
}

/// Reads the words, or part of a word, of every lane from one location.
#[inline(always)]
fn read_span<W, const WORDS: usize>(
    span: &Span<'_>,
    words: &[W],
    whole: bool,
    read: impl Fn(&W) -> u32,
) -> [Plane; WORDS] {
    let mut planes = [[0; LANES]; WORDS];
    let part = |at: u64, k: usize| read(&words[at as usize / 4 + k]) >> (8 * (at % 4));
    match &span.pattern {
        Pattern::Grouped(Groups { firsts, step: 0 }) => {
            for (group, &at) in firsts.iter().enumerate() {
                for (k, plane) in planes.iter_mut().enumerate() {
                    plane[group * GROUP..][..GROUP].fill(part(at, k));
                }
            }
        }
        Pattern::Grouped(Groups { firsts, .. }) if whole => {
            for (group, &at) in firsts.iter().enumerate() {
                let words = &words[at as usize / 4..][..GROUP * WORDS];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    for (plane, word) in planes.iter_mut().zip(words) {
                        plane[group * GROUP + lane] = read(word);
                    }
                }
            }
        }
        _ => {
            for (lane, at) in span.pattern.offsets().into_iter().enumerate() {
                for (k, plane) in planes.iter_mut().enumerate() {
                    plane[lane] = part(at, k);
                }
            }
        }
    }
    planes
}

#[inline(always)]
fn fetch<const WORDS: usize>(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    aim: &Aim,
) -> Result<[Plane; WORDS], Failure> {
    let whole = aim.attempt.bytes == WORDS as u64 * 4;
    if let Some(span) = aim.span(warp, block, cx) {
        match span.place {
            Place::Global(allocation, _) => {
                return Ok(read_span(&span, &allocation.words, whole, |word| word.load(Relaxed)));
            }
            Place::Shared(_) => return Ok(read_span(&span, &block.shared, whole, |word| *word)),
            Place::Param(_) => return Ok(read_span(&span, cx.params, whole, |word| *word)),
            Place::Local(_) | Place::Peer(..) => {}
        }
    }
    let mut planes = [[0; LANES]; WORDS];
    for lane in lanes_of(aim.active) {
        let address = aim.addresses[lane];
        let place = resolve(warp, block, cx, aim.window, lane, address, aim.attempt)?;
        for (k, plane) in planes.iter_mut().enumerate() {
            plane[lane] = read_lane(&place, warp, block, cx, k);
        }
    }
    Ok(planes)
}

/// Writes the elements in the planes to the destination registers.
#[inline(always)]
fn spread(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    planes: &[Plane],
    active: u32,
) {
    let bytes = usize::from(access.bytes);
    for element in 0..usize::from(access.count) {
        let target = cx.program.lists[op.list as usize + element];
        if bytes == 8 {
            let (low, high) = (&planes[2 * element], &planes[2 * element + 1]);
            let wide = std::array::from_fn(|i| u64::from(low[i]) | u64::from(high[i]) << 32);
            warp.registers.set_wide(target, &wide, active);
            continue;
        }
        if bytes == 4 {
            warp.registers.set_word(target, &planes[element], active);
            continue;
        }
        let (plane, shift) = (&planes[element * bytes / 4], element * bytes % 4 * 8);
        let part: Plane = match (bytes, access.signed) {
            (1, false) => plane.map(|word| u32::from((word >> shift) as u8)),
            (1, true) => plane.map(|word| (word >> shift) as i8 as u32),
            (_, false) => plane.map(|word| u32::from((word >> shift) as u16)),
            (_, true) => plane.map(|word| (word >> shift) as i16 as u32),
        };
        warp.registers.set_word(target, &part, active);
    }
}

/// Reads a word per lane at an offset from its group's address, if all are within `words`.
#[inline(always)]
fn read_groups(groups: Groups, offset: i64, words: &[u32]) -> Option<Plane> {
    let places = groups.firsts.map(|first| first.wrapping_add(offset as u64));
    if places.into_iter().fold(0, |bits, at| bits | at) % 4 != 0 {
        return None;
    }
    let mut row = [0; LANES];
    let rows = row.chunks_exact_mut(GROUP).zip(places.map(|at| at as usize / 4));
    if groups.step == 0 {
        for (lanes, at) in rows {
            lanes.fill(*words.get(at)?);
        }
    } else {
        for (lanes, at) in rows {
            lanes.copy_from_slice(words.get(at..at + GROUP)?);
        }
    }
    Some(row)
}

/// Fast path: loads a word of shared memory for every lane if the lanes form groups, as in inner
/// loops; returns false if the general path is needed.
#[inline(always)]
pub(super) fn load_shared(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
) -> bool {
    let groups = word_groups(warp, cx, op, access);
    let words = &block.shared[..block.shared_bytes as usize / 4];
    let Some(row) = groups.and_then(|groups| read_groups(groups, op.imm, words)) else {
        return false;
    };
    warp.registers.set_word(cx.program.lists[op.list as usize], &row, u32::MAX);
    true
}

#[inline(always)]
fn load_lanes(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    active: u32,
) -> Result<(), Failure> {
    let bytes = u64::from(access.bytes) * u64::from(access.count);
    let attempt = Attempt { verb: "load", bytes };
    let at = addresses(warp, cx, op.a, access.wide_address, op.imm);
    let aim = Aim { window: access.window, addresses: at, active, attempt };
    aim.check_alignment(bytes)?;
    let _one_step = (access.strong && access.bytes == 8).then(|| cx.memory.lock_wide());
    macro_rules! fetched {
        ($words:literal) => {{
            let planes = fetch::<$words>(warp, block, cx, &aim)?;
            spread(warp, cx, op, access, &planes, active);
        }};
    }
    match bytes {
        ..=4 => fetched!(1),
        8 => fetched!(2),
        16 => fetched!(4),
        _ => fetched!(8),
    }
    Ok(())
}

/// Gathers the planes from the source registers.
#[inline(always)]
fn gather<const WORDS: usize>(
    warp: &Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
) -> [Plane; WORDS] {
    let mut planes = [[0; LANES]; WORDS];
    let constants = &cx.program.constants;
    let bytes = usize::from(access.bytes);
    for element in 0..usize::from(access.count) {
        let source = cx.program.lists[op.list as usize + element];
        if bytes == 8 {
            let wide = warp.registers.wide(constants, source);
            planes[2 * element] = wide.map(|value| value as u32);
            planes[2 * element + 1] = wide.map(|value| (value >> 32) as u32);
            continue;
        }
        let word = warp.registers.word(constants, source);
        if bytes == 4 {
            planes[element] = *word;
            continue;
        }
        let (plane, shift) = (&mut planes[element * bytes / 4], element * bytes % 4 * 8);
        let kept = (1_u32 << (8 * bytes)) - 1;
        for lane in 0..LANES {
            plane[lane] |= (word[lane] & kept) << shift;
        }
    }
    planes
}

/// Writes of neighbouring lanes to one word, merged into a single write.
struct Pending<'a> {
    place: Place<'a>,
    word: usize,
    value: u32,
    mask: u32,
}

fn write_word(warp: &mut Warp, block: &mut BlockState, pending: Option<Pending<'_>>) {
    let Some(Pending { place, word, value, mask }) = pending else { return };
    let blend = |old: &mut u32| *old = (*old & !mask) | (value & mask);
    match place {
        Place::Global(allocation, _) => store_part(&allocation.words[word], value, mask),
        Place::Shared(_) => blend(&mut block.shared[word]),
        Place::Peer(rank, _) => {
            blend(&mut block.peers.shared[rank][word]);
            block.landed(rank, 4 * word as u64, 4, None);
        }
        Place::Local(_) => blend(&mut warp.local[word]),
        Place::Param(_) => {}
    }
}

impl Place<'_> {
    pub fn offset(&self) -> u64 {
        match *self {
            Place::Global(_, at)
            | Place::Shared(at)
            | Place::Peer(_, at)
            | Place::Local(at)
            | Place::Param(at) => at,
        }
    }

    fn same_word(&self, word: usize, pending: &Pending<'_>) -> bool {
        let together = match (self, &pending.place) {
            (Place::Global(a, _), Place::Global(b, _)) => a.base == b.base,
            (Place::Shared(_), Place::Shared(_)) => true,
            (Place::Peer(a, _), Place::Peer(b, _)) => a == b,
            _ => false,
        };
        together && word == pending.word
    }
}

/// Writes whole words of the lanes to one location.
#[inline(always)]
fn write_span<W, const WORDS: usize>(
    span: &Span<'_>,
    words: &[W],
    active: u32,
    planes: &[Plane; WORDS],
    write: impl Fn(&W, u32),
) {
    let put = |words: &[W], lane: usize| {
        for (word, plane) in words.iter().zip(planes) {
            write(word, plane[lane]);
        }
    };
    if let Pattern::Grouped(Groups { firsts, step: 1.. }) = &span.pattern {
        for (group, &at) in firsts.iter().enumerate() {
            if active >> (group * GROUP) & 1 != 0 {
                let words = &words[at as usize / 4..][..GROUP * WORDS];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    put(words, group * GROUP + lane);
                }
            }
        }
        return;
    }
    let offsets = span.pattern.offsets();
    for lane in lanes_of(active) {
        put(&words[offsets[lane] as usize / 4..][..WORDS], lane);
    }
}

#[inline(always)]
fn put<const WORDS: usize>(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    aim: &Aim,
    planes: &[Plane; WORDS],
) -> Result<(), Failure> {
    let Aim { window, ref addresses, active, attempt } = *aim;
    let whole = attempt.bytes == WORDS as u64 * 4;
    if let Some(span) = whole.then(|| aim.span(warp, block, cx)).flatten() {
        match span.place {
            Place::Global(allocation, _) => {
                let write = |word: &AtomicU32, value| word.store(value, Relaxed);
                write_span(&span, &allocation.words, active, planes, write);
                return Ok(());
            }
            Place::Shared(_) => {
                let words = Cell::from_mut(&mut block.shared[..]).as_slice_of_cells();
                write_span(&span, words, active, planes, Cell::set);
                return Ok(());
            }
            Place::Param(_) | Place::Local(_) | Place::Peer(..) => {}
        }
    }
    let part = if attempt.bytes < 4 { (1_u32 << (8 * attempt.bytes)) - 1 } else { u32::MAX };
    let mut pending: Option<Pending<'_>> = None;
    for lane in lanes_of(active) {
        let place = resolve(warp, block, cx, window, lane, addresses[lane], attempt)?;
        if let Place::Param(_) = place {
            return Err(Failure::new(ErrorKind::OutOfBounds, lane, "store to a parameter"));
        }
        let at = place.offset();
        let shift = 8 * (at % 4) as u32;
        for (k, plane) in planes.iter().enumerate() {
            let word = at as usize / 4 + k;
            let (value, mask) = (plane[lane] << shift, part << shift);
            match &mut pending {
                Some(open) if place.same_word(word, open) => {
                    open.value = (open.value & !mask) | (value & mask);
                    open.mask |= mask;
                }
                _ => {
                    let next = Pending { place, word, value: value & mask, mask };
                    write_word(warp, block, pending.replace(next));
                }
            }
        }
    }
    write_word(warp, block, pending);
    Ok(())
}

#[inline(always)]
fn store_lanes(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    active: u32,
) -> Result<(), Failure> {
    let bytes = u64::from(access.bytes) * u64::from(access.count);
    let attempt = Attempt { verb: "store", bytes };
    let at = addresses(warp, cx, op.a, access.wide_address, op.imm);
    let aim = Aim { window: access.window, addresses: at, active, attempt };
    aim.check_alignment(bytes)?;
    let _one_step = (access.strong && access.bytes == 8).then(|| cx.memory.lock_wide());
    macro_rules! stored {
        ($words:literal) => {{
            let planes = gather::<$words>(warp, cx, op, access);
            put::<$words>(warp, block, cx, &aim, &planes)
        }};
    }
    match bytes {
        ..=4 => stored!(1),
        8 => stored!(2),
        16 => stored!(4),
        _ => stored!(8),
    }
}

leveled! {
    cx.has_v3 =>
    pub(super) fn load(
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'_>,
        op: &MicroOp,
        access: Access,
        active: u32,
    ) -> Result<(), Failure> {
        load_lanes(warp, block, cx, op, access, active)
    }
}

leveled! {
    cx.has_v3 =>
    pub(super) fn store(
        warp: &mut Warp,
        block: &mut BlockState,
        cx: &Context<'_>,
        op: &MicroOp,
        access: Access,
        active: u32,
    ) -> Result<(), Failure> {
        store_lanes(warp, block, cx, op, access, active)
    }
}
