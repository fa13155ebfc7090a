//! Where the lanes of an access go: addresses, alignment, bounds.

use crate::access::{Access, Window};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::error::ErrorKind;
use crate::failure::{Failure, first_lane};
use crate::groups::{GROUP, Groups, Pattern};
use crate::memory::{
    Allocation, GLOBAL_BASE, LOCAL_BASE, PARAM_BASE, RANK_BYTES, SHARED_BASE, WINDOW_BYTES,
};
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::warp::Warp;

/// Each lane's address.
#[inline(always)]
pub(crate) fn addresses(
    warp: &Warp,
    cx: &Context<'_>,
    base: Slot,
    wide: bool,
    offset: i64,
) -> [u64; LANES] {
    let constants = &cx.program.constants;
    let mut out = [0; LANES];
    if wide {
        let base = warp.registers.wide(constants, base);
        for lane in 0..LANES {
            out[lane] = base[lane].wrapping_add(offset as u64);
        }
        return out;
    }
    let base = warp.registers.word(constants, base);
    for lane in 0..LANES {
        out[lane] = u64::from(base[lane].wrapping_add(offset as u32));
    }
    out
}

/// Reduces a row by halves, which vectorises where a running value does not.
#[inline(always)]
fn reduced<T: Copy>(mut row: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            row[lane] = f(row[lane], row[lane + half]);
        }
    }
    row[0]
}

/// How far the lanes' addresses are from the first one, 0 for those that take no part, and whether
/// one is further than 32 bits say: the vector units have their minimum and maximum.
#[inline(always)]
fn distances<const ALL: bool>(
    addresses: &[u64; LANES],
    first: u64,
    active: u32,
) -> ([i32; LANES], bool) {
    let mut distances = [0_i32; LANES];
    let mut beyond = 0_i64;
    for lane in 0..LANES {
        let distance = addresses[lane].wrapping_sub(first) as i64;
        let kept = if ALL || active >> lane & 1 != 0 { distance } else { 0 };
        distances[lane] = kept as i32;
        beyond |= kept ^ i64::from(kept as i32);
    }
    (distances, beyond != 0)
}

pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

/// The lanes' addresses in a window.
pub(crate) struct Aim {
    pub window: Window,
    pub addresses: [u64; LANES],
    pub active: u32,
    pub attempt: Attempt,
}

/// The groups that every lane of a warp forms where each accesses a word, before the offset of the
/// instruction.
#[inline(always)]
pub(crate) fn word_groups(
    warp: &Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
) -> Option<Groups> {
    let constants = &cx.program.constants;
    match access.wide_address {
        true => Groups::new(warp.registers.wide(constants, op.a), 4, u32::MAX),
        false => Groups::new(warp.registers.word(constants, op.a), 4, u32::MAX),
    }
}

/// Lanes that reach into one allocation or window, so that one check covers them.
pub(crate) struct Span<'a> {
    /// Where the lowest lane goes.
    pub place: Place<'a>,
    pub pattern: Pattern,
}

impl Aim {
    /// The lanes as one range, if one allocation or window holds it. Local memory is each lane's
    /// own, and has no ranges.
    #[inline(always)]
    pub fn span<'a>(
        &self,
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'a>,
    ) -> Option<Span<'a>> {
        let Aim { ref addresses, active, attempt, .. } = *self;
        if let Some(Groups { firsts, step }) = Groups::new(addresses, attempt.bytes, active) {
            let low = firsts.into_iter().fold(u64::MAX, u64::min);
            let high = firsts.into_iter().fold(0, u64::max);
            let last = (high - low).saturating_add(step * (GROUP as u64 - 1));
            let (place, shift) = self.range(warp, block, cx, low, last)?;
            let firsts = firsts.map(|first| first.wrapping_add(shift));
            return Some(Span { place, pattern: Pattern::Grouped(Groups { firsts, step }) });
        }
        let first = addresses[first_lane(active)];
        let (distances, beyond) = match active {
            u32::MAX => distances::<true>(addresses, first, active),
            _ => distances::<false>(addresses, first, active),
        };
        if beyond {
            return None;
        }
        let low = i64::from(reduced(distances, i32::min));
        let high = i64::from(reduced(distances, i32::max));
        let lowest = first.wrapping_add(low as u64);
        let (place, shift) = self.range(warp, block, cx, lowest, (high - low) as u64)?;
        let first = first.wrapping_add(shift);
        let offsets = distances.map(|distance| first.wrapping_add(i64::from(distance) as u64));
        Some(Span { place, pattern: Pattern::Scattered(offsets) })
    }

    /// The place of lanes from the lowest address to one so many bytes on, and what makes addresses
    /// offsets there.
    #[inline(always)]
    fn range<'a>(
        &self,
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'a>,
        lowest: u64,
        distance: u64,
    ) -> Option<(Place<'a>, u64)> {
        let bytes = distance.saturating_add(self.attempt.bytes);
        let whole = Attempt { bytes, ..self.attempt };
        let place = locate(warp, block, cx, self.window, 0, lowest, whole).ok()?;
        match place {
            Place::Global(_, at) | Place::Shared(at) | Place::Param(at) => {
                Some((place, at.wrapping_sub(lowest)))
            }
            Place::Local(_) | Place::Peer(..) => None,
        }
    }

    #[inline(always)]
    pub fn check_alignment(&self, align: u64) -> Result<(), Failure> {
        let Aim { ref addresses, active, attempt, .. } = *self;
        // What lanes that do not take part hold is rarely wrong, and then looked at again.
        let low = addresses.iter().fold(0, |low, address| low | address);
        if low & (align - 1) == 0 {
            return Ok(());
        }
        let lanes = |lane: &usize| addresses[*lane] & (align - 1) != 0;
        match lanes_of(active).find(lanes) {
            Some(lane) => Err(attempt.misaligned(lane, addresses[lane], align)),
            None => Ok(()),
        }
    }
}

/// What an access is, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    pub verb: &'static str,
    pub bytes: u64,
}

impl Attempt {
    pub fn misaligned(self, lane: usize, address: u64, align: u64) -> Failure {
        let Attempt { verb, bytes } = self;
        let message =
            format!("{verb} of {bytes} bytes at {address:#x} is not aligned to {align} bytes");
        Failure::new(ErrorKind::Misaligned, lane, message)
    }

    pub fn missed(self, cx: &Context<'_>, lane: usize, miss: Miss) -> Failure {
        let Attempt { verb, bytes } = self;
        let (kind, message) = match miss {
            Miss::Window(window, offset, size) => {
                let missed = offset.saturating_add(bytes).saturating_sub(size);
                let message = format!(
                    "{verb} of {bytes} bytes at {window} offset {offset:#x} is out of bounds: \
                     {missed} bytes past the end of the {window} memory of {size} bytes"
                );
                (ErrorKind::OutOfBounds, message)
            }
            Miss::Memory(address) => {
                let (kind, why) = cx.table.diagnose(address, bytes);
                (kind, format!("{verb} of {bytes} bytes at {address:#x} is out of bounds: {why}"))
            }
            Miss::Exited(rank) => {
                let place = format!("in block {rank} of the cluster, which has exited");
                (ErrorKind::UseAfterFree, format!("{verb} of {bytes} bytes {place}"))
            }
        };
        Failure::new(kind, lane, message)
    }
}

/// Why an address leads nowhere.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Miss {
    /// The window, an offset in it, and its size.
    Window(&'static str, u64, u64),
    /// An address that no allocation holds.
    Memory(u64),
    /// A block of the cluster that has exited.
    Exited(usize),
}

/// Where one address leads.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Global(&'a Allocation, u64),
    Shared(u64),
    /// Shared memory of another block of the cluster.
    Peer(usize, u64),
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
    address: u64,
    attempt: Attempt,
) -> Result<(&'a Allocation, u64), Miss> {
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
        None => Err(Miss::Memory(address)),
    }
}

/// Finds what an address that names a block of the cluster leads to.
fn in_cluster<'a>(block: &BlockState, at: u64, attempt: Attempt) -> Result<Place<'a>, Miss> {
    let size = u64::from(block.shared_bytes);
    let (rank, offset) = block.peers.locate(at);
    if rank >= block.peers.size.into() {
        return Err(Miss::Window("shared", at, size));
    }
    if attempt.bytes > size || offset > size - attempt.bytes {
        return Err(Miss::Window("shared", offset, size));
    }
    let (rank, own) = (rank as usize, block.peers.rank as usize);
    if rank == own {
        return Ok(Place::Shared(offset));
    }
    match block.peers.exited[rank] {
        true => Err(Miss::Exited(rank)),
        false => Ok(Place::Peer(rank, offset)),
    }
}

/// Resolves one lane's address, checked for bounds.
pub(crate) fn resolve<'a>(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'a>,
    window: Window,
    lane: usize,
    address: u64,
    attempt: Attempt,
) -> Result<Place<'a>, Failure> {
    locate(warp, block, cx, window, lane, address, attempt)
        .map_err(|miss| attempt.missed(cx, lane, miss))
}

/// Finds what an address leads to, checked for bounds. To say what was missed takes longer: whoever
/// only tries need not.
fn locate<'a>(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'a>,
    window: Window,
    lane: usize,
    address: u64,
    attempt: Attempt,
) -> Result<Place<'a>, Miss> {
    let (window, at) = match window {
        Window::Generic => classify(address),
        window => (window, address),
    };
    let (name, size) = match window {
        Window::Global | Window::Generic => {
            let (allocation, offset) = global(&mut warp.last_hit, cx, at, attempt)?;
            return Ok(Place::Global(allocation, offset));
        }
        Window::Shared if at >= RANK_BYTES => return in_cluster(block, at, attempt),
        Window::Shared => ("shared", u64::from(block.shared_bytes)),
        Window::Local => ("local", warp.local.len() as u64 / 8),
        Window::Param => ("parameter", cx.param_bytes),
    };
    if attempt.bytes > size || at > size - attempt.bytes {
        return Err(Miss::Window(name, at, size));
    }
    Ok(match window {
        Window::Shared => Place::Shared(at),
        Window::Local => Place::Local(at + lane as u64 * size),
        _ => Place::Param(at),
    })
}
