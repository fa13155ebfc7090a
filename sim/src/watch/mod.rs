//! Sanitizer and counters. The machine calls [`Watch::before`] before each op and [`Watch::after`]
//! after those that may wait; neither affects results.
//!
//! Each worker of a launch has a watch of its own, so the shadows need no locks; `workers` says how
//! findings and counts come not to depend on their number.

mod bulk;
mod copies;
mod grids;
mod mbarriers;
mod memory;
mod proxies;
mod registers;
mod report;
mod scene;
mod tensor;
mod tensor_maps;
mod units;
mod warpgroups;

use crate::block_state::BlockState;
use crate::bulk::Leak;
use crate::checks::Checks;
use crate::context::Context;
use crate::counters::Counting;
use crate::finding::{FindingKind, Findings};
use crate::op::{Barrier, Kind};
use crate::registers::LANES;
use crate::shadow::{AcquiredMap, BlockShadow, GlobalShadow, LaneFences, Sync};
use crate::traits::{Proxy, Scope};
use crate::undo::Undo;
use crate::warp::{At, Warp};
use report::Reporter;
use std::collections::HashMap;
use std::sync::Arc;

/// Shadow state and counters of a launch.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub on: bool,
    checks: Checks,
    /// Allocations below this number may have been written by unchecked launches.
    assumed: u64,
    global: GlobalShadow,
    sync: Sync,
    lane_fences: LaneFences,
    /// Acquires of tensor maps in global memory, by allocation and offset.
    maps: HashMap<(u64, u64), Vec<AcquiredMap>>,
    /// Where what is overwritten is saved.
    undo: Option<Arc<Undo>>,
    /// Whether the epochs of a warp ran out, after which its accesses were not followed.
    pub lost: bool,
    pub findings: Findings,
    pub counting: Option<Box<Counting>>,
}

/// What a worker has seen of global memory, and what it counted.
pub(crate) struct Seen {
    global: GlobalShadow,
    lost: bool,
    pub counting: Option<Box<Counting>>,
}

impl Seen {
    /// Whether no worker accessed a word that another wrote.
    pub fn apart(all: &[Seen]) -> bool {
        let alone = |(at, one): (usize, &Seen)| {
            all[..at].iter().all(|other| !one.global.meets(&other.global))
        };
        all.iter().enumerate().all(alone)
    }

    /// Whether the worker may have written a word of an allocation.
    pub fn wrote(&self, allocation: usize, word: usize) -> bool {
        self.lost || self.global.wrote(allocation, word)
    }
}

impl Watch {
    /// Creates the state for the checks that a launch enables.
    pub fn new(cx: &Context<'_>) -> Watch {
        let checks = cx.launch.checks;
        let counting = cx.launch.counters.then(|| Box::new(Counting::new(cx.program)));
        Watch {
            on: checks != Checks::NONE || counting.is_some(),
            checks,
            assumed: cx.memory.assumed(),
            counting,
            findings: Findings::new(checks.left_out),
            ..Watch::default()
        }
    }

    /// A watch of one of several workers: it follows global memory whatever the checks, and saves
    /// what is overwritten.
    pub fn of_several(cx: &Context<'_>, undo: Arc<Undo>) -> Watch {
        let mut watch = Watch::new(cx);
        watch.checks.global_races = true;
        watch.undo = Some(undo);
        watch
    }

    /// What was seen, for comparison with other workers.
    pub fn seen(self) -> Seen {
        Seen { global: self.global, lost: self.lost, counting: self.counting }
    }

    /// Saves an allocation that is about to be written to.
    fn save(&self, cx: &Context<'_>, area: u64) {
        if let Some(undo) = &self.undo {
            undo.save(cx.table, area as usize);
        }
    }

    /// Called before an op. Inlined, to be compiled for the instruction-set level of the calling
    /// loop.
    #[inline(always)]
    pub fn before(&mut self, warp: &mut Warp, block: &mut BlockState, cx: &Context<'_>, at: At) {
        if let Some(counting) = &mut self.counting {
            counting.issue(cx.program, warp, at);
        }
        if at.active == 0 {
            return;
        }
        let Some(mut shadow) = block.shadow.take() else { return };
        if self.checks.uninitialised && !cx.program.tracked.uses(at.pc).is_empty() {
            self.registers(&mut shadow, warp, block, cx, at);
        }
        let has_products = cx.program.product_registers != 0 && self.checks.uninitialised;
        if has_products && !cx.program.product_uses.of(at.pc).is_empty() {
            self.product_registers(&mut shadow, warp, block, cx, at);
        }
        match cx.program.ops[at.pc as usize].kind {
            Kind::Load(_) | Kind::Store(_) | Kind::Atomic(_) => {
                self.memory(&mut shadow, warp, block, cx, at);
            }
            Kind::Unit(unit) => self.unit_before(&mut shadow, warp, block, cx, (at, unit)),
            Kind::Exit => {
                self.leaves(&shadow, warp, block, cx, at);
                self.products_left(&mut shadow, warp, block, cx, at);
            }
            _ => {}
        }
        block.shadow = Some(shadow);
    }

    /// Called after an op that is neither lane-wise nor a branch. An op that waits had no effect
    /// and runs again.
    pub fn after(
        &mut self,
        warp: &Warp,
        block: &mut BlockState,
        cx: &Context<'_>,
        at: At,
        waits: bool,
    ) {
        if waits {
            if let Some(counting) = &mut self.counting {
                counting.retract(warp, at);
            }
            return;
        }
        let Some(mut shadow) = block.shadow.take() else { return };
        let index = warp.index as usize;
        match cx.program.ops[at.pc as usize].kind {
            Kind::Fence if self.checks.races() => {
                let scope = cx.program.origins[at.pc as usize].traits.order.scope;
                if cx.program.origins[at.pc as usize].traits.mbarrier_fence {
                    Watch::barriers_fenced(&mut shadow, warp, at.active);
                }
                let fences = cx.program.origins[at.pc as usize].traits.proxies;
                let proxies = Proxy::ALL.into_iter().filter(|proxy| fences[*proxy as usize]);
                let proxies: Vec<Proxy> = proxies.collect();
                if !proxies.is_empty() {
                    let lanes = (at.active, warp.live);
                    self.lane_fences.fence(&mut shadow.clocks, index, lanes, &proxies);
                }
                if scope != Scope::Weak {
                    let fenced = &mut shadow.warps[index].fenced;
                    fenced.fence(&mut shadow.clocks, index, at.active, scope);
                }
            }
            Kind::GridWait => shadow.grid_wait(index, at.active, at.pc),
            Kind::Barrier(barrier) => self.barrier(&mut shadow, warp, block, cx, (at, barrier)),
            Kind::Unit(unit) => self.unit_after(&mut shadow, warp, block, cx, (at, unit)),
            // Lanes that wait for each other have synchronised.
            Kind::Shuffle(_)
            | Kind::Vote(_)
            | Kind::MatchWord { .. }
            | Kind::MatchWide { .. }
            | Kind::Reduce { .. }
            | Kind::ReduceFloat { .. }
            | Kind::WarpSync => shadow.clocks.sync_lanes(index, at.active, warp.live),
            _ => {}
        }
        block.shadow = Some(shadow);
    }

    /// Checks exiting lanes for copies that were not waited for.
    fn leaves(
        &mut self,
        shadow: &BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let index = warp.index as usize;
        let Some(copy) = shadow.copy_leaked(index, at.active).filter(|_| self.checks.shared_races)
        else {
            return;
        };
        let reporter = Reporter::new(cx, block);
        let make = || {
            reporter.leaked(copy.lanes.offsets[copy.lane()], (copy.pc, at.pc), (index, copy.lane()))
        };
        self.findings.add((FindingKind::LeakedCopy, copy.pc, at.pc), make);
    }

    /// Forgets what was done to memory before it became blocks of the heap: who freed it, and who
    /// is given it, are ordered.
    fn allocated(&mut self, cx: &Context<'_>, blocks: impl Iterator<Item = (u64, u64)>) {
        let Some((area, (of, _))) = cx.heap.zip(cx.heap()) else { return };
        for (address, bytes) in blocks.filter(|(address, _)| *address != 0) {
            let first = (address - of.base) / 4;
            self.global.forget(area, first as usize..(first + bytes.div_ceil(4)) as usize);
        }
    }

    /// Reports bulk copies that were under way when their block exited.
    pub fn bulk_leaked(&mut self, block: &BlockState, cx: &Context<'_>, leaks: &[Leak]) {
        for &Leak { thread, pc, at } in leaks.iter().filter(|_| self.checks.shared_races) {
            let reporter = Reporter::new(cx, block);
            let who = (thread as usize / LANES, thread as usize % LANES);
            let make = || reporter.bulk_leaked(at, pc, who);
            self.findings.add((FindingKind::LeakedCopy, pc, pc), make);
        }
    }

    /// Reports threads of a block that wait for each other: warp, lane and op of each.
    pub fn divergent(
        &mut self,
        block: &BlockState,
        cx: &Context<'_>,
        waiting: &[(usize, usize, u32)],
    ) {
        if let (true, [(_, _, first), .., (_, _, last)]) = (self.checks.barriers, waiting) {
            let reporter = Reporter::new(cx, block);
            let make = || reporter.divergent(waiting);
            self.findings.add((FindingKind::DivergentBarrier, *first, *last), make);
        }
    }

    fn barrier(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, _): (At, Barrier),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        let lane = at.active.trailing_zeros() as usize;
        let id = warp.registers.word(&cx.program.constants, op.a)[lane] as usize;
        let threads = warp.registers.word(&cx.program.constants, op.b)[lane];
        let index = warp.index as usize;
        shadow.clocks.arrive(index, id);
        let first = *shadow.arrivals[id].get_or_insert((threads, index, lane, at.pc));
        if self.checks.barriers && first.0 != threads {
            let reporter = Reporter::new(cx, block);
            let make = || reporter.mismatch(id, first, (threads, index, lane, at.pc));
            self.findings.add((FindingKind::BarrierMismatch, first.3, at.pc), make);
        }
    }
}
