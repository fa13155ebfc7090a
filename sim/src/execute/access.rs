//! Loads and stores.
//!
//! An access moves whole words where it can: `WORDS` words of each lane between memory and planes,
//! plane `k` holding word `k` of every lane. Accesses below a word have one plane.

use super::Failure;
use super::aim::{Aim, Attempt, Place, Span, addresses, lanes_of, reduced, resolve};
use crate::block::BlockState;
use crate::error::ErrorKind;
use crate::launch::Context;
use crate::memory::store_part;
use crate::op::{Access, MicroOp, Window};
use crate::registers::LANES;
use crate::warp::Warp;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

type Plane = [u32; LANES];

/// The words of one lane, or the part of a word shifted down.
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

/// Reads words of every lane from one place, or parts of a word.
#[inline(always)]
fn read_span<const WORDS: usize>(
    span: &Span<'_>,
    whole: bool,
    word: impl Fn(usize) -> u32,
) -> [Plane; WORDS] {
    let mut planes = [[0; LANES]; WORDS];
    let at = span.at as usize;
    if whole && !span.uniform {
        for lane in 0..LANES {
            let at = (at + span.offsets[lane] as usize) / 4;
            for (k, plane) in planes.iter_mut().enumerate() {
                plane[lane] = word(at + k);
            }
        }
        return planes;
    }
    if span.uniform {
        for (k, plane) in planes.iter_mut().enumerate() {
            *plane = [word(at / 4 + k) >> (8 * (at % 4)); LANES];
        }
        return planes;
    }
    for lane in 0..LANES {
        let at = at + span.offsets[lane] as usize;
        for (k, plane) in planes.iter_mut().enumerate() {
            plane[lane] = word(at / 4 + k) >> (8 * (at % 4));
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
    if let Some(span) = aim.span(warp, block, cx) {
        let at = span.at as usize / 4;
        let whole = aim.attempt.bytes == WORDS as u64 * 4;
        let run = span.run && whole;
        let mut planes = [[0; LANES]; WORDS];
        match span.place {
            Place::Global(allocation, _) if run => {
                let words = &allocation.words[at..][..WORDS * LANES];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    for k in 0..WORDS {
                        planes[k][lane] = words[k].load(Relaxed);
                    }
                }
                return Ok(planes);
            }
            Place::Shared(_) if run => {
                let words = &block.shared[at..][..WORDS * LANES];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    for k in 0..WORDS {
                        planes[k][lane] = words[k];
                    }
                }
                return Ok(planes);
            }
            Place::Global(allocation, _) => {
                return Ok(read_span(&span, whole, |at| allocation.words[at].load(Relaxed)));
            }
            Place::Shared(_) => return Ok(read_span(&span, whole, |at| block.shared[at])),
            Place::Param(_) => return Ok(read_span(&span, whole, |at| cx.params[at])),
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

/// Puts the elements that the planes hold into the target registers.
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

/// Loads a word of shared memory for every lane, if all of them are aligned and in bounds: what
/// inner loops are made of, in as few passes over the lanes as there can be.
#[inline(always)]
fn load_shared_lanes(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    active: u32,
) -> bool {
    let words = &block.shared[..block.shared_bytes as usize / 4];
    let at = addresses(warp, cx, op.a, access.wide_address, op.imm);
    let (mut places, mut bits) = ([0_u32; LANES], 0);
    for lane in 0..LANES {
        places[lane] = (at[lane] / 4) as u32;
        bits |= at[lane];
    }
    if bits >> 32 != 0 || bits % 4 != 0 || reduced(places, u32::max) as usize >= words.len() {
        return false;
    }
    // Kept in memory: the compiler would take every vector above apart for the scalar loads.
    let places = black_box(places);
    let mut row = [0; LANES];
    for lane in 0..LANES {
        row[lane] = words[places[lane] as usize];
    }
    warp.registers.set_word(cx.program.lists[op.list as usize], &row, active);
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

/// Writes of neighbouring lanes to one word, collected so that it is written once.
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

/// Writes whole words of the lanes into one place; false if it must be done lane by lane.
#[inline(always)]
fn put_span<const WORDS: usize>(
    span: &Span<'_>,
    block: &mut BlockState,
    active: u32,
    planes: &[Plane; WORDS],
) -> bool {
    let at = span.at as usize / 4;
    match span.place {
        Place::Global(allocation, _) if span.run => {
            let words = &allocation.words[at..][..WORDS * LANES];
            for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                for k in 0..WORDS {
                    words[k].store(planes[k][lane], Relaxed);
                }
            }
        }
        Place::Shared(_) if span.run => {
            let words = &mut block.shared[at..][..WORDS * LANES];
            for (lane, words) in words.chunks_exact_mut(WORDS).enumerate() {
                for k in 0..WORDS {
                    words[k] = planes[k][lane];
                }
            }
        }
        Place::Global(allocation, _) => {
            for lane in lanes_of(active) {
                let words = &allocation.words
                    [(span.at as usize + span.offsets[lane] as usize) / 4..][..WORDS];
                for k in 0..WORDS {
                    words[k].store(planes[k][lane], Relaxed);
                }
            }
        }
        Place::Shared(_) => {
            for lane in lanes_of(active) {
                let words = &mut block.shared
                    [(span.at as usize + span.offsets[lane] as usize) / 4..][..WORDS];
                for k in 0..WORDS {
                    words[k] = planes[k][lane];
                }
            }
        }
        Place::Local(_) | Place::Param(_) | Place::Peer(..) => return false,
    }
    true
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
    if attempt.bytes == WORDS as u64 * 4
        && let Some(span) = aim.span(warp, block, cx)
        && put_span(&span, block, active, planes)
    {
        return Ok(());
    }
    let part = if attempt.bytes < 4 { (1_u32 << (8 * attempt.bytes)) - 1 } else { u32::MAX };
    let mut pending: Option<Pending<'_>> = None;
    for lane in lanes_of(active) {
        let place = resolve(warp, block, cx, window, lane, addresses[lane], attempt)?;
        if let Place::Param(_) = place {
            let message = "store to a parameter".to_string();
            return Err(Failure { kind: ErrorKind::OutOfBounds, message, lane });
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

/// Compiles an access for the instruction-set levels that handlers are compiled for.
macro_rules! levels {
    ($name:ident, $lanes:ident, $v3:ident, $block:ty, $result:ty) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        fn $v3(
            warp: &mut Warp,
            block: $block,
            cx: &Context<'_>,
            op: &MicroOp,
            access: Access,
            active: u32,
        ) -> $result {
            $lanes(warp, block, cx, op, access, active)
        }

        pub(super) fn $name(
            warp: &mut Warp,
            block: $block,
            cx: &Context<'_>,
            op: &MicroOp,
            access: Access,
            active: u32,
        ) -> $result {
            #[cfg(target_arch = "x86_64")]
            if cx.has_v3 {
                // SAFETY: `has_v3` says that the processor has these instructions.
                return unsafe { $v3(warp, block, cx, op, access, active) };
            }
            $lanes(warp, block, cx, op, access, active)
        }
    };
}

levels!(load_any, load_lanes, load_v3, &BlockState, Result<(), Failure>);
levels!(load_shared, load_shared_lanes, load_shared_v3, &BlockState, bool);
levels!(store, store_lanes, store_v3, &mut BlockState, Result<(), Failure>);

pub(super) fn load(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    active: u32,
) -> Result<(), Failure> {
    let word = (access.bytes, access.count) == (4, 1);
    let simple = word && access.window == Window::Shared && active == u32::MAX;
    if simple && load_shared(warp, block, cx, op, access, active) {
        return Ok(());
    }
    load_any(warp, block, cx, op, access, active)
}
