//! The heap from which kernels allocate by `malloc`: blocks of one allocation of the device.
//!
//! Blocks lie apart, and one is placed behind the last, so that what was freed is used again as
//! late as possible: accesses outside of blocks and to freed ones are found.

use crate::error::ErrorKind;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size of a device's heap unless it is set: that of CUDA (`CU_LIMIT_MALLOC_HEAP_SIZE`).
pub(crate) const HEAP_BYTES: u64 = 8 << 20;

/// Alignment of blocks, as CUDA promises it.
const ALIGN: u64 = 16;
/// Bytes between blocks that belong to none.
const GUARD_BYTES: u64 = 64;
/// Addresses of a heap by its size, and least: room for guards, and for blocks to be used late.
const SPREAD: u64 = 4;
const REGION_BYTES_MIN: u64 = 1 << 20;
/// Number of freed blocks that are remembered, for diagnosis.
const FREED_MAX: usize = 4096;

/// Why a block cannot be freed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotFreed {
    Already,
    Unknown,
}

/// A heap, by offsets in its allocation.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Most bytes that blocks have together.
    limit: u64,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// Size of each block.
    live: BTreeMap<u64, u64>,
    /// Blocks that were freed, the oldest first.
    freed: VecDeque<(u64, u64)>,
    used: u64,
    /// Where the next block is looked for, and the end of all that there were.
    next: u64,
    top: u64,
}

/// What a block takes of the limit.
fn taken(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGN)
}

impl Heap {
    pub fn new(limit: u64) -> Heap {
        Heap { limit, blocks: Mutex::default() }
    }

    /// Bytes of the allocation of a heap.
    pub fn region_bytes(limit: u64) -> Option<u64> {
        limit.checked_mul(SPREAD).map(|bytes| bytes.max(REGION_BYTES_MIN))
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates a block; `None` if there is no room.
    pub fn alloc(&self, bytes: u64) -> Option<u64> {
        let mut blocks = self.blocks();
        if bytes > self.limit || taken(bytes) > self.limit - blocks.used {
            return None;
        }
        let end = Heap::region_bytes(self.limit)?;
        let first = blocks.next;
        let at = blocks.gap(first..end, bytes).or_else(|| blocks.gap(0..end, bytes))?;
        blocks.live.insert(at, bytes);
        blocks.used += taken(bytes);
        blocks.next = at + taken(bytes) + GUARD_BYTES;
        let end = at + taken(bytes);
        if at < blocks.top {
            blocks.freed.retain(|&(start, size)| start + size <= at || start >= end);
        }
        blocks.top = blocks.top.max(end);
        Some(at)
    }

    /// Frees the block that begins at an offset.
    pub fn free(&self, at: u64) -> Result<(), NotFreed> {
        let mut blocks = self.blocks();
        let Some(bytes) = blocks.live.remove(&at) else {
            let known = blocks.freed.iter().any(|&(start, _)| start == at);
            return Err(if known { NotFreed::Already } else { NotFreed::Unknown });
        };
        blocks.used -= taken(bytes);
        if blocks.freed.len() == FREED_MAX {
            blocks.freed.pop_front();
        }
        blocks.freed.push_back((at, bytes));
        Ok(())
    }

    /// Whether a block contains a range.
    pub fn holds(&self, at: u64, bytes: u64) -> bool {
        let blocks = self.blocks();
        let block = blocks.live.range(..=at).next_back();
        block.is_some_and(|(start, size)| bytes <= *size && at - start <= size - bytes)
    }

    /// Diagnoses a range outside of blocks, in the heap at `base`.
    pub fn diagnose(&self, base: u64, at: u64, bytes: u64) -> (ErrorKind, String) {
        let blocks = self.blocks();
        let inside = |&&(start, size): &&(u64, u64)| at < start + size.max(1) && at + bytes > start;
        if let Some((start, size)) = blocks.freed.iter().rev().find(inside) {
            let text = format!("it is in the freed block of {size} bytes at {:#x}", base + start);
            return (ErrorKind::UseAfterFree, text);
        }
        let before = blocks.live.range(..=at).next_back();
        let past = before.map(|(start, size)| (at + bytes - (start + size), "past the end", start));
        let after = blocks.live.range(at..).next();
        let ahead = after.map(|(start, _)| (start - at, "before the start", start));
        let text = match past.into_iter().chain(ahead).min_by_key(|(missed, ..)| *missed) {
            None => "no block of the heap is allocated".to_owned(),
            Some((missed, side, start)) => {
                let size = blocks.live.get(start).copied().unwrap_or_default();
                let place = base + start;
                format!("{missed} bytes {side} of the block of {size} bytes at {place:#x}")
            }
        };
        (ErrorKind::OutOfBounds, text)
    }
}

impl Blocks {
    /// A place for a block and the guard behind it.
    fn gap(&self, range: std::ops::Range<u64>, bytes: u64) -> Option<u64> {
        let room = taken(bytes) + GUARD_BYTES;
        let mut at = range.start.max(GUARD_BYTES);
        if let Some((start, size)) = self.live.range(..at).next_back() {
            at = at.max(start + taken(*size) + GUARD_BYTES);
        }
        for (start, size) in self.live.range(at..) {
            if at + room <= *start {
                break;
            }
            at = start + taken(*size) + GUARD_BYTES;
        }
        (at.checked_add(room)? <= range.end).then_some(at)
    }
}
