//! Entries of the shadow of shared memory, and loops over rows of them, which are compiled for the
//! host's vectors.
//!
//! An entry has 64 bits: the epoch, the op, the thread, whether the access was strong, the bytes,
//! and four further bits: the bytes ever written, or whether several lanes read. A word whose bytes
//! were last accessed by different threads, or in different epochs, has an entry without bytes, of
//! the last of these epochs; its four entries are apart. A word that an asynchronous copy wrote has
//! an entry of no epoch, with the number of the copy in place of op and thread.

use super::clocks::EPOCH_MAX;
use super::lanes::Lanes;
use crate::lanes::leveled;

pub(super) const EPOCH: u32 = 38;
pub(super) const PC: u32 = 19;
pub(super) const THREAD: u32 = 9;
pub(super) const STRONG: u64 = 1 << 8;
pub(super) const BYTES: u32 = 4;
pub(super) const MANY: u64 = 1;
pub(super) const LANES: u64 = 32;
pub(super) const THREADS: u64 = 0x3ff << THREAD;
/// The warp of a thread.
pub(super) const WARP: u64 = 0x1f << (THREAD + 5);
pub(super) const ALL_BYTES: u64 = 0xf << BYTES;
/// Epoch of an entry of an asynchronous copy: later than any.
pub(super) const COPIED: u64 = EPOCH_MAX as u64 + 1;

/// Entries that a warp is ordered after for certain: up to an epoch, and those of one copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub last: u64,
    pub seen: u64,
}

impl Limit {
    /// The highest bit tells whether an entry is beyond.
    #[inline(always)]
    pub fn beyond(self, entry: u64) -> u64 {
        self.last.wrapping_sub(entry) & u64::from(entry != self.seen) << 63
    }
}

/// Merges a read with an earlier one of the same warp, if the epochs are equal.
#[inline(always)]
pub(super) fn read(old: u64, new: u64) -> u64 {
    if old >> EPOCH != new >> EPOCH {
        return new;
    }
    let many = if old & THREADS == new & THREADS { old & MANY } else { MANY };
    let strong = old & new & STRONG;
    (new & !STRONG) | strong | old & ALL_BYTES | many
}

leveled! {
    has_v3 =>
    /// Whether no entry is beyond a limit.
    pub(super) fn known(has_v3: bool, entries: &[u64], limit: Limit) -> bool {
        entries.iter().fold(0, |beyond, entry| beyond | limit.beyond(*entry)) >> 63 == 0
    }
}

leveled! {
    has_v3 =>
    /// Records a read of all words.
    pub(super) fn reread(has_v3: bool, entries: &mut [u64], new: u64) {
        for entry in entries {
            *entry = read(*entry, new);
        }
    }
}

/// [`known_lanes`] for lanes of four words: those of a vector.
#[inline(always)]
fn known_quads(entries: &[u64], lanes: &Lanes, limit: Limit) -> bool {
    let mut beyond = [0; 4];
    for lane in lanes.each() {
        let quad = &entries[lanes.offsets[lane] as usize / 4..][..4];
        for at in 0..4 {
            beyond[at] |= limit.beyond(quad[at]);
        }
    }
    beyond.into_iter().fold(0, |any, bits| any | bits) >> 63 == 0
}

leveled! {
    has_v3 =>
    /// Whether no entry of the lanes' words is beyond a limit.
    pub(super) fn known_lanes(
        has_v3: bool,
        entries: &[u64],
        lanes: &Lanes,
        limit: Limit,
    ) -> bool {
        if lanes.lane_words() == 4 {
            return known_quads(entries, lanes, limit);
        }
        let mut beyond = 0;
        for lane in lanes.each() {
            for entry in &entries[lanes.words(lane).0] {
                beyond |= limit.beyond(*entry);
            }
        }
        beyond >> 63 == 0
    }
}

leveled! {
    has_v3 =>
    /// Records a read of each lane's words; `first` is the entry of lane 0.
    pub(super) fn reread_lanes(has_v3: bool, entries: &mut [u64], lanes: &Lanes, first: u64) {
        for lane in lanes.each() {
            let new = first + ((lane as u64) << THREAD);
            for entry in &mut entries[lanes.words(lane).0] {
                *entry = read(*entry, new);
            }
        }
    }
}
