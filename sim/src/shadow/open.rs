//! Start and completion of asynchronous reads of shared memory.

use super::accesses::SharedAccess;
use super::actor::Actor;
use super::block::BlockShadow;
use super::clocks::Event;
use super::lanes::one;
use super::reads::{Ending, OpenRead, Sorted};
use super::tensor::TensorRead;
use crate::mbarrier::BarrierAddress;
use crate::traits::Scope;
use crate::warpgroup::WARPS;
use std::ops::Range;

impl BlockShadow {
    /// An asynchronous read of lists of ranges of the block's own shared memory starts.
    pub fn read_begun(&mut self, by: Actor, lane: u32, ranges: Vec<Sorted>, ending: Ending) {
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
        let read = OpenRead { rank: self.rank, event, ending, ranges };
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
            Ending::Product(_) | Ending::Tensor(_) => false,
        });
    }

    /// A thread issues an MMA or copy on tensor memory, which reads ranges of shared memory. It
    /// stands for earlier ones that read the same.
    pub fn tensor_begun(&mut self, by: Actor, lane: u32, ranges: Sorted) {
        let (block, warp) = (self.clocks.block, by.warp as u32);
        self.cluster.open.retain(|read| {
            let mine = (read.event.block, read.event.warp, read.event.lane) == (block, warp, lane);
            !mine || !matches!(read.ending, Ending::Tensor(_)) || read.ranges != [ranges.clone()]
        });
        self.read_begun(by, lane, vec![ranges], Ending::Tensor(TensorRead::Issued));
    }

    /// A thread commits what it issued to the tensor core, which an mbarrier's phase tells of.
    pub fn tensor_committed(
        &mut self,
        (warp, lane): (usize, u32),
        barrier: BarrierAddress,
        odd: bool,
    ) {
        self.completions += 1;
        let (clock, epoch, known) = self.clocks.completed(barrier, self.completions);
        let block = self.clocks.block;
        for read in &mut self.cluster.open {
            let mine = (read.event.block, read.event.warp, read.event.lane);
            if read.ending == Ending::Tensor(TensorRead::Issued)
                && mine == (block, warp as u32, lane)
            {
                let end = Event { clock, epoch, ..read.event };
                read.ending = Ending::Tensor(TensorRead::Committed(end));
            }
        }
        let told = self.tensor.tell(&known);
        self.told(barrier, odd, &told);
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
            let lane = read.event.lane as usize;
            for &Range { start, end } in read.ranges.iter().flat_map(|list| &**list) {
                let whole = start % 4 == 0 && end % 4 == 0;
                if whole {
                    let words = start as usize / 4..end as usize / 4;
                    self.shared.reread(&self.clocks, words, by, lane);
                }
                if whole && self.blocks == 1 {
                    continue;
                }
                let lanes = one(lane, start, end - start);
                // Conflicting writes have been reported already.
                let (rank, scope, out) = (self.rank, Scope::Weak, &mut Vec::new());
                let access = SharedAccess { rank, lanes: &lanes, by, scope };
                match whole {
                    true => self.compare(access, false, out),
                    false => self.load(access, out),
                }
            }
        }
    }
}
