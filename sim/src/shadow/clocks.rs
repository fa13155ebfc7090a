//! Vector clocks over the warps of a block, and over other blocks with which the kernel
//! synchronises.
//!
//! An access carries its warp's epoch. It is ordered before another access if the other access's
//! warp knows that epoch. Barriers join the clocks of their warps; after a barrier at which every
//! warp waited, a single number, the floor, represents the joint knowledge.
//!
//! The writes of an asynchronous copy that an mbarrier signals are ordered before whoever waits for
//! it, whatever else the issuing warp did: each mbarrier has a clock of its own, whose epochs are
//! the completions that it was told of.
//!
//! What proxy fences cover is known like an epoch: for each proxy a warp has a clock, whose epoch
//! is the warp's last one that a fence covered.

use crate::mbarrier::BarrierAddress;
use crate::traits::Proxy;
use std::collections::HashMap;
use std::rc::Rc;

/// Lanes per warp.
const LANES: usize = 32;
/// Number of barriers per block.
const BARRIERS: usize = 16;
/// Last epoch that is checked: shadow entries have 25 bits for it.
pub(crate) const EPOCH_MAX: u32 = (1 << 25) - 2;

/// Clock of what nobody is ordered after: an asynchronous write until its thread waits for it.
pub(crate) const PENDING: u32 = u32::MAX;

/// Known epochs of each block's clocks, sorted by block.
#[derive(Debug, Default)]
pub(crate) struct Known(Vec<(u32, Rc<[u32]>)>);

/// Known epoch of a clock: rows end with the last that is known of.
fn epoch_of(row: &[u32], clock: u32) -> u32 {
    row.get(clock as usize).copied().unwrap_or(0)
}

/// Raises a row's epochs to at least those of another.
fn raise(mine: &mut Vec<u32>, theirs: &[u32]) {
    mine.resize(mine.len().max(theirs.len()), 0);
    mine.iter_mut().zip(theirs).for_each(|(mine, &theirs)| *mine = (*mine).max(theirs));
}

impl Known {
    /// That blocks, in order, have started.
    pub fn starts(blocks: impl Iterator<Item = u32>) -> Known {
        Known(blocks.map(|block| (block, Rc::from([]))).collect())
    }

    /// Whether a block is known to have started.
    pub fn has_started(&self, block: u32) -> bool {
        self.row(block).is_some()
    }

    /// One epoch of one clock.
    fn one(block: u32, clock: u32, epoch: u32) -> Known {
        let mut row = vec![0; clock as usize + 1];
        row[clock as usize] = epoch;
        Known(vec![(block, row.into())])
    }

    /// Whether an event of another block is known.
    pub fn has(&self, event: &Event) -> bool {
        self.row(event.block).is_some_and(|row| epoch_of(row, event.clock) >= event.epoch)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn row(&self, block: u32) -> Option<&[u32]> {
        let found = self.0.binary_search_by_key(&block, |&(block, _)| block);
        found.ok().map(|at| &*self.0[at].1)
    }

    /// A copy in which proxies cover all that is known of the first clocks of each block.
    fn covered(&self, count: usize, proxies: &[Proxy]) -> Known {
        let raised = |(block, mine): &(u32, Rc<[u32]>)| {
            let mut row = mine.to_vec();
            let own = mine[..count.min(mine.len())].to_vec();
            for proxy in proxies {
                let mut covered = vec![0; (1 + *proxy as usize) * count];
                covered.extend(&own);
                raise(&mut row, &covered);
            }
            (*block, row.into())
        };
        Known(self.0.iter().map(raised).collect())
    }

    /// A copy with a block's row raised to at least `row`.
    fn with(&self, block: u32, row: &[u32]) -> Known {
        let mut blocks = self.0.clone();
        match blocks.binary_search_by_key(&block, |&(block, _)| block) {
            Ok(at) => blocks[at].1 = raised(&blocks[at].1, row),
            Err(at) => blocks.insert(at, (block, row.into())),
        }
        Known(blocks)
    }
}

fn raised(mine: &Rc<[u32]>, theirs: &[u32]) -> Rc<[u32]> {
    let below = |(clock, theirs): (usize, &u32)| epoch_of(mine, clock as u32) >= *theirs;
    if theirs.iter().enumerate().all(below) {
        return mine.clone();
    }
    let mut row = mine.to_vec();
    raise(&mut row, theirs);
    row.into()
}

/// Union of two states of knowledge.
pub(crate) fn joined(a: &Rc<Known>, b: &Rc<Known>) -> Rc<Known> {
    if Rc::ptr_eq(a, b) || b.0.is_empty() {
        return a.clone();
    }
    if a.0.is_empty() {
        return b.clone();
    }
    let mut out = Vec::with_capacity(a.0.len().max(b.0.len()));
    let (mut left, mut right) = (a.0.iter().peekable(), b.0.iter().peekable());
    loop {
        let next = match (left.peek(), right.peek()) {
            (None, None) => return Rc::new(Known(out)),
            (Some((x, _)), Some((y, _))) if x == y => {
                left.next().zip(right.next()).map(|((block, mine), (_, theirs))| {
                    let row =
                        if Rc::ptr_eq(mine, theirs) { mine.clone() } else { raised(mine, theirs) };
                    (*block, row)
                })
            }
            (Some((x, _)), Some((y, _))) if x > y => right.next().cloned(),
            (Some(_), _) => left.next().cloned(),
            (None, Some(_)) => right.next().cloned(),
        };
        out.extend(next);
    }
}

/// Clock of a warp.
#[derive(Debug)]
pub(crate) struct WarpClock {
    /// Current epoch.
    pub epoch: u32,
    /// Last known epoch of each warp of the block, for the warp itself the last known to all lanes;
    /// then, for each proxy, of each warp the last that is covered; then of each mbarrier.
    row: Vec<u32>,
    /// Minimum over the warps: everything up to it is ordered, whichever warp did it.
    pub floor: u32,
    warps: usize,
    /// Knowledge of lanes about each other's epochs, once some have synchronised.
    lanes: Option<Box<[[u32; LANES]; LANES]>>,
    /// Knowledge about other blocks.
    pub known: Rc<Known>,
}

impl WarpClock {
    fn new(warps: usize) -> WarpClock {
        let (row, known) = (vec![0; warps], Rc::default());
        WarpClock { epoch: 1, row, floor: 0, warps, lanes: None, known }
    }

    fn step(&mut self) {
        self.epoch += 1;
    }

    /// Last known epoch of a warp of the block.
    pub fn known_of(&self, warp: usize) -> u32 {
        self.row[warp]
    }

    fn lower(&mut self) {
        self.floor = self.row[..self.warps].iter().copied().min().unwrap_or(0);
    }
}

/// Knowledge brought to a barrier.
#[derive(Debug, Default, Clone)]
struct Meeting {
    row: Vec<u32>,
    known: Option<Rc<Known>>,
}

/// Clock of an mbarrier.
#[derive(Debug)]
struct BarrierClock {
    clock: u32,
    epoch: u32,
    /// The completion that its epoch stands for.
    completion: u64,
}

/// Clocks of a block.
#[derive(Debug)]
pub(crate) struct Clocks {
    pub block: u32,
    /// The cluster of the block.
    pub cluster: u32,
    pub warps: Vec<WarpClock>,
    meetings: Vec<Meeting>,
    barriers: HashMap<BarrierAddress, BarrierClock>,
}

/// An access as recorded in the shadow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub block: u32,
    /// The clock of its epoch: its warp, or an mbarrier's.
    pub clock: u32,
    pub warp: u32,
    /// A lane that made the access.
    pub lane: u32,
    /// Whether other lanes made it too.
    pub many: bool,
    pub epoch: u32,
    pub pc: u32,
}

impl Clocks {
    pub fn new(block: u32, warps: usize) -> Clocks {
        let meetings = vec![Meeting::default(); BARRIERS];
        let warps = (0..warps).map(|_| WarpClock::new(warps)).collect();
        Clocks { block, cluster: block, warps, meetings, barriers: HashMap::new() }
    }

    /// Whether the epochs are exhausted.
    pub fn spent(&self, warp: usize) -> bool {
        self.warps[warp].epoch >= EPOCH_MAX
    }

    /// Whether an event is ordered before a lane's current access.
    pub fn ordered(&self, event: &Event, warp: usize, lane: u32) -> bool {
        let me = &self.warps[warp];
        if event.block != self.block {
            return me.known.has(event);
        }
        if epoch_of(&me.row, event.clock) >= event.epoch {
            return true;
        }
        if event.clock as usize != warp {
            return false;
        }
        let among = |lanes: &[[u32; LANES]; LANES]| {
            let of = if event.many { lane } else { event.lane };
            lanes[lane as usize][of as usize] >= event.epoch
        };
        event.lane == lane && !event.many || me.lanes.as_deref().is_some_and(among)
    }

    /// Whether an event is ordered before the current access of every lane of a warp, for certain.
    pub fn ordered_for_all(&self, event: &Event, warp: usize) -> bool {
        let me = &self.warps[warp];
        match event.block == self.block {
            true => epoch_of(&me.row, event.clock) >= event.epoch,
            false => me.known.has(event),
        }
    }

    /// Whether every warp of the block is ordered after an event of the block.
    pub fn settled(&self, event: &Event) -> bool {
        self.warps.iter().all(|warp| epoch_of(&warp.row, event.clock) >= event.epoch)
    }

    /// Clock and epoch of the writes of a completion that an mbarrier signals, and the knowledge of
    /// who waits for it. Completions are numbered.
    pub fn completed(&mut self, barrier: BarrierAddress, completion: u64) -> (u32, u32, Rc<Known>) {
        let clock = ((1 + Proxy::ALL.len()) * self.warps.len() + self.barriers.len()) as u32;
        let new = BarrierClock { clock, epoch: 0, completion: 0 };
        let held = self.barriers.entry(barrier).or_insert(new);
        if held.completion != completion || held.epoch == 0 {
            (held.epoch, held.completion) = (held.epoch + 1, completion);
        }
        let known = Known::one(self.block, held.clock, held.epoch);
        (held.clock, held.epoch, Rc::new(known))
    }

    /// Synchronises lanes of a warp: all live ones, or some.
    pub fn sync_lanes(&mut self, warp: usize, members: u32, live: u32) {
        let me = &mut self.warps[warp];
        let epoch = me.epoch;
        if members & live == live {
            me.row[warp] = epoch;
            me.lanes = None;
            me.lower();
        } else {
            let lanes = me.lanes.get_or_insert_with(|| Box::new([[0; LANES]; LANES]));
            let of = |mask: u32| (0..LANES).filter(move |lane| mask >> lane & 1 != 0);
            let mut row = [0; LANES];
            for lane in of(members) {
                row = std::array::from_fn(|at| row[at].max(lanes[lane][at]));
            }
            of(members).for_each(|lane| row[lane] = epoch);
            of(members).for_each(|lane| lanes[lane] = row);
        }
        me.step();
    }

    /// A warp arrives at a barrier.
    pub fn arrive(&mut self, warp: usize, id: usize) {
        let me = &mut self.warps[warp];
        let meeting = &mut self.meetings[id];
        raise(&mut meeting.row, &me.row);
        meeting.row[warp] = me.epoch;
        let known = meeting.known.get_or_insert_default();
        *known = joined(known, &me.known);
        me.step();
    }

    /// Releases a barrier for the waiting warps; `all` if no other warp is live.
    pub fn open(&mut self, id: usize, waiting: impl Iterator<Item = usize>, all: bool) {
        let meeting = std::mem::take(&mut self.meetings[id]);
        let (Some(known), mut row) = (meeting.known, meeting.row) else { return };
        let next = self.warps.iter().map(|warp| warp.epoch).max().unwrap_or(1) + 1;
        if all {
            row[..self.warps.len()].fill(next - 1);
        }
        for warp in waiting {
            let me = &mut self.warps[warp];
            raise(&mut me.row, &row);
            me.known = joined(&me.known, &known);
            me.lanes = None;
            me.epoch = if all { next } else { me.epoch + 1 };
            me.lower();
        }
    }

    /// Returns the warp's knowledge for a release; its next access starts a new epoch.
    pub fn released(&mut self, warp: usize) -> Rc<Known> {
        let me = &mut self.warps[warp];
        let mut row = me.row.clone();
        row[warp] = me.epoch;
        me.step();
        Rc::new(me.known.with(self.block, &row))
    }

    /// A warp executes fences of proxies, which cover all that it knows, and with `all` its lanes
    /// what it did itself. Returns its epoch, which ends.
    pub fn fenced(&mut self, warp: usize, all: bool, proxies: &[Proxy]) -> u32 {
        let count = self.warps.len();
        let me = &mut self.warps[warp];
        let mut covered = me.row[..count].to_vec();
        if all {
            covered[warp] = me.epoch;
        }
        for proxy in proxies {
            let mut row = vec![0; (1 + *proxy as usize) * count];
            row.extend(&covered);
            raise(&mut me.row, &row);
        }
        if proxies.iter().any(|proxy| *proxy != Proxy::Shared) && !me.known.is_empty() {
            me.known = Rc::new(me.known.covered(count, proxies));
        }
        me.step();
        me.epoch - 1
    }

    /// Whether a warp knows of a fence of a proxy that covers an event.
    pub fn covered(&self, warp: usize, proxy: Proxy, event: &Event) -> bool {
        let clock = ((1 + proxy as usize) * self.warps.len()) as u32 + event.warp;
        match event.block == self.block {
            true => epoch_of(&self.warps[warp].row, clock) >= event.epoch,
            false => self.warps[warp].known.has(&Event { clock, ..*event }),
        }
    }

    /// Adds released knowledge to a warp's.
    pub fn acquire(&mut self, warp: usize, from: &Rc<Known>) {
        let me = &mut self.warps[warp];
        if Rc::ptr_eq(&me.known, from) {
            return;
        }
        if let Some(row) = from.row(self.block) {
            let own = me.row[warp];
            raise(&mut me.row, row);
            me.row[warp] = own;
            me.lower();
        }
        me.known = joined(&me.known, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(warp: u32, lane: u32, epoch: u32) -> Event {
        Event { block: 0, clock: warp, warp, lane, many: false, epoch, pc: 0 }
    }

    #[test]
    fn lanes_that_synchronise_know_each_other_and_no_more() {
        let mut clocks = Clocks::new(0, 1);
        let low = 0xffff;
        clocks.sync_lanes(0, low, u32::MAX);
        assert!(clocks.ordered(&event(0, 3, 1), 0, 5));
        assert!(!clocks.ordered(&event(0, 20, 1), 0, 5));
        assert!(!clocks.ordered(&event(0, 3, 1), 0, 20));
        // Lane 3's event reaches lane 20 through lane 15.
        clocks.sync_lanes(0, 1 << 15 | 1 << 20, u32::MAX);
        assert!(clocks.ordered(&event(0, 3, 1), 0, 20));
        assert!(!clocks.ordered(&event(0, 3, 2), 0, 20));
        clocks.sync_lanes(0, u32::MAX, u32::MAX);
        assert!((0..32).all(|lane| clocks.ordered(&event(0, 7, 3), 0, lane)));
    }

    #[test]
    fn a_barrier_joins_those_who_wait() {
        let mut clocks = Clocks::new(0, 3);
        // Warp 0 arrives without waiting; warp 1 waits; warp 2 is elsewhere.
        clocks.arrive(0, 1);
        clocks.arrive(1, 1);
        clocks.open(1, [1].into_iter(), false);
        assert!(clocks.ordered(&event(0, 0, 1), 1, 0));
        assert!(!clocks.ordered(&event(1, 0, 1), 0, 0));
        assert!(!clocks.ordered(&event(0, 0, 1), 2, 0));
        // Warp 0's later events are not known.
        assert!(!clocks.ordered(&event(0, 0, 2), 1, 0));
    }

    #[test]
    fn what_is_released_is_passed_on() {
        let (mut first, mut second) = (Clocks::new(0, 2), Clocks::new(1, 2));
        let known = first.released(1);
        assert!(!second.ordered(&event(1, 0, 1), 0, 0));
        second.acquire(0, &known);
        assert!(second.ordered(&event(1, 0, 1), 0, 0));
        assert!(!second.ordered(&event(1, 0, 2), 0, 0));
        assert!(!second.ordered(&event(0, 0, 1), 0, 0));
        // A barrier of the block propagates it to the other warp.
        second.arrive(0, 0);
        second.arrive(1, 0);
        second.open(0, [0, 1].into_iter(), true);
        assert!(second.ordered(&event(1, 0, 1), 1, 0));
        assert_eq!(second.warps[0].floor, second.warps[1].floor);
    }
}
