//! Shadow of global memory for one launch: the last writer of each word, and two readers since.
//!
//! An entry has 64 bits: a stamp, which identifies a warp, its epoch and an op, then the lane of
//! each byte, the scope and the bytes. Of the readers, the first and the last other one are kept,
//! preferring one of another block.

use super::actor::{Actor, Clock, Conflict};
use super::clocks::{Clocks, Event};
use super::lanes::Lanes;
use crate::traits::Scope;

const STAMP: u32 = 32;
/// Position of the lanes: five bits per byte of the word.
const LANES: u32 = 12;
const SCOPE: u32 = 10;
const BYTES: u32 = 6;
const MANY: u64 = 1 << 5;

/// A lane, replicated for every byte.
fn of_every_byte(lane: usize) -> u64 {
    const EVERY: u64 = (1 | (1 << 5) | (1 << 10) | (1 << 15)) << LANES;
    EVERY * lane as u64
}

/// Lane of a byte of an entry.
fn lane_of(entry: u64, byte: u32) -> u32 {
    (entry >> (LANES + 5 * byte) & 0x1f) as u32
}

/// Meaning of a stamp.
#[derive(Debug, Clone, Copy, Default)]
struct Stamp {
    block: u32,
    clock: u32,
    warp: u32,
    epoch: u32,
    pc: u32,
}

/// The stamps that a warp used most recently, by op.
pub(crate) type StampCache = [(u32, u32, u32); 8];

/// Meaning of every stamp; the first is unused.
#[derive(Debug, Default)]
struct Stamps(Vec<Stamp>);

/// Entries of an allocation.
#[derive(Debug)]
struct Words {
    writes: Vec<u64>,
    reads: Vec<u64>,
    later_reads: Vec<u64>,
}

/// Shadow of global memory.
#[derive(Debug, Default)]
pub(crate) struct GlobalShadow {
    allocations: Vec<Option<Words>>,
    stamps: Stamps,
}

/// An access of a warp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Global<'a> {
    pub lanes: &'a Lanes,
    pub by: Actor,
    pub scope: Scope,
    /// Index of the allocation in the launch's table, and its number of words.
    pub allocation: usize,
    pub words: usize,
}

impl Stamps {
    /// Stamp of a warp's current access.
    fn of(&mut self, clocks: &Clocks, by: Actor, cache: &mut StampCache) -> u32 {
        let (block, warp, pc) = (clocks.block, by.warp as u32, by.pc);
        let Clock { clock, epoch } = by.clock(clocks);
        if clock != warp {
            return self.push(Stamp { block, clock, warp, epoch, pc });
        }
        let kept = &mut cache[pc as usize % 8];
        if (kept.0, kept.1) != (pc, epoch) {
            *kept = (pc, epoch, self.push(Stamp { block, clock, warp, epoch, pc }));
        }
        kept.2
    }

    fn push(&mut self, stamp: Stamp) -> u32 {
        if self.0.is_empty() {
            self.0.push(Stamp::default());
        }
        self.0.push(stamp);
        self.0.len() as u32 - 1
    }

    fn block(&self, entry: u64) -> u32 {
        self.0[(entry >> STAMP) as usize].block
    }

    /// The event recorded for a byte of an entry.
    fn event(&self, entry: u64, byte: u32) -> Event {
        let Stamp { block, clock, warp, epoch, pc } = self.0[(entry >> STAMP) as usize];
        let many = entry & MANY != 0;
        Event { block, clock, warp, lane: lane_of(entry, byte), many, epoch, pc }
    }

    /// Compares an access with an earlier one of its word, byte by byte where lanes differ.
    fn check(
        &self,
        clocks: &Clocks,
        warp: usize,
        entry: u64,
        (word, new): (usize, u64),
        out: &mut Vec<Conflict>,
    ) {
        let common = (entry & new) >> BYTES & 0xf;
        if common == 0 {
            return;
        }
        let reaches = |entry: u64| match entry >> SCOPE & 3 {
            0 => false,
            1 => self.block(entry) == clocks.block,
            _ => true,
        };
        if reaches(entry) && reaches(new) {
            return;
        }
        let mut last = None;
        for byte in (0..4).filter(|byte| common >> byte & 1 != 0) {
            let lanes = (lane_of(entry, byte), lane_of(new, byte));
            if last.replace(lanes) == Some(lanes) {
                continue;
            }
            let earlier = self.event(entry, byte);
            if !clocks.ordered(&earlier, warp, lanes.1) {
                let at = word as u64 * 4 + u64::from(byte);
                out.push(Conflict { lane: lanes.1 as usize, at, earlier, open: false });
                return;
            }
        }
    }
}

impl GlobalShadow {
    /// Bytes of lanes that the launch has written: the lane, the byte and the write, for each word.
    pub fn written<'a>(
        &'a self,
        allocation: usize,
        lanes: &'a Lanes,
    ) -> impl Iterator<Item = (usize, u64, Event)> + 'a {
        let words = self.allocations.get(allocation).and_then(Option::as_ref);
        let each = words.into_iter().flat_map(move |words| {
            lanes.each().flat_map(move |lane| {
                let (range, bytes) = lanes.words(lane);
                range.map(move |word| (lane, word, words.writes[word] >> BYTES & 0xf & bytes))
            })
        });
        each.filter(|(_, _, common)| *common != 0).map(move |(lane, word, common)| {
            let (entry, byte) =
                (words.map_or(0, |words| words.writes[word]), common.trailing_zeros());
            (lane, word as u64 * 4 + u64::from(byte), self.stamps.event(entry, byte))
        })
    }

    /// Records an access; conflicts are appended to `out`.
    pub fn access(
        &mut self,
        clocks: &Clocks,
        access: &Global<'_>,
        writes: bool,
        cache: &mut StampCache,
        out: &mut Vec<Conflict>,
    ) {
        let Global { lanes, by, allocation, .. } = *access;
        if self.allocations.len() <= allocation {
            self.allocations.resize_with(allocation + 1, || None);
        }
        let words = self.allocations[allocation].get_or_insert_with(|| Words::new(access.words));
        let stamp = self.stamps.of(clocks, by, cache);
        let base = u64::from(stamp) << STAMP | (access.scope as u64) << SCOPE;
        if lanes.run && words.fresh(lanes.run_words(), writes) {
            let target = if writes { &mut words.writes } else { &mut words.reads };
            let chunks = target[lanes.run_words()].chunks_exact_mut(lanes.lane_words());
            for (lane, entries) in chunks.enumerate() {
                entries.fill(base | 0xf << BYTES | of_every_byte(lane));
            }
            return;
        }
        let stamps = &self.stamps;
        let many = if lanes.uniform && lanes.active.count_ones() > 1 { MANY } else { 0 };
        for lane in lanes.each() {
            let (range, bytes) = lanes.words(lane);
            let new = base | bytes << BYTES | of_every_byte(lane);
            for word in range {
                if writes {
                    for entry in words.store(word, new) {
                        stamps.check(clocks, by.warp, entry, (word, new), out);
                    }
                } else {
                    stamps.check(clocks, by.warp, words.writes[word], (word, new), out);
                    words.load(word, new | many, (stamps, clocks.block));
                }
            }
            if lanes.uniform && !writes {
                break;
            }
        }
    }
}

impl Words {
    fn new(count: usize) -> Words {
        Words { writes: vec![0; count], reads: vec![0; count], later_reads: vec![0; count] }
    }

    /// Records a read by a warp of `block`.
    fn load(&mut self, word: usize, new: u64, (stamps, block): (&Stamps, u32)) {
        let (first, later) = (&mut self.reads[word], &mut self.later_reads[word]);
        let same = |entry: u64| entry >> STAMP == new >> STAMP;
        if *first == 0 {
            *first = new;
        } else if same(*first) {
            *first = merged(*first, new);
        } else if *later == 0 {
            *later = new;
        } else if same(*later) {
            *later = merged(*later, new);
        } else {
            let home = stamps.block(*first);
            if block != home || stamps.block(*later) == home {
                *later = new;
            }
        }
    }

    /// Records a store, which replaces earlier entries; returns those.
    fn store(&mut self, word: usize, new: u64) -> [u64; 3] {
        // Avoids writing to untouched zero pages.
        let ended = |entries: &mut [u64]| match entries[word] {
            0 => 0,
            _ => std::mem::take(&mut entries[word]),
        };
        let reads = [ended(&mut self.reads), ended(&mut self.later_reads)];
        let old = self.writes[word];
        // Lanes that write different parts of a word are merged.
        let beside = old >> STAMP == new >> STAMP && old & new & 0xf << BYTES == 0;
        self.writes[word] = if beside { merged(old, new) } else { new };
        [old, reads[0], reads[1]]
    }

    /// Whether the words have no entries that a load or store could conflict with.
    fn fresh(&self, range: std::ops::Range<usize>, writes: bool) -> bool {
        let clear = |entries: &[u64]| entries.iter().fold(0, |any, entry| any | entry) == 0;
        clear(&self.writes[range.clone()])
            && clear(&self.reads[range.clone()])
            && (!writes || clear(&self.later_reads[range]))
    }
}

/// Merges two accesses of one stamp; a byte accessed twice gets several lanes.
fn merged(old: u64, new: u64) -> u64 {
    let bytes = |entry: u64| entry >> BYTES & 0xf;
    let mut lanes = new & of_every_byte(0x1f);
    let mut many = (old | new) & MANY;
    for byte in (0..4).filter(|byte| bytes(old) >> byte & 1 != 0) {
        let own = lane_of(old, byte);
        if bytes(new) >> byte & 1 == 0 {
            let mask = 0x1f << (LANES + 5 * byte);
            lanes = lanes & !mask | u64::from(own) << (LANES + 5 * byte);
        } else if own != lane_of(new, byte) {
            many = MANY;
        }
    }
    let scope = (old >> SCOPE & 3).min(new >> SCOPE & 3) << SCOPE;
    new >> STAMP << STAMP | lanes | scope | (bytes(old) | bytes(new)) << BYTES | many
}
