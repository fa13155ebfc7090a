//! TMA copies: appended to the block's queue when issued, completed on a later turn in any order,
//! or when their group is waited for.

use super::atomic::{modified, update};
use super::mbarrier::{change, locate};
use crate::access::{Atomic, Modify, Window};
use crate::aim::{Attempt, Miss, Place, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::bulk::{Bulk, Completion, End, Leak};
use crate::context::Context;
use crate::decode::known;
use crate::failure::{Failure, Fault, misuse};
use crate::mbarrier::BarrierAddress;
use crate::memory::{Allocation, GLOBAL_BASE};
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::tensor_map::Swizzle;
use crate::tile::Tile;
use crate::types::Type;
use crate::unit::{BulkCopy, BulkKind, StoreAsync, TileMode};
use crate::warp::Warp;
use std::sync::atomic::Ordering::Relaxed;

/// Alignment of source, destination and size.
const ALIGN: u64 = 16;
/// Alignment of a tile in shared memory.
const TILE_ALIGN: u64 = 128;
/// Alignment of a tensor map.
const MAP_ALIGN: u64 = 64;

/// Shared memory end of a lane's copy.
fn shared_end(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    lane: usize,
    address: u64,
    (bytes, align): (u64, u64),
) -> Result<BarrierAddress, Failure> {
    let attempt = Attempt { verb: "bulk copy", bytes };
    if !address.is_multiple_of(align) {
        return Err(attempt.misaligned(lane, address, align));
    }
    match resolve(warp, block, cx, Window::Shared, lane, address, attempt)? {
        Place::Peer(rank, at) => Ok((rank, at)),
        Place::Shared(at) => Ok((block.peers.rank as usize, at)),
        _ => misuse(lane, format!("bulk copy at {address:#x}, outside shared memory")),
    }
}

/// Reads a lane's tensor map.
fn tensor_map(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    lane: usize,
    address: u64,
) -> Result<Tile, Failure> {
    let attempt = Attempt { verb: "tensor map", bytes: 128 };
    if !address.is_multiple_of(MAP_ALIGN) {
        return Err(attempt.misaligned(lane, address, MAP_ALIGN));
    }
    let mut bytes = [0; 128];
    match resolve(warp, block, cx, Window::Generic, lane, address, attempt)? {
        Place::Global(allocation, at) => allocation.read(at, &mut bytes),
        Place::Param(at) => {
            for (chunk, word) in bytes.chunks_exact_mut(4).zip(&cx.params[at as usize / 4..]) {
                chunk.copy_from_slice(&word.to_le_bytes());
            }
        }
        _ => return misuse(lane, format!("tensor map at {address:#x}, in shared or local memory")),
    }
    match Tile::decode(&bytes) {
        Some(tile) => Ok(tile),
        None => misuse(lane, format!("no tensor map at {address:#x}")),
    }
}

/// Register operands of a lane's bulk copy.
struct Operands<'a> {
    warp: &'a Warp,
    cx: &'a Context<'a>,
    slots: &'a [Slot],
    lane: usize,
}

impl Operands<'_> {
    fn wide(&self, index: usize) -> u64 {
        self.warp.registers.wide(&self.cx.program.constants, self.slots[index])[self.lane]
    }

    fn word(&self, index: usize) -> u32 {
        self.warp.registers.word(&self.cx.program.constants, self.slots[index])[self.lane]
    }
}

/// Issues the copies of the active lanes.
pub(super) fn issue(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    copy: BulkCopy,
    active: u32,
    pc: u32,
) -> Result<(), Failure> {
    let slots = cx.list(op);
    for lane in lanes_of(active) {
        let ((to, from), bytes, next) = match copy.kind {
            BulkKind::TileToShared(mode) => {
                let (tile, shared, bytes) = tile_ends(warp, block, cx, slots, (lane, mode))?;
                let next = 2 + mode.coordinates() + mode.offsets();
                ((shared, End::Tile(Box::new(tile))), bytes, next)
            }
            BulkKind::SharedToTile(mode) => {
                let (tile, shared, bytes) = tile_ends(warp, block, cx, slots, (lane, mode))?;
                if tile.leaves() {
                    return misuse(lane, "a store of pixels whose bounding box leaves the tensor");
                }
                ((End::Tile(Box::new(tile)), shared), bytes, 2 + mode.coordinates())
            }
            kind => {
                let (ends, bytes) = plain_ends(warp, block, cx, slots, (lane, kind))?;
                (ends, bytes, 3)
            }
        };
        if let End::Shared(rank, _) = from
            && rank != block.peers.rank as usize
        {
            return misuse(lane, "a TMA copy from another block's shared memory");
        }
        let thread = warp.index * LANES as u32 + lane as u32;
        let completion = match copy.barrier {
            true => {
                let address = Operands { warp, cx, slots, lane }.wide(next);
                let (rank, at) = locate(warp, block, cx, Window::Shared, lane, address)?;
                Completion::Barrier(rank, at)
            }
            false => Completion::Group(*block.queue.groups.entry(thread).or_default()),
        };
        let mut ranks = 0;
        if copy.multicast {
            ranks = Operands { warp, cx, slots, lane }.word(next + 1) & 0xffff;
            let size = block.peers.size;
            if ranks == 0 || ranks >> size != 0 {
                return misuse(lane, format!("a multicast mask {ranks:#x} in a cluster of {size}"));
            }
        }
        let reduce = reduction(copy, &to, lane)?;
        block.queue.push(Bulk {
            from,
            to,
            bytes,
            ranks,
            reduce,
            completion,
            data: None,
            number: 0,
            thread,
            pc,
        });
    }
    Ok(())
}

/// Operation of a reduction; the element type of a tensor is that of its map.
fn reduction(copy: BulkCopy, to: &End, lane: usize) -> Result<Option<(Modify, Type)>, Failure> {
    match (copy.reduce, to) {
        (Some((modify, _)), End::Tile(tile)) if known(modify, tile.element) => {
            Ok(Some((modify, tile.element)))
        }
        (Some((modify, _)), End::Tile(tile)) => {
            let element = tile.element;
            misuse(lane, format!("a tensor of {element} has no {modify:?} reduction"))
        }
        (reduce, _) => Ok(reduce),
    }
}

/// Tile, shared memory end and size of a lane's tensor copy.
fn tile_ends(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    slots: &[Slot],
    (lane, mode): (usize, TileMode),
) -> Result<(Tile, End, u64), Failure> {
    let operands = Operands { warp, cx, slots, lane };
    let (address, map) = (operands.wide(0), operands.wide(1));
    let mut start = [0; 5];
    for (axis, start) in start.iter_mut().enumerate().take(mode.coordinates()) {
        *start = i64::from(operands.word(2 + axis) as i32);
    }
    let mut offsets = [0; 3];
    for (axis, offset) in offsets.iter_mut().enumerate().take(mode.offsets()) {
        *offset = i64::from(operands.word(2 + mode.coordinates() + axis) as u16);
    }
    let mut tile = tensor_map(warp, block, cx, lane, map)?;
    let (found, rank) = (tile.rank, mode.rank());
    if found != rank {
        return misuse(lane, format!("a tensor map of rank {found}, not {rank}"));
    }
    let taken = match mode {
        TileMode::Box { .. } => tile.take_box(start),
        TileMode::Rows => tile.take_rows(start),
        TileMode::Pixels { .. } => tile.take_pixels(start, offsets),
    };
    taken.or_else(|why| misuse(lane, why))?;
    let bytes = tile.bytes();
    let at = shared_end(warp, block, cx, lane, address, (bytes, TILE_ALIGN))?;
    Ok((tile, End::Shared(at.0, at.1), bytes))
}

/// Source, destination and size of a lane's non-tensor copy.
fn plain_ends(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    slots: &[Slot],
    (lane, kind): (usize, BulkKind),
) -> Result<((End, End), u64), Failure> {
    let operands = Operands { warp, cx, slots, lane };
    let (first, second) = (operands.wide(0), operands.wide(1));
    let bytes = u64::from(operands.word(2));
    let attempt = Attempt { verb: "bulk copy", bytes };
    if !bytes.is_multiple_of(ALIGN) {
        return misuse(lane, format!("a TMA copy of {bytes} bytes, not a multiple of 16"));
    }
    let mut shared = |address| {
        let at = shared_end(warp, block, cx, lane, address, (bytes, ALIGN))?;
        Ok(End::Shared(at.0, at.1))
    };
    let global = |address: u64| match address.is_multiple_of(ALIGN) {
        true => allocation(cx, lane, address, bytes).map(|_| End::Global(address)),
        false => Err(attempt.misaligned(lane, address, ALIGN)),
    };
    let ends = match kind {
        BulkKind::GlobalToShared => (shared(first)?, global(second)?),
        BulkKind::SharedToGlobal => (global(first)?, shared(second)?),
        _ => (shared(first)?, shared(second)?),
    };
    Ok((ends, bytes))
}

/// Issues `st.async` and `red.async`.
pub(super) fn issue_store(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    store: StoreAsync,
    active: u32,
    pc: u32,
) -> Result<(), Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let element = u64::from(store.ty.bytes());
    let bytes = element * u64::from(store.count);
    let addresses = [0, 1].map(|index| *warp.registers.wide(constants, slots[index]));
    for lane in lanes_of(active) {
        let to = shared_end(warp, block, cx, lane, addresses[0][lane], (bytes, bytes))?;
        let barrier = locate(warp, block, cx, Window::Shared, lane, addresses[1][lane])?;
        let mut data = Vec::with_capacity(bytes as usize);
        for slot in &slots[2..2 + usize::from(store.count)] {
            match element {
                8 => data.extend(warp.registers.wide(constants, *slot)[lane].to_le_bytes()),
                _ => data.extend(warp.registers.word(constants, *slot)[lane].to_le_bytes()),
            }
        }
        block.queue.push(Bulk {
            from: End::Bytes(data),
            to: End::Shared(to.0, to.1),
            bytes,
            ranks: 0,
            reduce: store.reduce.map(|modify| (modify, store.ty)),
            completion: Completion::Barrier(barrier.0, barrier.1),
            data: None,
            number: 0,
            thread: warp.index * LANES as u32 + lane as u32,
            pc,
        });
    }
    Ok(())
}

pub(super) fn commit(warp: &Warp, block: &mut BlockState, active: u32) {
    for lane in lanes_of(active) {
        let thread = warp.index * LANES as u32 + lane as u32;
        *block.queue.groups.entry(thread).or_default() += 1;
    }
}

/// Completes, or only reads, the copies of all groups but the newest.
pub(super) fn wait(
    warp: &Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    (newest, reads): (u32, bool),
    active: u32,
) -> Result<(), Failure> {
    let mut pending = std::mem::take(&mut block.queue.pending);
    for lane in lanes_of(active) {
        let thread = warp.index * LANES as u32 + lane as u32;
        let committed = block.queue.groups.get(&thread).copied().unwrap_or_default();
        let mut at = 0;
        while at < pending.len() {
            let bulk = &mut pending[at];
            let over = matches!(bulk.completion, Completion::Group(group)
                if bulk.thread == thread && committed - group > newest);
            if !over {
                at += 1;
            } else if reads {
                read(block, cx, bulk)?;
                at += 1;
            } else {
                let mut bulk = pending.remove(at);
                land(block, cx, &mut bulk)?;
            }
        }
    }
    block.queue.pending = pending;
    Ok(())
}

/// Completes at least one of the copies issued before this turn.
pub(super) fn advance(
    block: &mut BlockState,
    cx: &Context<'_>,
    random: u64,
) -> Result<(), (u32, Box<Fault>)> {
    if block.queue.pending.is_empty() {
        return Ok(());
    }
    let mut pending = std::mem::take(&mut block.queue.pending);
    let first = random as usize % pending.len();
    let mut kept = Vec::new();
    for (index, mut bulk) in pending.drain(..).enumerate() {
        // A random choice, since copies complete in no particular order.
        if index != first && random.rotate_right(index as u32) & 1 != 0 {
            kept.push(bulk);
            continue;
        }
        let (warp, pc) = (bulk.thread / LANES as u32, bulk.pc);
        land(block, cx, &mut bulk).map_err(|failure| (warp, failure.at(pc)))?;
    }
    block.queue.pending = kept;
    Ok(())
}

/// Completes the pending copies of a block that has exited; returns those that had yet to access
/// its shared memory, which ceases to exist.
pub(super) fn finish(
    block: &mut BlockState,
    cx: &Context<'_>,
) -> Result<Vec<Leak>, (u32, Box<Fault>)> {
    let mut leaked = Vec::new();
    for mut bulk in std::mem::take(&mut block.queue.pending) {
        let (thread, pc) = (bulk.thread, bulk.pc);
        let ends = [&bulk.from, &bulk.to].into_iter();
        let shared = ends.filter_map(|end| match end {
            End::Shared(_, at) => Some(*at),
            _ => None,
        });
        let leaves = bulk.data.is_some() || matches!(bulk.from, End::Bytes(_));
        leaked.extend(shared.take(1).filter(|_| !leaves).map(|at| Leak { thread, pc, at }));
        let warp = thread / LANES as u32;
        land(block, cx, &mut bulk).map_err(|failure| (warp, failure.at(pc)))?;
    }
    Ok(leaked)
}

fn allocation<'a>(
    cx: &Context<'a>,
    lane: usize,
    address: u64,
    bytes: u64,
) -> Result<(&'a Allocation, u64), Failure> {
    let found = cx.table.find(address, bytes).filter(|_| address >= GLOBAL_BASE);
    match found.and_then(|index| cx.table.get(index)) {
        Some(of) if of.admits(address - of.base, bytes) => Ok((of, address - of.base)),
        _ => Err(Attempt { verb: "bulk copy", bytes }.missed(cx, lane, Miss::Memory(address))),
    }
}

/// Reads a copy's data, once.
fn read(block: &mut BlockState, cx: &Context<'_>, bulk: &mut Bulk) -> Result<(), Failure> {
    if bulk.data.is_some() {
        return Ok(());
    }
    let lane = bulk.thread as usize % LANES;
    let mut data = vec![0; bulk.bytes as usize];
    match &bulk.from {
        End::Bytes(bytes) => data.copy_from_slice(bytes),
        End::Global(address) => {
            let (allocation, at) = allocation(cx, lane, *address, bulk.bytes)?;
            allocation.read(at, &mut data);
        }
        End::Tile(tile) => read_tile(cx, lane, tile, &mut data)?,
        End::Shared(rank, at) => {
            let swizzle = match &bulk.to {
                End::Tile(tile) => tile.swizzle,
                _ => Swizzle::None,
            };
            let words = block.shared_of(*rank);
            for (index, chunk) in data.chunks_exact_mut(4).enumerate() {
                let word = words[swizzle.apply(at + 4 * index as u64) as usize / 4];
                chunk.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    bulk.data = Some(data);
    Ok(())
}

fn read_tile(cx: &Context<'_>, lane: usize, tile: &Tile, data: &mut [u8]) -> Result<(), Failure> {
    let element = tile.element_bytes as usize;
    for row in tile.rows() {
        let out = &mut data[row.at as usize..][..tile.row_bytes() as usize];
        for chunk in out.chunks_exact_mut(element) {
            chunk.copy_from_slice(&tile.fill[..element]);
        }
        if row.inside != 0 {
            let (allocation, at) = allocation(cx, lane, row.address, row.inside)?;
            allocation.read(at, &mut out[row.before as usize..][..row.inside as usize]);
        }
    }
    Ok(())
}

/// Reads, writes and completes a copy.
fn land(block: &mut BlockState, cx: &Context<'_>, bulk: &mut Bulk) -> Result<(), Failure> {
    read(block, cx, bulk)?;
    let data = bulk.data.take().unwrap_or_default();
    let lane = bulk.thread as usize % LANES;
    let all = |rank: usize| match bulk.ranks {
        0 => 1 << rank,
        ranks => ranks,
    };
    match &bulk.to {
        End::Shared(rank, at) => {
            let swizzle = match &bulk.from {
                End::Tile(tile) => tile.swizzle,
                _ => Swizzle::None,
            };
            let signal = match bulk.completion {
                Completion::Barrier(_, at) => Some((at, bulk.number)),
                Completion::Group(_) => None,
            };
            for rank in lanes_of(all(*rank)) {
                write_shared(block, (rank, *at), swizzle, bulk.reduce, &data);
                block.landed(rank, *at, bulk.bytes, signal);
            }
        }
        End::Global(address) => {
            let (allocation, at) = allocation(cx, lane, *address, bulk.bytes)?;
            write_global(cx, allocation, at, bulk.reduce, &data);
        }
        End::Tile(tile) => {
            for row in tile.rows().filter(|row| row.inside != 0) {
                let (allocation, at) = allocation(cx, lane, row.address, row.inside)?;
                let part = &data[(row.at + row.before) as usize..][..row.inside as usize];
                write_global(cx, allocation, at, bulk.reduce, part);
            }
        }
        End::Bytes(_) => {}
    }
    block.progressed = true;
    if let Completion::Barrier(rank, at) = bulk.completion {
        for rank in lanes_of(all(rank)) {
            let bytes = bulk.bytes as i64;
            change(block, lane, (rank, at), |state| state.transfer(-bytes))?;
        }
    }
    Ok(())
}

/// New value of a reduced memory cell.
fn reduced(modify: Modify, ty: Type, old: u64, value: u64) -> u64 {
    let atomic = Atomic { window: Window::Generic, modify, ty, wide_address: true };
    modified(atomic, old, value, 0)
}

fn element(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn write_shared(
    block: &mut BlockState,
    (rank, at): BarrierAddress,
    swizzle: Swizzle,
    reduce: Option<(Modify, Type)>,
    data: &[u8],
) {
    let words = block.shared_of(rank);
    match reduce {
        None => {
            for (index, chunk) in data.chunks_exact(4).enumerate() {
                let to = swizzle.apply(at + 4 * index as u64) as usize / 4;
                words[to] = element(chunk) as u32;
            }
        }
        Some((modify, ty)) => {
            let bytes = ty.bytes() as usize;
            for (index, chunk) in data.chunks_exact(bytes).enumerate() {
                let word = (at as usize + index * bytes) / 4;
                let old = match bytes {
                    8 => u64::from(words[word]) | u64::from(words[word + 1]) << 32,
                    _ => words[word].into(),
                };
                let new = reduced(modify, ty, old, element(chunk));
                words[word] = new as u32;
                if bytes == 8 {
                    words[word + 1] = (new >> 32) as u32;
                }
            }
        }
    }
}

fn write_global(
    cx: &Context<'_>,
    allocation: &Allocation,
    at: u64,
    reduce: Option<(Modify, Type)>,
    data: &[u8],
) {
    let Some((modify, ty)) = reduce else {
        return allocation.write(at, data);
    };
    let bytes = ty.bytes() as usize;
    let _one_step = (bytes == 8).then(|| cx.memory.lock_wide());
    for (index, chunk) in data.chunks_exact(bytes).enumerate() {
        let (position, value) = (at as usize + index * bytes, element(chunk));
        let words = &allocation.words[position / 4..];
        match bytes {
            8 => {
                let old =
                    u64::from(words[0].load(Relaxed)) | u64::from(words[1].load(Relaxed)) << 32;
                let new = reduced(modify, ty, old, value);
                words[0].store(new as u32, Relaxed);
                words[1].store((new >> 32) as u32, Relaxed);
            }
            4 => drop(update(&words[0], |old| reduced(modify, ty, old.into(), value) as u32)),
            _ => {
                let (shift, kept) = (8 * (position % 4), (1_u32 << (8 * bytes)) - 1);
                update(&words[0], |old| {
                    let new = reduced(modify, ty, (old >> shift & kept).into(), value) as u32;
                    old & !(kept << shift) | (new & kept) << shift
                });
            }
        }
    }
}
