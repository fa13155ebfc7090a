//! Checks of the start of a cluster: uses of mbarriers that are not ordered after their
//! initialisation, and accesses to blocks that may not have started.

use super::Watch;
use super::report::Reporter;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::finding::FindingKind;
use crate::mbarrier::BarrierAddress;
use crate::shadow::{BlockShadow, Event, Init, Missing, SHARED, peer};
use crate::warp::{At, Warp};

/// A lane of a warp at an op.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a, 'b> {
    pub warp: &'a Warp,
    pub block: &'a BlockState,
    pub cx: &'a Context<'b>,
    pub at: At,
    pub lane: usize,
}

impl Watch {
    /// Records the initialisation of an mbarrier.
    pub(super) fn initialised(shadow: &mut BlockShadow, by: Lane<'_, '_>, at: BarrierAddress) {
        let (warp, lane) = (by.warp.index, by.lane as u32);
        let (block, epoch) = (shadow.clocks.block, shadow.clocks.warps[warp as usize].epoch);
        let event = Event { block, clock: warp, warp, lane, many: false, epoch, pc: by.at.pc };
        shadow.cluster.inits.insert(at, Init { event, fenced: false });
    }

    /// Lanes execute a fence that makes the mbarriers they initialised visible to copies.
    pub(super) fn barriers_fenced(shadow: &mut BlockShadow, warp: &Warp, lanes: u32) {
        let me = (shadow.clocks.block, warp.index);
        for Init { event, fenced } in shadow.cluster.inits.values_mut() {
            *fenced |= (event.block, event.warp) == me && lanes >> event.lane & 1 != 0;
        }
    }

    /// Checks a use of an mbarrier, by a thread or by a copy that it issues.
    pub(super) fn barrier_used(
        &mut self,
        shadow: &BlockShadow,
        by: Lane<'_, '_>,
        (rank, at): BarrierAddress,
        copies: bool,
    ) {
        if !self.checks.shared_races {
            return;
        }
        self.started(shadow, by, rank);
        let Some(Init { event, fenced }) = shadow.cluster.inits.get(&(rank, at)) else { return };
        let (warp, lane, pc) = (by.warp.index as usize, by.lane, by.at.pc);
        let reporter = Reporter::new(by.cx, by.block);
        let area = if rank == shadow.rank { SHARED } else { peer(rank) };
        // The fence tells of the initialisation whoever knows by a barrier that the block runs, of
        // whatever semantics.
        let told = *fenced && shadow.clocks.warps[warp].known.has_started(event.block);
        if !told && !shadow.clocks.ordered(event, warp, lane as u32) {
            let missing = (event.block != shadow.clocks.block).then_some(Missing::Everything);
            let kind = FindingKind::SharedRace;
            let make = || reporter.race(kind, (area, at), event, (pc, warp, lane), missing);
            self.findings.add((kind, event.pc, pc), make);
        } else if copies && !fenced {
            let make = || reporter.unfenced_barrier((area, at), event, (pc, warp, lane));
            self.findings.add((FindingKind::MissingBarrierFence, event.pc, pc), make);
        }
    }

    /// Checks that the block of a rank is known to have started.
    pub(super) fn started(&mut self, shadow: &BlockShadow, by: Lane<'_, '_>, rank: usize) {
        if rank == shadow.rank || !self.checks.shared_races {
            return;
        }
        let (warp, pc) = (by.warp.index as usize, by.at.pc);
        let known = &shadow.clocks.warps[warp].known;
        if shadow.cluster.ranks.get(rank).is_some_and(|block| known.has_started(*block)) {
            return;
        }
        let reporter = Reporter::new(by.cx, by.block);
        let make = || reporter.unstarted(rank, (pc, warp, by.lane));
        self.findings.add((FindingKind::UnstartedPeer, pc, pc), make);
    }
}
