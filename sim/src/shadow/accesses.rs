//! Accesses to the shared memory of a cluster, and its barrier, from a block's point of view.

use super::actor::{Actor, Conflict};
use super::block::BlockShadow;
use super::clocks::joined;
use super::global::Global;
use super::lanes::Lanes;
use super::reads::Ending;
use super::tensor::TensorRead;
use crate::traits::Scope;

/// An access of a warp to the shared memory of a rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedAccess<'a> {
    pub rank: usize,
    pub lanes: &'a Lanes,
    pub by: Actor,
    pub scope: Scope,
}

impl BlockShadow {
    /// Lanes arrive at the cluster's barrier. Without a release, they publish what a prior fence
    /// did.
    pub fn cluster_arrived(&mut self, warp: usize, lanes: u32, releases: bool) {
        let known = match releases {
            true => self.clocks.released(warp),
            false => match self.warps[warp].fenced.given(lanes) {
                Some((_, known)) => known,
                None => return,
            },
        };
        self.cluster.arriving = joined(&self.cluster.arriving, &known);
    }

    /// Lanes continue after the cluster's barrier.
    pub fn cluster_waited(&mut self, warp: usize, lanes: u32, live: u32) {
        let opened = self.cluster.opened.clone();
        self.clocks.acquire(warp, &opened);
        self.clocks.sync_lanes(warp, lanes, live);
    }

    /// Records an access for comparison with those of other blocks. Within a block, its own shadow
    /// is more precise.
    pub(super) fn compare(
        &mut self,
        access: SharedAccess<'_>,
        writes: bool,
        out: &mut Vec<Conflict>,
    ) {
        if self.blocks == 1 {
            return;
        }
        let SharedAccess { rank, lanes, by, scope } = access;
        let access = Global { lanes, by, scope, allocation: rank, words: self.shared.words() };
        let stamps = &mut self.warps[by.warp].cluster_stamps;
        let before = out.len();
        self.cluster.touched.access(&self.clocks, &access, writes, stamps, out);
        let (own, block) = (rank == self.rank, self.clocks.block);
        let found = out.split_off(before).into_iter();
        out.extend(found.filter(|conflict| !own || conflict.earlier.block != block));
    }

    /// Records a store; conflicts are appended to `out`.
    pub fn store(&mut self, access: SharedAccess<'_>, out: &mut Vec<Conflict>) {
        let SharedAccess { rank, lanes, by, .. } = access;
        if rank == self.rank {
            self.shared.store(&self.clocks, lanes, by, out);
        }
        self.compare(access, true, out);
        for read in self.cluster.open.iter().filter(|read| read.rank == rank) {
            for lane in lanes.each() {
                if let Ending::Tensor(TensorRead::Committed(end)) = &read.ending
                    && self.clocks.ordered(end, by.warp, lane as u32)
                {
                    continue;
                }
                let start = lanes.offsets[lane];
                if let Some(at) = read.meets(start..start + u64::from(lanes.bytes)) {
                    out.push(Conflict { lane, at, earlier: read.event, open: true });
                }
            }
        }
    }

    /// Records a load; conflicts are appended to `out`.
    pub fn load(&mut self, access: SharedAccess<'_>, out: &mut Vec<Conflict>) {
        if access.rank == self.rank {
            self.shared.load(&self.clocks, access.lanes, access.by, out);
        }
        self.compare(access, false, out);
    }
}
