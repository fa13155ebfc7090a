//! Global memory: allocations of atomic words behind an address table.
//!
//! Words are accessed with relaxed atomic operations, so blocks on different workers may race as
//! they may on a GPU, without undefined behaviour here. Parts of a word are written by
//! compare-and-swap: neighbours are never lost. Reads and writes of 64 bits are two words; those
//! that must be one step take a lock.

#![expect(unsafe_code, reason = "memory is zeroed by the system when it is touched")]

use crate::error::{Error, ErrorKind, Result};
use crate::written::Written;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Generic addresses from here are shared memory.
pub(crate) const SHARED_BASE: u64 = 1 << 40;
/// Generic addresses from here are local memory.
pub(crate) const LOCAL_BASE: u64 = 2 << 40;
/// Generic addresses from here are kernel parameters.
pub(crate) const PARAM_BASE: u64 = 3 << 40;
/// Every global address is at least this.
pub(crate) const GLOBAL_BASE: u64 = 1 << 44;
/// Bytes of each window below global memory.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;

/// Bytes of the shared window that one block of a cluster has.
pub(crate) const RANK_BYTES: u64 = 1 << 24;

/// Alignment of every allocation.
const ALIGN: u64 = 256;
/// Bytes between allocations that belong to nobody.
const GUARD_BYTES: u64 = 1 << 20;
/// Freed allocations that are remembered, to name them in errors.
const FREED_MAX: usize = 4096;

/// One allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub words: Box<[AtomicU32]>,
    pub written: Written,
}

/// Live allocations by address, and the last that were freed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    live: Vec<Arc<Allocation>>,
    freed: Vec<(u64, u64)>,
}

/// The memory of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    table: RwLock<Arc<Table>>,
    space: Mutex<AddressSpace>,
    wide_lock: Mutex<()>,
    /// Allocations before this number may have been written while nobody looked.
    assumed: AtomicU64,
}

#[derive(Debug)]
struct AddressSpace {
    allocations: u64,
    next: u64,
    used: u64,
    budget: u64,
}

/// Runs `f` on every part of a word that `bytes` at `offset` of an allocation touch: the word's
/// index, the first byte in it, and the range of the buffer.
fn words_of(offset: u64, bytes: usize, mut f: impl FnMut(usize, usize, std::ops::Range<usize>)) {
    let mut at = 0;
    while at < bytes {
        let position = offset as usize + at;
        let first = position % 4;
        let count = (4 - first).min(bytes - at);
        f(position / 4, first, at..at + count);
        at += count;
    }
}

impl Allocation {
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        words_of(offset, out.len(), |word, first, range| {
            let bytes = self.words[word].load(Relaxed).to_le_bytes();
            let count = range.len();
            out[range].copy_from_slice(&bytes[first..first + count]);
        });
    }

    pub fn write(&self, offset: u64, data: &[u8]) {
        self.written.set(offset, data.len() as u64, true);
        words_of(offset, data.len(), |word, first, range| {
            let mut bytes = [0; 4];
            let mut mask = [0; 4];
            bytes[first..first + range.len()].copy_from_slice(&data[range.clone()]);
            mask[first..first + range.len()].fill(0xff);
            store_part(&self.words[word], u32::from_le_bytes(bytes), u32::from_le_bytes(mask));
        });
    }
}

/// Stores the bits of `mask`.
#[inline(always)]
pub(crate) fn store_part(word: &AtomicU32, value: u32, mask: u32) {
    if mask == u32::MAX {
        word.store(value, Relaxed);
        return;
    }
    let mut old = word.load(Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(old, (old & !mask) | (value & mask), Relaxed, Relaxed)
    {
        old = now;
    }
}

impl Table {
    /// The index of the live allocation that holds `bytes` at `address`.
    pub fn find(&self, address: u64, bytes: u64) -> Option<usize> {
        let after = self.live.partition_point(|allocation| allocation.base <= address);
        let index = after.checked_sub(1)?;
        let allocation = &self.live[index];
        let offset = address - allocation.base;
        (bytes <= allocation.bytes && offset <= allocation.bytes - bytes).then_some(index)
    }

    pub fn get(&self, index: usize) -> Option<&Allocation> {
        self.live.get(index).map(|allocation| &**allocation)
    }

    /// Why an address is not valid: the kind, and where it is from the nearest allocation.
    pub fn diagnose(&self, address: u64, bytes: u64) -> (ErrorKind, String) {
        let end = address.saturating_add(bytes);
        let inside = |base: u64, size: u64| address < base + size.max(1) && end > base;
        if let Some((base, size)) = self.freed.iter().rev().find(|&&(b, s)| inside(b, s)) {
            let text = format!("it is in the freed allocation of {size} bytes at {base:#x}");
            return (ErrorKind::UseAfterFree, text);
        }
        let distance = |allocation: &Allocation| {
            let past = end.saturating_sub(allocation.base + allocation.bytes);
            let before = allocation.base.saturating_sub(address);
            past.max(before)
        };
        let nearest = self.live.iter().min_by_key(|allocation| distance(allocation));
        let text = match nearest {
            None => "there is no allocation".to_string(),
            Some(near) => {
                let missed = distance(near);
                let side = if address < near.base { "before the start" } else { "past the end" };
                let (size, base) = (near.bytes, near.base);
                format!("{missed} bytes {side} of the allocation of {size} bytes at {base:#x}")
            }
        };
        (ErrorKind::OutOfBounds, text)
    }
}

impl Memory {
    pub fn new(budget: u64) -> Memory {
        Memory {
            table: RwLock::default(),
            space: Mutex::new(AddressSpace { allocations: 0, next: GLOBAL_BASE, used: 0, budget }),
            wide_lock: Mutex::new(()),
            assumed: AtomicU64::new(0),
        }
    }

    /// Notes that a launch may write anything unseen.
    pub fn assume_written(&self) {
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        self.assumed.fetch_max(space.allocations + 1, Relaxed);
    }

    /// Allocations before this number may have been written unseen.
    pub fn assumed(&self) -> u64 {
        self.assumed.load(Relaxed)
    }

    /// The allocations as they are now; they stay alive as long as the snapshot.
    pub fn snapshot(&self) -> Arc<Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes 64-bit accesses one step.
    pub fn lock_wide(&self) -> MutexGuard<'_, ()> {
        self.wide_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn alloc(&self, bytes: u64) -> Result<u64> {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let free = space.budget - space.used;
        if bytes > free {
            let text = format!("failed to allocate {bytes} bytes: {free} of {} left", space.budget);
            return Err(Error::new(ErrorKind::OutOfMemory, text));
        }
        let base = space.next;
        space.next = (base + bytes + GUARD_BYTES).next_multiple_of(ALIGN);
        space.used += bytes;
        space.allocations += 1;
        let words = zeroed(bytes.div_ceil(4) as usize);
        let written = Written::new(space.allocations, zeroed(bytes.div_ceil(32) as usize));
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut table).live.push(Arc::new(Allocation { base, bytes, words, written }));
        Ok(base)
    }

    pub fn free(&self, address: u64) -> Result<()> {
        let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut table);
        let Ok(index) = table.live.binary_search_by_key(&address, |allocation| allocation.base)
        else {
            let text = format!("failed to free {address:#x}: no allocation begins there");
            return Err(Error::new(ErrorKind::UnknownAddress, text));
        };
        let allocation = table.live.remove(index);
        space.used -= allocation.bytes;
        if table.freed.len() == FREED_MAX {
            table.freed.remove(0);
        }
        table.freed.push((allocation.base, allocation.bytes));
        Ok(())
    }

    /// Runs `f` on the allocation that holds a range, and the range's offset in it.
    pub fn with_range<T>(
        &self,
        attempt: &str,
        address: u64,
        bytes: u64,
        f: impl FnOnce(&Allocation, u64) -> T,
    ) -> Result<T> {
        let table = self.snapshot();
        match table.find(address, bytes).and_then(|index| table.get(index)) {
            Some(allocation) => Ok(f(allocation, address - allocation.base)),
            None => {
                let (_, why) = table.diagnose(address, bytes);
                let text = format!("failed to {attempt} {bytes} bytes at {address:#x}: {why}");
                Err(Error::new(ErrorKind::UnknownAddress, text))
            }
        }
    }
}

/// Words that the system zeroes when they are first touched.
fn zeroed(count: usize) -> Box<[AtomicU32]> {
    let words = vec![0_u32; count].into_boxed_slice();
    let raw = Box::into_raw(words) as *mut [AtomicU32];
    // SAFETY: `raw` came from a box of as many u32, and AtomicU32 has the size, alignment and
    // bit validity of u32, so the box owns the same allocation with the same layout.
    unsafe { Box::from_raw(raw) }
}
