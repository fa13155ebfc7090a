//! The shadow of global memory for one launch: who last wrote each word, and two who read it since.
//!
//! An entry is 64 bits: a stamp above, which stands for a warp, its epoch and an op, then the
//! strength, the bytes and the lane. Of the readers the first is kept, and of the others the last,
//! one of another block before one of the same.

use super::clocks::{Clocks, Event};
use super::lanes::Lanes;
use super::shared::{Actor, Conflict};
use super::traits::Scope;

const STAMP: u32 = 32;
const SCOPE: u32 = 10;
const BYTES: u32 = 6;
const MANY: u64 = 1 << 5;
const LANE: u64 = 0x1f;

/// What an entry's stamp stands for.
#[derive(Debug, Clone, Copy, Default)]
struct Stamp {
    block: u32,
    warp: u32,
    epoch: u32,
    pc: u32,
}

/// The stamps that a warp used last, by op.
pub(crate) type StampCache = [(u32, u32, u32); 8];

/// The words of one allocation.
#[derive(Debug)]
struct Words {
    writes: Vec<u64>,
    reads: Vec<u64>,
    later_reads: Vec<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GlobalShadow {
    allocations: Vec<Option<Words>>,
    stamps: Vec<Stamp>,
}

/// One access of a warp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Global<'a> {
    pub lanes: &'a Lanes,
    pub by: Actor,
    pub scope: Scope,
    /// The allocation's index in the launch's table, and its words.
    pub allocation: usize,
    pub words: usize,
}

impl GlobalShadow {
    fn words(&mut self, access: &Global<'_>) -> &mut Words {
        if self.allocations.len() <= access.allocation {
            self.allocations.resize_with(access.allocation + 1, || None);
        }
        let count = access.words;
        self.allocations[access.allocation].get_or_insert_with(|| Words {
            writes: vec![0; count],
            reads: vec![0; count],
            later_reads: vec![0; count],
        })
    }

    /// The stamp of what a warp does now.
    fn stamp(&mut self, clocks: &Clocks, by: Actor, cache: &mut StampCache) -> u32 {
        let epoch = clocks.warps[by.warp].epoch;
        let kept = &mut cache[by.pc as usize % 8];
        if (kept.0, kept.1) != (by.pc, epoch) {
            if self.stamps.is_empty() {
                self.stamps.push(Stamp::default());
            }
            *kept = (by.pc, epoch, self.stamps.len() as u32);
            let (block, warp) = (clocks.block, by.warp as u32);
            self.stamps.push(Stamp { block, warp, epoch, pc: by.pc });
        }
        kept.2
    }

    fn event(&self, entry: u64) -> Event {
        let Stamp { block, warp, epoch, pc } = self.stamps[(entry >> STAMP) as usize];
        Event { block, warp, lane: (entry & LANE) as u32, many: entry & MANY != 0, epoch, pc }
    }

    /// Notes an access; conflicts with earlier ones go to `out`.
    pub fn access(
        &mut self,
        clocks: &Clocks,
        access: &Global<'_>,
        writes: bool,
        cache: &mut StampCache,
        out: &mut Vec<Conflict>,
    ) {
        let stamp = self.stamp(clocks, access.by, cache);
        let base = u64::from(stamp) << STAMP | (access.scope as u64) << SCOPE;
        let lanes = access.lanes;
        let words = self.words(access);
        if lanes.run && words.fresh(lanes.run_words(), writes) {
            let target = if writes { &mut words.writes } else { &mut words.reads };
            let chunks = target[lanes.run_words()].chunks_exact_mut(lanes.lane_words());
            for (lane, entries) in chunks.enumerate() {
                entries.fill(base | 0xf << BYTES | lane as u64);
            }
            return;
        }
        for lane in lanes.each() {
            let (range, bytes) = lanes.words(lane);
            let many = if lanes.uniform && lanes.active.count_ones() > 1 { MANY } else { 0 };
            for word in range {
                let new = base | bytes << BYTES | lane as u64;
                if writes {
                    self.store(clocks, access, (word, lane), new, out);
                } else {
                    self.load(clocks, access, (word, lane), new | many, out);
                }
            }
            if lanes.uniform && !writes {
                break;
            }
        }
    }

    fn load(
        &mut self,
        clocks: &Clocks,
        access: &Global<'_>,
        at: (usize, usize),
        new: u64,
        out: &mut Vec<Conflict>,
    ) {
        let (word, lane) = at;
        let write = self.words(access).writes[word];
        if write != 0 {
            self.check(clocks, access, write, (word, lane), new, out);
        }
        let words = self.words(access);
        let (first, later) = (words.reads[word], words.later_reads[word]);
        let same = |entry: u64| entry >> STAMP == new >> STAMP;
        if first == 0 {
            words.reads[word] = new;
        } else if same(first) {
            words.reads[word] = merged(first, new);
        } else if later == 0 {
            words.later_reads[word] = new;
        } else if same(later) {
            words.later_reads[word] = merged(later, new);
        } else {
            let block =
                |shadow: &GlobalShadow, entry: u64| shadow.stamps[(entry >> STAMP) as usize].block;
            let home = block(self, first);
            if clocks.block != home || block(self, later) == home {
                self.words(access).later_reads[word] = new;
            }
        }
    }

    fn store(
        &mut self,
        clocks: &Clocks,
        access: &Global<'_>,
        at: (usize, usize),
        new: u64,
        out: &mut Vec<Conflict>,
    ) {
        let word = at.0;
        let words = self.words(access);
        let earlier = [words.writes[word], words.reads[word], words.later_reads[word]];
        words.writes[word] = new;
        if earlier[1] != 0 {
            words.reads[word] = 0;
        }
        if earlier[2] != 0 {
            words.later_reads[word] = 0;
        }
        for entry in earlier.into_iter().filter(|&entry| entry != 0) {
            self.check(clocks, access, entry, at, new, out);
        }
    }

    fn check(
        &self,
        clocks: &Clocks,
        access: &Global<'_>,
        entry: u64,
        (word, lane): (usize, usize),
        new: u64,
        out: &mut Vec<Conflict>,
    ) {
        let common = entry & new & 0xf << BYTES;
        if common == 0 {
            return;
        }
        let earlier = self.event(entry);
        let reaches = |entry: u64| match entry >> SCOPE & 3 {
            0 => false,
            1 => earlier.block == clocks.block,
            _ => true,
        };
        if reaches(entry) && reaches(new) {
            return;
        }
        if !clocks.ordered(&earlier, access.by.warp, lane as u32) {
            let at = word as u64 * 4 + u64::from((common >> BYTES).trailing_zeros());
            out.push(Conflict { lane, at, earlier, open: false });
        }
    }
}

impl Words {
    /// Whether nobody touched the words in a way that matters to a load or store.
    fn fresh(&self, range: std::ops::Range<usize>, writes: bool) -> bool {
        let clear = |entries: &[u64]| entries.iter().fold(0, |any, entry| any | entry) == 0;
        clear(&self.writes[range.clone()])
            && clear(&self.reads[range.clone()])
            && (!writes || clear(&self.later_reads[range]))
    }
}

/// Two reads of one stamp: what both read, by several lanes if they differ.
fn merged(old: u64, new: u64) -> u64 {
    let many = if old & LANE == new & LANE { old & MANY } else { MANY };
    let scope = (old >> SCOPE & 3).min(new >> SCOPE & 3) << SCOPE;
    (new & !(3 << SCOPE)) | scope | old & 0xf << BYTES | many
}
