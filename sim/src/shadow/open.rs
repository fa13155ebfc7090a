//! Start and completion of asynchronous reads of shared memory.

use super::accesses::SharedAccess;
use super::actor::Actor;
use super::block::BlockShadow;
use super::clocks::Event;
use super::lanes::one;
use super::reads::{Ending, OpenRead, joined};
use crate::traits::Scope;
use std::ops::Range;

impl BlockShadow {
    /// An asynchronous read of ranges of the block's own shared memory starts.
    pub fn read_begun(&mut self, by: Actor, lane: u32, ranges: Vec<Range<u64>>, ending: Ending) {
        let (block, warp) = (self.clocks.block, by.warp as u32);
        let epoch = self.clocks.warps[by.warp].epoch;
        let event = Event { block, clock: warp, warp, lane, many: false, epoch, pc: by.pc };
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

    /// `wgmma.wait_group`: all but the last `left` groups of the warp complete.
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
            let by = Actor::weak(warp, read.event.pc);
            for range in read.ranges {
                let lanes = one(read.event.lane as usize, range.start, range.end - range.start);
                // Conflicting writes have been reported already.
                let access =
                    SharedAccess { rank: self.rank, lanes: &lanes, by, scope: Scope::Weak };
                self.load(access, &mut Vec::new());
            }
        }
    }
}
