//! Asynchronous copies to shared memory, and the mbarriers that signal them.
//!
//! The machine calls these functions where it issues, commits, waits for and completes copies, and
//! reports the conflicts they return. A copy counts as a store of its thread when issued, which
//! detects conflicts with earlier reads. Its bytes then count as uninitialised until it is waited
//! for, which detects premature reads. Waiting stores again, in the epoch of the waiting thread.

use super::accesses::SharedAccess;
use super::block::BlockShadow;
use super::cluster::key;
use super::copies::{Group, InFlight};
use super::lanes::Lanes;
use super::shared::{Actor, Conflict};
use super::sync::{Strong, Touch};
use crate::mbarrier::BarrierAddress;
use crate::registers::LANES;
use crate::traits::{Order, Scope};

/// Key of an mbarrier's phases of a parity; mbarriers are 8 bytes apart.
fn phase_key((rank, at): BarrierAddress, odd: bool) -> u64 {
    key(rank, at) | u64::from(odd)
}

impl BlockShadow {
    /// Lanes issue copies to the shared memory of a rank; conflicts are appended to `out`.
    pub fn copy_issued(
        &mut self,
        by: Actor,
        (rank, target): (usize, &Lanes),
        group: Group,
        out: &mut Vec<Conflict>,
    ) {
        self.store(SharedAccess { rank, lanes: target, by, scope: Scope::Weak }, out);
        if rank == self.rank {
            self.shared.set_written(target, false);
        }
        let list = &mut self.warps[by.warp].copies.list;
        list.extend(target.each().map(|lane| {
            let (at, bytes) = (target.offsets[lane], target.bytes);
            InFlight { lane, pc: by.pc, rank, at, bytes, group, told: None }
        }));
    }

    /// `cp.async.commit_group`
    pub fn copy_committed(&mut self, warp: usize, lanes: u32) {
        let copies = &mut self.warps[warp].copies;
        for copy in copies.list.iter_mut().filter(|copy| lanes >> copy.lane & 1 != 0) {
            if copy.group == Group::Open {
                copy.group = Group::Committed(copies.committed[copy.lane]);
            }
        }
        (0..LANES).filter(|lane| lanes >> lane & 1 != 0).for_each(|at| copies.committed[at] += 1);
    }

    /// `cp.async.wait_group`: all but the last `left` groups of each lane complete.
    pub fn copy_waited(&mut self, warp: usize, lanes: u32, left: u32) {
        let committed = self.warps[warp].copies.committed;
        self.finish(warp, |copy| match copy.group {
            Group::Committed(number) => {
                lanes >> copy.lane & 1 != 0 && number + left < committed[copy.lane]
            }
            Group::Open | Group::Barrier(_) => false,
        });
    }

    /// `cp.async.mbarrier.arrive`: an mbarrier will signal the lane's prior copies.
    pub fn copy_handed(&mut self, warp: usize, lane: usize, barrier: BarrierAddress) {
        let list = &mut self.warps[warp].copies.list;
        for copy in list.iter_mut().filter(|copy| copy.lane == lane) {
            copy.told.get_or_insert(barrier);
        }
    }

    /// Completes the copies signalled by an mbarrier's phase.
    pub fn copy_completed(&mut self, barrier: BarrierAddress, odd: bool) {
        for warp in 0..self.warps.len() {
            let done = |copy: &InFlight| copy.group == Group::Barrier(barrier);
            if let Some(first) = self.warps[warp].copies.list.iter().find(|copy| done(copy)) {
                let (lane, pc) = (first.lane as u32, first.pc);
                self.finish(warp, done);
                self.phase_arrived((warp, lane, pc), barrier, odd, true);
            }
        }
    }

    /// The copies of a lane that an mbarrier signals have landed, and it arrives.
    pub fn copy_arrived(&mut self, by: (usize, u32, u32), barrier: BarrierAddress, odd: bool) {
        let (warp, lane, _) = by;
        self.finish(warp, |copy| copy.lane == lane as usize && copy.told == Some(barrier));
        self.phase_arrived(by, barrier, odd, true);
    }

    fn finish(&mut self, warp: usize, done: impl Fn(&InFlight) -> bool) {
        let list = std::mem::take(&mut self.warps[warp].copies.list);
        let (done, left): (Vec<_>, Vec<_>) = list.into_iter().partition(done);
        self.warps[warp].copies.list = left;
        for copy in done {
            // Premature reads have been reported; subsequent ones conflict with this store.
            let by = Actor { warp, pc: copy.pc, strong: false };
            let (rank, lanes) = (copy.rank, &copy.lanes());
            let access = SharedAccess { rank, lanes, by, scope: Scope::Weak };
            self.store(access, &mut Vec::new());
        }
    }

    /// A thread (warp, lane, op) arrives at a phase of an mbarrier.
    pub fn phase_arrived(
        &mut self,
        (warp, lane, pc): (usize, u32, u32),
        barrier: BarrierAddress,
        odd: bool,
        releases: bool,
    ) {
        let order = Order { scope: Scope::Device, releases, ..Order::default() };
        let key = phase_key(barrier, odd);
        self.phase(Strong { key, touch: Touch::Modify, order, warp, lane, pc });
    }

    /// A thread observes the completion of a phase of an mbarrier.
    pub fn phase_waited(
        &mut self,
        (warp, lane, pc): (usize, u32, u32),
        barrier: BarrierAddress,
        odd: bool,
        acquires: bool,
    ) {
        let order = Order { scope: Scope::Device, acquires, ..Order::default() };
        let key = phase_key(barrier, odd);
        self.phase(Strong { key, touch: Touch::Read, order, warp, lane, pc });
    }

    fn phase(&mut self, access: Strong) {
        let fenced = &mut self.warps[access.warp].fenced;
        self.cluster.sync.strong(&mut self.clocks, fenced, access);
    }

    /// A copy left pending by exiting lanes. Copies signalled by an mbarrier may be waited for by
    /// others.
    pub fn copy_leaked(&self, warp: usize, lanes: u32) -> Option<InFlight> {
        let leaks = |copy: &&InFlight| {
            let told = copy.told.is_some() || matches!(copy.group, Group::Barrier(_));
            lanes >> copy.lane & 1 != 0 && !told
        };
        self.warps[warp].copies.list.iter().find(leaks).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::block::WarpShadow;

    fn shadow() -> BlockShadow {
        let mut shadow = BlockShadow::empty(2, 64);
        shadow.warps = (0..2).map(|_| WarpShadow::default()).collect();
        shadow
    }

    fn words(first: u64) -> Lanes {
        let offsets = std::array::from_fn(|lane| 4 * (first + lane as u64));
        Lanes { run: true, step: Some(4), ..Lanes::apart(offsets, u32::MAX, 4) }
    }

    fn by(warp: usize, pc: u32) -> Actor {
        Actor { warp, pc, strong: false }
    }

    #[test]
    fn a_group_is_unwritten_until_it_is_waited_for() {
        let mut shadow = shadow();
        let mut found = Vec::new();
        shadow.copy_issued(by(0, 1), (0, &words(0)), Group::Open, &mut found);
        shadow.copy_committed(0, u32::MAX);
        shadow.copy_issued(by(0, 2), (0, &words(32)), Group::Open, &mut found);
        shadow.copy_committed(0, u32::MAX);
        assert_eq!(shadow.shared.unwritten(&words(0)), u32::MAX);
        shadow.copy_waited(0, u32::MAX, 1);
        assert_eq!(shadow.shared.unwritten(&words(0)), 0);
        assert_eq!(shadow.shared.unwritten(&words(32)), u32::MAX);
        assert_eq!(shadow.copy_leaked(0, 1).map(|copy| copy.pc), Some(2));
        shadow.copy_waited(0, u32::MAX, 0);
        assert!(shadow.copy_leaked(0, u32::MAX).is_none());
        assert!(found.is_empty());
        // Its own lanes may read it; another warp needs a barrier.
        shadow.shared.load(&shadow.clocks, &words(0), by(0, 3), &mut found);
        assert!(found.is_empty());
        shadow.shared.load(&shadow.clocks, &words(0), by(1, 4), &mut found);
        assert_eq!(found.len(), 32);
    }

    #[test]
    fn a_copy_races_with_readers_before_it() {
        let mut shadow = shadow();
        let mut found = Vec::new();
        shadow.shared.load(&shadow.clocks, &words(0), by(1, 1), &mut found);
        shadow.copy_issued(by(0, 2), (0, &words(0)), Group::Open, &mut found);
        assert_eq!(found.len(), 32);
        assert_eq!((found[0].earlier.warp, found[0].earlier.pc), (1, 1));
    }

    #[test]
    fn copies_that_a_barrier_will_tell_of_may_be_waited_for_before() {
        let mut shadow = shadow();
        shadow.copy_issued(by(0, 1), (0, &words(0)), Group::Open, &mut Vec::new());
        (0..LANES).for_each(|lane| shadow.copy_handed(0, lane, (0, 240)));
        assert!(shadow.copy_leaked(0, u32::MAX).is_none());
        assert_eq!(shadow.shared.unwritten(&words(0)), u32::MAX);
        shadow.copy_arrived((0, 3, 2), (0, 240), false);
        assert_eq!(shadow.shared.unwritten(&words(0)), !(1 << 3));
        shadow.copy_committed(0, u32::MAX);
        shadow.copy_waited(0, u32::MAX, 0);
        assert_eq!(shadow.shared.unwritten(&words(0)), 0);
    }

    #[test]
    fn a_barrier_in_memory_orders_copies_and_readers() {
        let mut shadow = shadow();
        let mut found = Vec::new();
        shadow.copy_issued(by(0, 1), (0, &words(0)), Group::Barrier((0, 240)), &mut found);
        shadow.copy_completed((0, 240), false);
        shadow.phase_waited((1, 0, 2), (0, 240), false, true);
        shadow.shared.load(&shadow.clocks, &words(0), by(1, 3), &mut found);
        assert!(found.is_empty());
        assert_eq!(shadow.shared.unwritten(&words(0)), 0);
        // The reader releases the words through a second barrier.
        shadow.phase_arrived((1, 0, 4), (0, 248), false, true);
        shadow.phase_waited((0, 0, 5), (0, 248), false, true);
        shadow.copy_issued(by(0, 1), (0, &words(0)), Group::Barrier((0, 240)), &mut found);
        assert!(found.is_empty());
        shadow.copy_completed((0, 240), true);
        shadow.copy_issued(by(0, 1), (0, &words(0)), Group::Barrier((0, 240)), &mut found);
        assert!(found.is_empty());
    }
}
