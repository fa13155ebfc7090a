//! Global memory: allocations of atomic words, found through an address table.
//!
//! Words are accessed with relaxed atomics, so that blocks on different workers may race as on a
//! GPU without undefined behaviour on the host. Partial words are written by compare-and-swap,
//! which preserves neighbouring bytes. 64-bit accesses are two words; those that must be atomic
//! take a lock.

#![expect(unsafe_code, reason = "memory is zeroed by the system when it is touched")]

use crate::error::{Error, ErrorKind, Result};
use crate::written::Written;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Base of shared memory in the generic address space.
pub(crate) const SHARED_BASE: u64 = 1 << 40;
/// Base of local memory in the generic address space.
pub(crate) const LOCAL_BASE: u64 = 2 << 40;
/// Base of kernel parameters in the generic address space.
pub(crate) const PARAM_BASE: u64 = 3 << 40;
/// Lowest global address.
pub(crate) const GLOBAL_BASE: u64 = 1 << 44;
/// Size of each window below global memory.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;

/// Size of the part of the shared window that belongs to one block of a cluster.
pub(crate) const RANK_BYTES: u64 = 1 << 24;

/// Alignment of allocations.
const ALIGN: u64 = 256;
/// Unmapped bytes between allocations.
const GUARD_BYTES: u64 = 1 << 20;
/// Number of freed allocations that are remembered, for diagnosis.
const FREED_MAX: usize = 4096;

/// A live allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub words: Box<[AtomicU32]>,
    pub written: Written,
}

/// Live allocations by address, and the most recently freed ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    live: Vec<Arc<Allocation>>,
    freed: Vec<(u64, u64)>,
}

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct Memory {
    table: RwLock<Arc<Table>>,
    space: Mutex<AddressSpace>,
    wide_lock: Mutex<()>,
    /// Allocations below this number may have been written by unchecked launches.
    assumed: AtomicU64,
}

#[derive(Debug)]
struct AddressSpace {
    allocations: u64,
    next: u64,
    used: u64,
    budget: u64,
}

/// Calls `f` for every word that `bytes` bytes at `offset` touch, with the word's index, the first
/// byte in it, and the range of the buffer.
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

/// Stores the bits in `mask`.
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
    /// Index of the live allocation that contains `bytes` at `address`.
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

    /// Diagnoses an invalid address: the kind, and its position relative to the nearest allocation.
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

    /// Records that an unchecked launch may write anything.
    pub fn assume_written(&self) {
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
        self.assumed.fetch_max(space.allocations + 1, Relaxed);
    }

    /// Allocations below this number may have been written by unchecked launches.
    pub fn assumed(&self) -> u64 {
        self.assumed.load(Relaxed)
    }

    /// Snapshot of the allocations, which keeps them alive.
    pub fn snapshot(&self) -> Arc<Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes 64-bit accesses atomic.
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

    /// Calls `f` with the allocation that contains a range, and the range's offset in it.
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

/// Words that the host zeroes on first touch.
fn zeroed(count: usize) -> Box<[AtomicU32]> {
    let words = vec![0_u32; count].into_boxed_slice();
    let raw = Box::into_raw(words) as *mut [AtomicU32];
    // SAFETY: `raw` came from a box of as many u32, and AtomicU32 has the size, alignment and
    // bit validity of u32, so the box owns the same allocation with the same layout.
    unsafe { Box::from_raw(raw) }
}
