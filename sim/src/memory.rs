//! Global memory: allocations of atomic words, found through an address table.
//!
//! Words are accessed with relaxed atomics, so that blocks on different workers may race as on a
//! GPU without undefined behaviour on the host. Partial words are written by compare-and-swap,
//! which preserves neighbouring bytes. 64-bit accesses are two words; those that must be atomic
//! take a lock.

use crate::error::{Error, ErrorKind, Result};
use crate::heap::Heap;
use crate::words::Words;
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
    pub words: Words,
    pub written: Written,
    /// The blocks, where it is the heap of kernels: what lies outside of them is out of bounds.
    pub heap: Option<Heap>,
    /// Bytes that count against the budget; memory of the host does not.
    charged: u64,
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

    /// Whether kernels may access a range of it.
    #[inline(always)]
    pub fn admits(&self, offset: u64, bytes: u64) -> bool {
        self.heap.as_ref().is_none_or(|heap| heap.holds(offset, bytes))
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

    /// Whether some memory is the host's too.
    pub fn has_host_memory(&self) -> bool {
        self.live.iter().any(|allocation| allocation.charged == 0 && allocation.bytes != 0)
    }

    /// Number of live allocations.
    pub fn count(&self) -> usize {
        self.live.len()
    }

    pub fn get(&self, index: usize) -> Option<&Allocation> {
        self.live.get(index).map(|allocation| &**allocation)
    }

    /// Diagnoses an invalid address: the kind, and its position relative to the nearest allocation.
    pub fn diagnose(&self, address: u64, bytes: u64) -> (ErrorKind, String) {
        let of_heap = self.find(address, bytes).and_then(|index| self.get(index));
        if let Some((of, heap)) = of_heap.and_then(|of| Some((of, of.heap.as_ref()?))) {
            return heap.diagnose(of.base, address - of.base, bytes);
        }
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
            None => "no allocation exists".to_string(),
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
        let space = self.space();
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
        let mut space = self.space();
        let free = space.budget - space.used;
        if bytes > free {
            let text = format!("failed to allocate {bytes} bytes: {free} of {} left", space.budget);
            return Err(Error::new(ErrorKind::OutOfMemory, text));
        }
        let words = Words::zeroed(bytes.div_ceil(4) as usize).ok_or_else(|| no_memory(bytes))?;
        let base = space.next;
        space.next = (base + bytes + GUARD_BYTES).next_multiple_of(ALIGN);
        self.insert(&mut space, base, bytes, (words, None), bytes)
    }

    /// Allocates the heap of kernels, which the budget does not cover.
    pub fn alloc_heap(&self, limit: u64) -> Result<u64> {
        let bytes = Heap::region_bytes(limit).ok_or_else(|| no_memory(limit))?;
        let words = Words::zeroed(bytes.div_ceil(4) as usize).ok_or_else(|| no_memory(bytes))?;
        let mut space = self.space();
        let base = space.next;
        space.next = (base + bytes + GUARD_BYTES).next_multiple_of(ALIGN);
        self.insert(&mut space, base, bytes, (words, Some(Heap::new(limit))), 0)
    }

    /// Allocates memory that the host uses at the same address.
    pub fn alloc_host(&self, bytes: u64) -> Result<u64> {
        let words = usize::try_from(bytes.div_ceil(4)).ok().and_then(Words::zeroed_pages);
        let words = words.ok_or_else(|| no_memory(bytes))?;
        self.map(words, bytes)
    }

    /// Adds memory of the process, at its own address if that is one of global memory.
    pub fn map(&self, words: Words, bytes: u64) -> Result<u64> {
        let mut space = self.space();
        let mut base = words.address();
        if base.checked_add(bytes).is_none() {
            let text = format!("failed to map {bytes} bytes at {base:#x}: addresses end before");
            return Err(Error::new(ErrorKind::UnknownAddress, text));
        }
        if base < GLOBAL_BASE {
            base = space.next;
            space.next = (base + bytes + GUARD_BYTES).next_multiple_of(ALIGN);
        }
        let base = self.insert(&mut space, base, bytes, (words, None), 0)?;
        self.with_range("map", base, bytes, |allocation, _| {
            allocation.written.set(0, bytes, true);
        })?;
        Ok(base)
    }

    fn insert(
        &self,
        space: &mut AddressSpace,
        base: u64,
        bytes: u64,
        (words, heap): (Words, Option<Heap>),
        charged: u64,
    ) -> Result<u64> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let live = &mut Arc::make_mut(&mut table).live;
        let at = live.partition_point(|allocation| allocation.base < base);
        let before = at.checked_sub(1).map(|at| &live[at]);
        let overlaps = before.is_some_and(|before| before.base + before.bytes > base)
            || live.get(at).is_some_and(|after| base + bytes.max(1) > after.base);
        if overlaps {
            let text = format!("failed to map {bytes} bytes at {base:#x}: it has an allocation");
            return Err(Error::new(ErrorKind::UnknownAddress, text));
        }
        let bits = Words::zeroed(bytes.div_ceil(32) as usize).ok_or_else(|| no_memory(bytes))?;
        space.used += charged;
        space.allocations += 1;
        let written = Written::new(space.allocations, bits);
        live.insert(at, Arc::new(Allocation { base, bytes, words, written, heap, charged }));
        Ok(base)
    }

    fn space(&self) -> MutexGuard<'_, AddressSpace> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are allocated.
    pub fn used(&self) -> u64 {
        self.space().used
    }

    pub fn free(&self, address: u64) -> Result<()> {
        let mut space = self.space();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let table = Arc::make_mut(&mut table);
        let Ok(index) = table.live.binary_search_by_key(&address, |allocation| allocation.base)
        else {
            let text = format!("failed to free {address:#x}: no allocation begins there");
            return Err(Error::new(ErrorKind::UnknownAddress, text));
        };
        let allocation = table.live.remove(index);
        space.used -= allocation.charged;
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
            Some(Allocation { heap: Some(_), .. }) => {
                let why = "it is in the heap, which is for kernels alone";
                let text = format!("failed to {attempt} {bytes} bytes at {address:#x}: {why}");
                Err(Error::new(ErrorKind::UnknownAddress, text))
            }
            Some(allocation) => Ok(f(allocation, address - allocation.base)),
            None => {
                let (_, why) = table.diagnose(address, bytes);
                let text = format!("failed to {attempt} {bytes} bytes at {address:#x}: {why}");
                Err(Error::new(ErrorKind::UnknownAddress, text))
            }
        }
    }
}

fn no_memory(bytes: u64) -> Error {
    let text = format!("failed to allocate {bytes} bytes: the host has no memory for them");
    Error::new(ErrorKind::OutOfMemory, text)
}
