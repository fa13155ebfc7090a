//! Address resolution: alignment and bounds of the lanes' accesses.

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

/// Reduces a row by halves, which vectorises, unlike a running value.
#[inline(always)]
fn reduced<T: Copy>(mut row: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for half in [16, 8, 4, 2, 1] {
        for lane in 0..half {
            row[lane] = f(row[lane], row[lane + half]);
        }
    }
    row[0]
}

/// Offsets of the lanes' addresses from the first one, 0 for inactive lanes, and whether one
/// exceeds 32 bits; 32 bits have vector minimum and maximum instructions.
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

/// The groups formed by all lanes of a warp accessing a word each, before the instruction's offset.
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

/// Lanes within one allocation or window, which a single bounds check covers.
pub(crate) struct Span<'a> {
    /// Location of the lowest address.
    pub place: Place<'a>,
    pub pattern: Pattern,
}

impl Aim {
    /// Resolves the lanes as one range, if a single allocation or window contains it. Local memory
    /// is per lane and has no ranges.
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

    /// Resolves the range from the lowest address to one `length` bytes on; returns the location
    /// and the value that turns addresses into offsets.
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
        // Inactive lanes rarely hold misaligned values; if they do, the check is repeated per lane.
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

/// Description of an access, for messages.
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

/// Why an address cannot be resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Miss {
    /// Out of bounds of a window: its name, the offset, and its size.
    Window(&'static str, u64, u64),
    /// Address outside every allocation.
    Memory(u64),
    /// Rank of a cluster block that has exited.
    Exited(usize),
}

/// Location of an address.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Global(&'a Allocation, u64),
    Shared(u64),
    /// Shared memory of another block of the cluster: rank and offset.
    Peer(usize, u64),
    Local(u64),
    Param(u64),
}

/// Splits a generic address into window and offset.
fn classify(address: u64) -> (Window, u64) {
    match address & !(WINDOW_BYTES - 1) {
        SHARED_BASE => (Window::Shared, address - SHARED_BASE),
        LOCAL_BASE => (Window::Local, address - LOCAL_BASE),
        PARAM_BASE => (Window::Param, address - PARAM_BASE),
        _ => (Window::Global, address),
    }
}

/// Finds the allocation of a global address, trying the last hit first.
fn global<'a>(
    last_hit: &mut usize,
    cx: &Context<'a>,
    address: u64,
    attempt: Attempt,
) -> Result<(&'a Allocation, u64), Miss> {
    if let Some(hit) = cx.table.get(*last_hit) {
        let offset = address.wrapping_sub(hit.base);
        if offset < hit.bytes && hit.bytes - offset >= attempt.bytes {
            return match hit.admits(offset, attempt.bytes) {
                true => Ok((hit, offset)),
                false => Err(Miss::Memory(address)),
            };
        }
    }
    let found = cx.table.find(address, attempt.bytes).filter(|_| address >= GLOBAL_BASE);
    match found.and_then(|index| cx.table.get(index).map(|hit| (index, hit))) {
        Some((index, hit)) if hit.admits(address - hit.base, attempt.bytes) => {
            *last_hit = index;
            Ok((hit, address - hit.base))
        }
        _ => Err(Miss::Memory(address)),
    }
}

/// Resolves an address that names a block of the cluster.
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

/// Resolves a lane's address with a bounds check.
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

/// Resolves an address with a bounds check. The diagnosis of a miss is left to the caller, since it
/// is slow and not always needed.
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
        // Its addresses may be generic too.
        Window::Param => (Window::Param, address % WINDOW_BYTES),
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
