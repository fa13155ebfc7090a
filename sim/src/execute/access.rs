//! Loads and stores.
//!
//! An access moves whole words where it can: `WORDS` words of each lane between memory and planes,
//! plane `k` holding word `k` of every lane. Accesses below a word have one plane.

use super::Failure;
use crate::block::BlockState;
use crate::error::ErrorKind;
use crate::launch::Context;
use crate::memory::{
    Allocation, GLOBAL_BASE, LOCAL_BASE, PARAM_BASE, SHARED_BASE, WINDOW_BYTES, store_part,
};
use crate::op::{Access, MicroOp, Window};
use crate::registers::{LANES, Slot};
use crate::warp::Warp;
use std::sync::atomic::Ordering::Relaxed;

type Plane = [u32; LANES];

/// Each lane's address.
pub(super) fn addresses(
    warp: &Warp,
    cx: &Context<'_>,
    base: Slot,
    wide: bool,
    offset: i64,
) -> [u64; LANES] {
    let constants = &cx.program.constants;
    if wide {
        let base = warp.registers.wide(constants, base);
        return std::array::from_fn(|lane| base[lane].wrapping_add(offset as u64));
    }
    let base = warp.registers.word(constants, base);
    std::array::from_fn(|lane| u64::from(base[lane].wrapping_add(offset as u32)))
}

fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

/// The lanes' addresses in a window.
struct Aim {
    window: Window,
    addresses: [u64; LANES],
    active: u32,
    attempt: Attempt,
}

impl Aim {
    /// Whether all lanes take part, `words` words each, one after the other in memory that is
    /// not each lane's own.
    fn is_run(&self, words: usize) -> bool {
        let Aim { window, ref addresses, active, attempt } = *self;
        let (first, stride) = (addresses[0], attempt.bytes);
        let follows = |same, lane| same & (addresses[lane] == first + lane as u64 * stride);
        active == u32::MAX
            && stride == words as u64 * 4
            && !matches!(window, Window::Local | Window::Param)
            && (0..LANES).fold(true, follows)
    }

    /// The access of a run as one.
    fn whole(&self) -> Attempt {
        Attempt { bytes: self.attempt.bytes * LANES as u64, ..self.attempt }
    }

    fn check_alignment(&self, align: u64) -> Result<(), Failure> {
        let Aim { ref addresses, active, attempt, .. } = *self;
        let low = (0..LANES)
            .fold(0, |low, lane| low | if active >> lane & 1 != 0 { addresses[lane] } else { 0 });
        if low & (align - 1) == 0 {
            return Ok(());
        }
        match lanes_of(active).find(|&lane| addresses[lane] & (align - 1) != 0) {
            Some(lane) => Err(attempt.misaligned(lane, addresses[lane], align)),
            None => Ok(()),
        }
    }
}

/// What an access is, for messages.
#[derive(Clone, Copy)]
pub(super) struct Attempt {
    pub verb: &'static str,
    pub bytes: u64,
}

impl Attempt {
    pub fn misaligned(self, lane: usize, address: u64, align: u64) -> Failure {
        let Attempt { verb, bytes } = self;
        let message =
            format!("{verb} of {bytes} bytes at {address:#x} is not aligned to {align} bytes");
        Failure { kind: ErrorKind::Misaligned, message, lane }
    }

    pub fn out_of_window(self, lane: usize, window: &str, offset: u64, size: u64) -> Failure {
        let Attempt { verb, bytes } = self;
        let missed = offset.saturating_add(bytes).saturating_sub(size);
        let message = format!(
            "{verb} of {bytes} bytes at {window} offset {offset:#x} is out of bounds: {missed} \
             bytes past the end of the {window} memory of {size} bytes"
        );
        Failure { kind: ErrorKind::OutOfBounds, message, lane }
    }

    fn out_of_memory(self, cx: &Context<'_>, lane: usize, address: u64) -> Failure {
        let Attempt { verb, bytes } = self;
        let (kind, why) = cx.table.diagnose(address, bytes);
        let message = format!("{verb} of {bytes} bytes at {address:#x} is out of bounds: {why}");
        Failure { kind, message, lane }
    }
}

/// Where one address leads.
pub(super) enum Place<'a> {
    Global(&'a Allocation, u64),
    Shared(u64),
    Local(u64),
    Param(u64),
}

/// The window of a generic address, and the offset in it.
fn classify(address: u64) -> (Window, u64) {
    match address & !(WINDOW_BYTES - 1) {
        SHARED_BASE => (Window::Shared, address - SHARED_BASE),
        LOCAL_BASE => (Window::Local, address - LOCAL_BASE),
        PARAM_BASE => (Window::Param, address - PARAM_BASE),
        _ => (Window::Global, address),
    }
}

/// Finds the allocation of a global address, the last one first.
fn global<'a>(
    last_hit: &mut usize,
    cx: &Context<'a>,
    lane: usize,
    address: u64,
    attempt: Attempt,
) -> Result<(&'a Allocation, u64), Failure> {
    if let Some(hit) = cx.table.get(*last_hit) {
        let offset = address.wrapping_sub(hit.base);
        if offset < hit.bytes && hit.bytes - offset >= attempt.bytes {
            return Ok((hit, offset));
        }
    }
    let found = cx.table.find(address, attempt.bytes).filter(|_| address >= GLOBAL_BASE);
    match found.and_then(|index| cx.table.get(index).map(|hit| (index, hit))) {
        Some((index, hit)) => {
            *last_hit = index;
            Ok((hit, address - hit.base))
        }
        None => Err(attempt.out_of_memory(cx, lane, address)),
    }
}

/// Resolves one lane's address, checked for bounds.
pub(super) fn resolve<'a>(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'a>,
    window: Window,
    lane: usize,
    address: u64,
    attempt: Attempt,
) -> Result<Place<'a>, Failure> {
    let (window, at) = match window {
        Window::Generic => classify(address),
        window => (window, address),
    };
    let (name, size) = match window {
        Window::Global | Window::Generic => {
            let (allocation, offset) = global(&mut warp.last_hit, cx, lane, at, attempt)?;
            return Ok(Place::Global(allocation, offset));
        }
        Window::Shared => ("shared", u64::from(block.shared_bytes)),
        Window::Local => ("local", warp.local.len() as u64 / 8),
        Window::Param => ("parameter", cx.param_bytes),
    };
    if attempt.bytes > size || at > size - attempt.bytes {
        return Err(attempt.out_of_window(lane, name, at, size));
    }
    Ok(match window {
        Window::Shared => Place::Shared(at),
        Window::Local => Place::Local(at + lane as u64 * size),
        _ => Place::Param(at),
    })
}

/// The words of one lane, or the part of a word shifted down.
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
        Place::Local(at) => (warp.local[word(at)], at),
        Place::Param(at) => (cx.params[word(at)], at),
    };
    value >> (8 * (at % 4))
}

fn fetch<const WORDS: usize>(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    aim: &Aim,
) -> Result<[Plane; WORDS], Failure> {
    let mut planes = [[0; LANES]; WORDS];
    let Aim { window, ref addresses, active, attempt } = *aim;
    if aim.is_run(WORDS) {
        // A run that leaves its allocation is found out lane by lane below.
        match resolve(warp, block, cx, window, 0, addresses[0], aim.whole()) {
            Ok(Place::Global(allocation, at)) => {
                let words = &allocation.words[at as usize / 4..][..WORDS * LANES];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    for k in 0..WORDS {
                        planes[k][lane] = words[k].load(Relaxed);
                    }
                }
                return Ok(planes);
            }
            Ok(Place::Shared(at)) => {
                let words = &block.shared[at as usize / 4..][..WORDS * LANES];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    for k in 0..WORDS {
                        planes[k][lane] = words[k];
                    }
                }
                return Ok(planes);
            }
            _ => {}
        }
    }
    if window == Window::Param && addresses[0] == addresses[LANES - 1] {
        let place = resolve(warp, block, cx, window, 0, addresses[0], attempt)?;
        for (k, plane) in planes.iter_mut().enumerate() {
            *plane = [read_lane(&place, warp, block, cx, k); LANES];
        }
        return Ok(planes);
    }
    for lane in lanes_of(active) {
        let place = resolve(warp, block, cx, window, lane, addresses[lane], attempt)?;
        for (k, plane) in planes.iter_mut().enumerate() {
            plane[lane] = read_lane(&place, warp, block, cx, k);
        }
    }
    Ok(planes)
}

/// Puts the elements that the planes hold into the target registers.
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

pub(super) fn load(
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
        Place::Local(_) => blend(&mut warp.local[word]),
        Place::Param(_) => {}
    }
}

impl Place<'_> {
    fn offset(&self) -> u64 {
        match *self {
            Place::Global(_, at) | Place::Shared(at) | Place::Local(at) | Place::Param(at) => at,
        }
    }

    fn same_word(&self, word: usize, pending: &Pending<'_>) -> bool {
        let together = match (self, &pending.place) {
            (Place::Global(a, _), Place::Global(b, _)) => a.base == b.base,
            (Place::Shared(_), Place::Shared(_)) => true,
            _ => false,
        };
        together && word == pending.word
    }
}

fn put<const WORDS: usize>(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    aim: &Aim,
    planes: &[Plane; WORDS],
) -> Result<(), Failure> {
    let Aim { window, ref addresses, active, attempt } = *aim;
    if aim.is_run(WORDS) {
        match resolve(warp, block, cx, window, 0, addresses[0], aim.whole()) {
            Ok(Place::Global(allocation, at)) => {
                let words = &allocation.words[at as usize / 4..][..WORDS * LANES];
                for (lane, words) in words.chunks_exact(WORDS).enumerate() {
                    for k in 0..WORDS {
                        words[k].store(planes[k][lane], Relaxed);
                    }
                }
                return Ok(());
            }
            Ok(Place::Shared(at)) => {
                let words = &mut block.shared[at as usize / 4..][..WORDS * LANES];
                for (lane, words) in words.chunks_exact_mut(WORDS).enumerate() {
                    for k in 0..WORDS {
                        words[k] = planes[k][lane];
                    }
                }
                return Ok(());
            }
            _ => {}
        }
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
                    let place = match place {
                        Place::Global(allocation, at) => Place::Global(allocation, at),
                        Place::Shared(at) => Place::Shared(at),
                        Place::Local(at) | Place::Param(at) => Place::Local(at),
                    };
                    let next = Pending { place, word, value: value & mask, mask };
                    write_word(warp, block, pending.replace(next));
                }
            }
        }
    }
    write_word(warp, block, pending);
    Ok(())
}

pub(super) fn store(
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
