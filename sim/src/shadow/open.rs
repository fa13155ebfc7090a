//! Start and completion of asynchronous reads of shared memory.

use super::accesses::SharedAccess;
use super::actor::Actor;
use super::block::BlockShadow;
use super::clocks::Event;
use super::lanes::one;
use super::reads::{Ending, OpenRead, joined};
use crate::traits::Scope;
use crate::warpgroup::WARPS;
use std::ops::Range;

impl BlockShadow {
    /// An asynchronous read of ranges of the block's own shared memory starts.
    pub fn read_begun(&mut self, by: Actor, lane: u32, ranges: Vec<Range<u64>>, ending: Ending) {
        let (block, warp) = (self.clocks.block, by.warp as u32);
        let epoch = self.clocks.warps[by.warp].epoch;
        let event = Event { block, clock: warp, warp, lane, many: false, epoch, pc: by.pc };
        if let Ending::Product(_) = ending {
            let shadow = &mut self.warps[by.warp];
            let issued = (epoch, shadow.products_committed as usize);
            if shadow.products_issued.last() != Some(&issued) {
                shadow.products_issued.push(issued);
            }
        }
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
        let epoch = self.clocks.warps[warp].epoch;
        let ended = &mut self.warps[warp].products_ended;
        ended.resize(ended.len().max(committed.saturating_sub(left) as usize), epoch);
        self.end_reads(warp, |read| match read.ending {
            Ending::Product(Some(number)) => committed - number > left,
            _ => false,
        });
    }

    /// Whether an access of another warpgroup is ordered after the wait of some warp of a reader's
    /// warpgroup, though not the reader's, for the wgmma that an event is of.
    pub fn released_by_warpgroup(&self, read: &Event, warp: usize, lane: u32) -> bool {
        let reader = &self.warps[read.warp as usize];
        let ended = reader.products_ended.iter().rposition(|epoch| *epoch == read.epoch);
        let issued = || {
            let found = reader.products_issued.iter().rev().find(|(epoch, _)| *epoch == read.epoch);
            found.map(|(_, group)| *group)
        };
        let (Some(group), first) = (ended.or_else(issued), read.warp as usize / WARPS * WARPS)
        else {
            return false;
        };
        let members = first..(first + WARPS).min(self.warps.len());
        !members.contains(&warp)
            && members.into_iter().any(|other| {
                let wait = self.warps[other].products_ended.get(group);
                wait.is_some_and(|&epoch| {
                    let clock = other as u32;
                    let wait = Event { clock, warp: clock, many: true, epoch, ..*read };
                    self.clocks.ordered(&wait, warp, lane)
                })
            })
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
