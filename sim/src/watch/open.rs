//! Reads of shared memory that go on while their thread does: the operands of `wgmma`, and the
//! sources of bulk copies. They begin like other reads; until they are waited for, nobody may write
//! what they read, whatever orders the write after their beginning; and waiting reads again, in the
//! epoch of whoever waited.

use super::clocks::Event;
use super::cluster::SharedAccess;
use super::lanes::Lanes;
use super::shadow::BlockShadow;
use super::shared::Actor;
use super::traits::Scope;
use crate::registers::LANES;
use std::ops::Range;

/// What ends a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A `wgmma` of its warp, in the group of that number once committed.
    Product(Option<u32>),
    /// A bulk copy of its thread, in the group of that number.
    Bulk(u32),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OpenRead {
    /// Whose shared memory it reads.
    pub rank: usize,
    /// Its beginning.
    pub event: Event,
    pub ending: Ending,
    /// Sorted, apart from each other.
    ranges: Vec<Range<u64>>,
}

impl OpenRead {
    /// The first byte of a range that it reads.
    pub fn meets(&self, range: Range<u64>) -> Option<u64> {
        let next = self.ranges.partition_point(|mine| mine.end <= range.start);
        let mine = self.ranges.get(next).filter(|mine| mine.start < range.end)?;
        Some(mine.start.max(range.start))
    }
}

/// One lane's bytes.
pub(crate) fn one(lane: usize, at: u64, bytes: u64) -> Lanes {
    let (offsets, active) = ([at; LANES], 1 << lane);
    Lanes::apart(offsets, active, bytes as u32)
}

/// Pieces of 16 bytes, one for each lane.
pub(crate) fn pieces(starts: &[u64]) -> Vec<Lanes> {
    let chunks = starts.chunks(LANES).map(|chunk| {
        let mut offsets = [0; LANES];
        offsets[..chunk.len()].copy_from_slice(chunk);
        let active = u32::MAX >> (LANES - chunk.len());
        Lanes::apart(offsets, active, 16)
    });
    chunks.collect()
}

/// Ranges in order, neighbours joined.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

impl BlockShadow {
    /// A read of ranges of the block's own shared memory goes on.
    pub fn read_begun(&mut self, by: Actor, lane: u32, ranges: Vec<Range<u64>>, ending: Ending) {
        let (block, warp) = (self.clocks.block, by.warp as u32);
        let epoch = self.clocks.warps[by.warp].epoch;
        let event = Event { block, warp, lane, many: false, epoch, pc: by.pc };
        let read = OpenRead { rank: self.rank, event, ending, ranges: joined(ranges) };
        self.cluster.open.push(read);
    }

    /// `wgmma.commit_group`
    pub fn products_committed(&mut self, warp: usize) {
        let group = &mut self.warps[warp].products_committed;
        let number = *group;
        *group += 1;
        let block = self.clocks.block;
        for read in &mut self.cluster.open {
            let mine = (read.event.block, read.event.warp as usize) == (block, warp);
            if mine && read.ending == Ending::Product(None) {
                read.ending = Ending::Product(Some(number));
            }
        }
    }

    /// `wgmma.wait_group`: all but the last `left` groups of the warp are done.
    pub fn products_waited(&mut self, warp: usize, left: u32) {
        let committed = self.warps[warp].products_committed;
        self.end_reads(warp, |read| match read.ending {
            Ending::Product(Some(number)) => committed - number > left,
            _ => false,
        });
    }

    /// `cp.async.bulk.wait_group`: of a lane's groups, of which `committed` are complete, all but
    /// the last `left` have been read.
    pub fn bulk_waited(&mut self, warp: usize, lane: u32, committed: u32, left: u32) {
        self.end_reads(warp, |read| match read.ending {
            Ending::Bulk(number) => read.event.lane == lane && committed - number > left,
            Ending::Product(_) => false,
        });
    }

    fn end_reads(&mut self, warp: usize, over: impl Fn(&OpenRead) -> bool) {
        let block = self.clocks.block;
        let mine = |read: &OpenRead| (read.event.block, read.event.warp as usize) == (block, warp);
        let all = std::mem::take(&mut self.cluster.open);
        let (ended, left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|read| mine(read) && over(read));
        self.cluster.open = left;
        for read in ended {
            let by = Actor { warp, pc: read.event.pc, strong: false };
            for range in read.ranges {
                let lanes = one(read.event.lane as usize, range.start, range.end - range.start);
                // Who wrote meanwhile was told so.
                let access =
                    SharedAccess { rank: self.rank, lanes: &lanes, by, scope: Scope::Weak };
                self.load(access, &mut Vec::new());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_and_meet() {
        let event = Event { block: 0, warp: 0, lane: 0, many: false, epoch: 1, pc: 0 };
        let ranges = joined(vec![64..80, 0..16, 16..32, 64..80, 128..144]);
        assert_eq!(ranges, [0..32, 64..80, 128..144]);
        let read = OpenRead { rank: 0, event, ending: Ending::Bulk(0), ranges };
        assert_eq!(read.meets(32..64), None);
        assert_eq!(read.meets(40..65), Some(64));
        assert_eq!(read.meets(8..12), Some(8));
        assert_eq!(read.meets(140..200), Some(140));
        assert_eq!(read.meets(144..200), None);
    }
}
