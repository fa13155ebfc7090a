//! Asynchronous copies to shared memory, and the mbarriers that signal them.
//!
//! The machine calls these functions where it issues, commits, waits for and completes copies, and
//! reports the conflicts they return. A copy counts as a store of its thread when issued, which
//! detects conflicts with earlier reads. Its bytes then count as uninitialised until it is
//! complete, which detects premature reads. Completion stores again: in the epoch of the thread
//! that waits, or in one of the mbarrier that signals it. Who waits for the mbarrier's phase is
//! ordered after the copy and what its thread did before it, but not after what that did since.

use super::accesses::SharedAccess;
use super::actor::{Actor, Clock, Conflict};
use super::block::BlockShadow;
use super::clocks::{Event, Known, joined};
use super::cluster::key;
use super::copies::{Group, InFlight, Issue, OpenStore};
use super::lanes::one;
use super::sync::{Strong, Touch};
use crate::mbarrier::BarrierAddress;
use crate::registers::LANES;
use crate::traits::{Order, Scope};
use std::rc::Rc;

/// Key of an mbarrier's phases of a parity; mbarriers are 8 bytes apart.
fn phase_key((rank, at): BarrierAddress, odd: bool) -> u64 {
    key(rank, at) | u64::from(odd)
}

/// Lanes of a mask, and those of which something is true.
fn each(lanes: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| lanes >> lane & 1 != 0)
}

fn lanes_where(lanes: u32, of: impl Fn(usize) -> bool) -> u32 {
    each(lanes).filter(|&lane| of(lane)).fold(0, |mask, lane| mask | 1 << lane)
}

/// The different values of lanes.
fn different(values: &[u32; LANES], lanes: u32) -> Vec<u32> {
    let mut out: Vec<u32> = each(lanes).map(|lane| values[lane]).collect();
    out.sort_unstable();
    out.dedup();
    out
}

impl BlockShadow {
    /// Lanes issue copies; conflicts are appended to `out`.
    pub fn copy_issued(&mut self, by: Actor, issue: &Issue<'_>, out: &mut Vec<Conflict>) {
        let Issue { rank, target, group, number, ref unset, ref sources } = *issue;
        self.store(SharedAccess { rank, lanes: target, by, scope: Scope::Weak }, out);
        if rank == self.rank {
            self.shared.set_written(target, false);
        }
        let before = match group {
            Group::Barrier(_) => self.clocks.released(by.warp),
            _ => Rc::default(),
        };
        let (pc, lanes, told) = (by.pc, *target, None);
        let (unset, sources) = (unset.clone(), sources.clone());
        let copy = InFlight { pc, rank, lanes, group, number, unset, sources, told, before };
        self.warps[by.warp].copies.list.push(copy);
    }

    /// `cp.async.commit_group`
    pub fn copy_committed(&mut self, warp: usize, lanes: u32) {
        let copies = &mut self.warps[warp].copies;
        let committed = copies.committed;
        for number in different(&committed, lanes) {
            let now = lanes_where(lanes, |lane| committed[lane] == number);
            let open = |copy: &InFlight| if copy.group == Group::Open { now } else { 0 };
            copies.change(open, |copy| copy.group = Group::Committed(number));
        }
        each(lanes).for_each(|lane| copies.committed[lane] += 1);
    }

    /// `cp.async.wait_group`: all but the last `left` groups of each lane complete, which are
    /// returned.
    pub fn copy_waited(&mut self, warp: usize, lanes: u32, left: u32) -> Vec<InFlight> {
        let committed = self.warps[warp].copies.committed;
        self.finish(warp, |copy| match copy.group {
            Group::Committed(number) => {
                let completes = |lane: usize| number.saturating_add(left) < committed[lane];
                lanes_where(lanes & copy.lanes.active, completes)
            }
            Group::Open | Group::Barrier(_) => 0,
        })
    }

    /// `cp.async.mbarrier.arrive`: mbarriers will signal prior copies of lanes.
    pub fn copies_handed(
        &mut self,
        warp: usize,
        barriers: impl Iterator<Item = (usize, BarrierAddress)>,
    ) {
        let before = self.clocks.released(warp);
        let copies = &mut self.warps[warp].copies;
        for (lane, barrier) in barriers {
            let untold = |copy: &InFlight| if copy.told.is_none() { 1 << lane } else { 0 };
            copies.change(untold, |copy| {
                (copy.told, copy.before) = (Some(barrier), before.clone());
            });
        }
    }

    /// A bulk copy to the shared memory of a rank is complete, which an mbarrier there signals.
    pub fn bulk_completed(&mut self, number: u64, (rank, at): BarrierAddress, odd: bool) {
        let mine = |copy: &InFlight| copy.number == number && copy.rank == rank;
        let warps = self.warps.iter();
        let found = warps.map(|warp| warp.copies.list.iter().position(mine)).enumerate();
        let first = found.filter_map(|(warp, at)| Some((warp, at?))).next();
        let Some((warp, index)) = first else { return };
        let copy = self.warps[warp].copies.list.remove(index);
        self.completions += 1;
        self.complete(warp, &copy, (rank, at), odd);
    }

    /// The next arrivals that follow copies belong together.
    pub fn copies_arrive(&mut self) {
        self.completions += 1;
    }

    /// The copies of a lane that an mbarrier signals are complete, and it arrives.
    pub fn copy_arrived(&mut self, warp: usize, lane: usize, barrier: BarrierAddress, odd: bool) {
        let told = |copy: &InFlight| if copy.told == Some(barrier) { 1 << lane } else { 0 };
        for copy in self.warps[warp].copies.take(told) {
            self.complete(warp, &copy, barrier, odd);
        }
    }

    /// Records what a copy wrote, for those who wait for a phase of the mbarrier that signals it.
    fn complete(&mut self, warp: usize, copy: &InFlight, barrier: BarrierAddress, odd: bool) {
        let (clock, epoch, known) = self.clocks.completed(barrier, self.completions);
        let (pc, rank, lanes) = (copy.pc, copy.rank, &copy.lanes);
        if rank == self.rank {
            let (block, lane) = (self.clocks.block, copy.lane() as u32);
            let warp = warp as u32;
            self.shared.copied(lanes, Event { block, clock, warp, lane, many: false, epoch, pc });
        }
        let by = Actor { apart: Some(Clock { clock, epoch }), ..Actor::weak(warp, pc) };
        let access = SharedAccess { rank, lanes, by, scope: Scope::Weak };
        self.compare(access, true, &mut Vec::new());
        self.unset(copy);
        self.told(barrier, odd, &joined(&known, &copy.before));
    }

    /// Who waits for a phase of an mbarrier knows this as well.
    pub(super) fn told(&mut self, barrier: BarrierAddress, odd: bool, known: &Rc<Known>) {
        self.cluster.sync.publish(phase_key(barrier, odd), &self.clocks, known);
    }

    /// Completes copies that a warp waits for.
    fn finish(&mut self, warp: usize, done: impl Fn(&InFlight) -> u32) -> Vec<InFlight> {
        let done = self.warps[warp].copies.take(done);
        for copy in &done {
            // Premature reads have been reported; subsequent ones conflict with this store.
            let by = Actor::weak(warp, copy.pc);
            let (rank, lanes) = (copy.rank, &copy.lanes);
            let access = SharedAccess { rank, lanes, by, scope: Scope::Weak };
            self.store(access, &mut Vec::new());
            self.unset(copy);
        }
        done
    }

    /// `cp.async.bulk.wait_group`: the stores of a lane's groups, of which `committed` are
    /// committed, but for the last `left` are complete; they are returned.
    pub fn stores_waited(
        &mut self,
        warp: usize,
        lane: usize,
        committed: u32,
        left: u32,
    ) -> Vec<OpenStore> {
        let over = |store: &mut OpenStore| store.lane == lane && committed - store.group > left;
        self.warps[warp].copies.stores.extract_if(.., over).collect()
    }

    /// What a copy brought that nobody wrote stays unwritten.
    fn unset(&mut self, copy: &InFlight) {
        if copy.rank != self.rank {
            return;
        }
        let (lanes, bytes) = (&copy.lanes, u64::from(copy.lanes.bytes));
        for &at in copy.unset.iter() {
            let own =
                |&lane: &usize| (lanes.offsets[lane]..lanes.offsets[lane] + bytes).contains(&at);
            if let Some(lane) = lanes.each().find(own) {
                self.shared.set_written(&one(lane, at, 1), false);
                self.unset_by.insert(at, copy.pc);
            }
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
            lanes & copy.lanes.active != 0 && !told
        };
        let leaked = self.warps[warp].copies.list.iter().find(leaks)?;
        Some(InFlight { lanes: leaked.lanes.only(leaked.lanes.active & lanes), ..leaked.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::block::WarpShadow;
    use crate::shadow::lanes::Lanes;

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
        Actor::weak(warp, pc)
    }

    fn issued(shadow: &mut BlockShadow, by: Actor, target: &Lanes, group: Group) -> Vec<Conflict> {
        let (number, unset, mut found) = (7, Rc::default(), Vec::new());
        let issue = Issue { rank: 0, target, group, number, unset, sources: Rc::default() };
        shadow.copy_issued(by, &issue, &mut found);
        found
    }

    #[test]
    fn a_group_is_unwritten_until_it_is_waited_for() {
        let mut shadow = shadow();
        let mut found = issued(&mut shadow, by(0, 1), &words(0), Group::Open);
        shadow.copy_committed(0, u32::MAX);
        found.extend(issued(&mut shadow, by(0, 2), &words(32), Group::Open));
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
        found.extend(issued(&mut shadow, by(0, 2), &words(0), Group::Open));
        assert_eq!(found.len(), 32);
        assert_eq!((found[0].earlier.warp, found[0].earlier.pc), (1, 1));
    }

    #[test]
    fn copies_that_a_barrier_will_tell_of_may_be_waited_for_before() {
        let mut shadow = shadow();
        issued(&mut shadow, by(0, 1), &words(0), Group::Open);
        shadow.copies_handed(0, (0..LANES).map(|lane| (lane, (0, 240))));
        assert!(shadow.copy_leaked(0, u32::MAX).is_none());
        assert_eq!(shadow.shared.unwritten(&words(0)), u32::MAX);
        shadow.copies_arrive();
        shadow.copy_arrived(0, 3, (0, 240), false);
        assert_eq!(shadow.shared.unwritten(&words(0)), !(1 << 3));
        shadow.copy_committed(0, u32::MAX);
        shadow.copy_waited(0, u32::MAX, 0);
        assert_eq!(shadow.shared.unwritten(&words(0)), 0);
    }

    #[test]
    fn a_barrier_in_memory_orders_copies_and_readers() {
        let mut shadow = shadow();
        let group = Group::Barrier((0, 240));
        let mut found: Vec<Conflict> = (0..32)
            .flat_map(|lane| issued(&mut shadow, by(0, 1), &one(lane, 4 * lane as u64, 4), group))
            .collect();
        (0..32).for_each(|_| shadow.bulk_completed(7, (0, 240), false));
        // What the issuing warp stores beside the copy is not released by it.
        shadow.shared.store(&shadow.clocks, &words(32), by(0, 9), &mut found);
        shadow.phase_waited((1, 0, 2), (0, 240), false, true);
        shadow.shared.load(&shadow.clocks, &words(0), by(1, 3), &mut found);
        assert!(found.is_empty());
        assert_eq!(shadow.shared.unwritten(&words(0)), 0);
        shadow.shared.load(&shadow.clocks, &words(32), by(1, 3), &mut found);
        assert_eq!(std::mem::take(&mut found).len(), 32);
        // The reader releases the words through a second barrier.
        shadow.phase_arrived((1, 0, 4), (0, 248), false, true);
        shadow.phase_waited((0, 0, 5), (0, 248), false, true);
        found.extend(issued(&mut shadow, by(0, 1), &one(0, 0, 16), group));
        assert!(found.is_empty());
        // Whoever does not wait for the second copy is not ordered after it.
        shadow.bulk_completed(7, (0, 240), true);
        shadow.shared.load(&shadow.clocks, &one(0, 0, 16), by(1, 3), &mut found);
        assert_eq!(found.len(), 4);
    }
}
