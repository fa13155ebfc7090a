//! Shadow of global memory for one launch: the last writer of each word, and two readers since.
//!
//! An entry has 64 bits: a stamp, which identifies a warp, its epoch and an op, then the lane of
//! each byte, the scope and the bytes. Of the readers, the first and the last other one are kept,
//! preferring one of another block.

use super::actor::{Actor, Clock, Conflict};
use super::clocks::{Clocks, Event};
use super::lanes::Lanes;
use super::plane::{APART, LINE, Plane};
use crate::traits::Scope;
use std::ops::Range;

const STAMP: u32 = 32;
/// Position of the lanes: five bits per byte of the word.
const LANES: u32 = 12;
const SCOPE: u32 = 10;
const BYTES: u32 = 6;
const MANY: u64 = 1 << 5;

/// The difference of the entries of two neighbouring lanes.
const NEXT: u64 = (1 | (1 << 5) | (1 << 10) | (1 << 15)) << LANES;

/// A lane, replicated for every byte.
fn of_every_byte(lane: usize) -> u64 {
    NEXT * lane as u64
}

/// Lane of a byte of an entry.
fn lane_of(entry: u64, byte: u32) -> u32 {
    (entry >> (LANES + 5 * byte) & 0x1f) as u32
}

/// Meaning of a stamp.
#[derive(Debug, Clone, Copy, Default)]
struct Stamp {
    block: u32,
    cluster: u32,
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
    /// Whether the launch has written any of them.
    written: bool,
    writes: Plane,
    reads: Plane,
    later_reads: Plane,
    count: usize,
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
        let (block, cluster) = (clocks.block, clocks.cluster);
        let (warp, pc) = (by.warp as u32, by.pc);
        let Clock { clock, epoch } = by.clock(clocks);
        if clock != warp {
            return self.push(Stamp { block, cluster, clock, warp, epoch, pc });
        }
        let kept = &mut cache[pc as usize % 8];
        if (kept.0, kept.1) != (pc, epoch) {
            *kept = (pc, epoch, self.push(Stamp { block, cluster, clock, warp, epoch, pc }));
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
        let Stamp { block, clock, warp, epoch, pc, .. } = self.0[(entry >> STAMP) as usize];
        let many = entry & MANY != 0;
        Event { block, clock, warp, lane: lane_of(entry, byte), many, epoch, pc }
    }

    /// Whether the entry of a line is none, or of an access that certainly is ordered before
    /// another of the line.
    fn precedes(&self, clocks: &Clocks, warp: usize, entry: u64, new: u64) -> bool {
        if entry == 0 || entry == APART {
            return entry == 0;
        }
        let event = self.event(entry, 0);
        let own = event.block == clocks.block && event.clock as usize == warp;
        // The lanes of both have the same words.
        let alike = (entry ^ new) & ((1 << STAMP) - 1) == 0;
        own && alike || clocks.ordered_for_all(&event, warp)
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
            2 => self.0[(entry >> STAMP) as usize].cluster == clocks.cluster,
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
        let words = words.filter(|words| words.written);
        let each = words.into_iter().flat_map(move |words| {
            lanes.each().flat_map(move |lane| {
                let (range, bytes) = lanes.words(lane);
                range.map(move |word| (lane, word, words.write(word) >> BYTES & 0xf & bytes))
            })
        });
        each.filter(|(_, _, common)| *common != 0).map(move |(lane, word, common)| {
            let (entry, byte) =
                (words.map_or(0, |words| words.write(word)), common.trailing_zeros());
            (lane, word as u64 * 4 + u64::from(byte), self.stamps.event(entry, byte))
        })
    }

    /// Whether a word of an allocation was written.
    pub fn wrote(&self, allocation: usize, word: usize) -> bool {
        let words = self.allocations.get(allocation).and_then(Option::as_ref);
        words.is_some_and(|words| words.writes.has(word))
    }

    /// Whether one accessed a word that the other wrote.
    pub fn meets(&self, other: &GlobalShadow) -> bool {
        let both = self.allocations.iter().zip(&other.allocations);
        both.filter_map(|(a, b)| a.as_ref().zip(b.as_ref()))
            .any(|(a, b)| a.overwrites(b) || b.overwrites(a))
    }

    /// Forgets the accesses to words, which are a new block's.
    pub fn forget(&mut self, allocation: usize, range: Range<usize>) {
        if let Some(Some(words)) = self.allocations.get_mut(allocation) {
            for plane in [&mut words.writes, &mut words.reads, &mut words.later_reads] {
                range.clone().for_each(|word| _ = plane.take(word, NEXT));
            }
        }
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
        words.written |= writes;
        let stamp = self.stamps.of(clocks, by, cache);
        let base = u64::from(stamp) << STAMP | (access.scope as u64) << SCOPE;
        let stamps = &self.stamps;
        let many = if lanes.uniform && lanes.active.count_ones() > 1 { MANY } else { 0 };
        let mut word_of = |words: &mut Words, word: usize, new: u64| {
            if writes {
                for entry in words.store(word, new) {
                    stamps.check(clocks, by.warp, entry, (word, new), out);
                }
            } else {
                stamps.check(clocks, by.warp, words.write(word), (word, new), out);
                words.load(word, new | many, (stamps, clocks.block));
            }
        };
        let whole = base | 0xf << BYTES;
        // Words of neighbouring lanes, each of which has `per`.
        let mut run_of = |run: Range<usize>, lane: usize, per: usize| {
            let entry = |word: usize| whole | of_every_byte(lane + (word - run.start) / per);
            let mut next = run.start;
            while next < run.end {
                let word = next;
                next += 1;
                if word.is_multiple_of(LINE) && word + LINE <= run.end {
                    let (line, new) = (word / LINE, Plane::line_of(entry(word), per.min(LINE)));
                    let ordered = |entry| stamps.precedes(clocks, by.warp, entry, new);
                    let settled = match writes {
                        true => words.store_line(line, new, ordered),
                        false => words.load_line(line, new, ordered, (stamps, clocks.block)),
                    };
                    if settled {
                        next = word + LINE;
                        continue;
                    }
                }
                word_of(words, word, entry(word));
            }
        };
        let per = lanes.lane_words();
        if lanes.step.is_some_and(|step| step != 0) {
            lanes.groups().for_each(|first| run_of(lanes.group_words(first), first, per));
            return;
        }
        if per > LINE && !lanes.uniform {
            lanes.each().for_each(|lane| run_of(lanes.words(lane).0, lane, per));
            return;
        }
        for lane in lanes.each() {
            let (range, bytes) = lanes.words(lane);
            for word in range {
                word_of(words, word, base | bytes << BYTES | of_every_byte(lane));
            }
            if lanes.uniform && !writes {
                break;
            }
        }
    }
}

impl Words {
    fn new(count: usize) -> Words {
        let plane = || Plane::new(count);
        let [writes, reads, later_reads] = std::array::from_fn(|_| plane());
        Words { written: false, writes, reads, later_reads, count }
    }

    /// Whether a word that these entries have a write of has any among others. Later accesses
    /// replace entries only of the same word.
    fn overwrites(&self, other: &Words) -> bool {
        let planes = [&other.writes, &other.reads, &other.later_reads];
        let touched =
            |word: usize| self.writes.has(word) && planes.into_iter().any(|plane| plane.has(word));
        self.writes
            .lines()
            .filter(|line| self.writes.line(*line) != 0)
            .filter(|line| planes.into_iter().any(|plane| plane.line(*line) != 0))
            .any(|line| (line * LINE..self.count.min((line + 1) * LINE)).any(touched))
    }

    /// The last write of a word.
    fn write(&self, word: usize) -> u64 {
        self.writes.word(word, NEXT)
    }

    /// Records a read by a warp of `block`.
    fn load(&mut self, word: usize, new: u64, home: (&Stamps, u32)) {
        let (first, later) = (self.reads.word(word, NEXT), self.later_reads.word(word, NEXT));
        let [now_first, now_later] = read(first, later, new, home, merged);
        if now_first != first {
            self.reads.set(word, NEXT, now_first);
        }
        if now_later != later {
            self.later_reads.set(word, NEXT, now_later);
        }
    }

    /// Records a store, which replaces earlier entries; returns those.
    fn store(&mut self, word: usize, new: u64) -> [u64; 3] {
        let reads = [self.reads.take(word, NEXT), self.later_reads.take(word, NEXT)];
        let old = self.write(word);
        // Lanes that write different parts of a word are merged.
        let beside = old >> STAMP == new >> STAMP && old & new & 0xf << BYTES == 0;
        self.writes.set(word, NEXT, if beside { merged(old, new) } else { new });
        [old, reads[0], reads[1]]
    }

    /// Records a read of a line by the lanes of an access, if its words have one entry that is
    /// `ordered` before it; returns whether it did.
    fn load_line(
        &mut self,
        line: usize,
        new: u64,
        ordered: impl Fn(u64) -> bool,
        home: (&Stamps, u32),
    ) -> bool {
        let (first, later) = (self.reads.line(line), self.later_reads.line(line));
        if first == APART || later == APART || !ordered(self.writes.line(line)) {
            return false;
        }
        let unequal = |old: u64, new: u64| if old == new { old } else { APART };
        let [first, later] = read(first, later, new, home, unequal);
        if first == APART || later == APART {
            return false;
        }
        self.reads.set_line(line, first);
        self.later_reads.set_line(line, later);
        true
    }

    /// The same of a store, which replaces earlier entries.
    fn store_line(&mut self, line: usize, new: u64, ordered: impl Fn(u64) -> bool) -> bool {
        let planes = [&self.writes, &self.reads, &self.later_reads];
        if !planes.into_iter().all(|plane| ordered(plane.line(line))) {
            return false;
        }
        self.writes.set_line(line, new);
        self.reads.set_line(line, 0);
        self.later_reads.set_line(line, 0);
        true
    }
}

/// The first and the later read after a read by a warp of `block`; `merged` is of two reads of one
/// stamp.
fn read(
    first: u64,
    later: u64,
    new: u64,
    (stamps, block): (&Stamps, u32),
    merged: impl Fn(u64, u64) -> u64,
) -> [u64; 2] {
    let same = |entry: u64| entry >> STAMP == new >> STAMP;
    if first == 0 {
        return [new, later];
    }
    if same(first) {
        return [merged(first, new), later];
    }
    if later == 0 {
        return [first, new];
    }
    if same(later) {
        return [first, merged(later, new)];
    }
    let home = stamps.block(first);
    [first, if block != home || stamps.block(later) == home { new } else { later }]
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
