//! Sanitizer and counters. The machine calls [`Watch::before`] before each op and [`Watch::after`]
//! after those that may wait; neither affects results.
//!
//! A watched launch runs on one worker, so the shadows need no locks and findings do not depend on
//! the host.

mod bulk;
mod copies;
mod mbarriers;
mod memory;
mod registers;
mod report;
mod tensor;
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
use crate::shadow::{BlockShadow, GlobalShadow, Sync};
use crate::traits::Scope;
use crate::warp::{At, Warp};
use report::Reporter;

/// Shadow state and counters of a launch.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub on: bool,
    checks: Checks,
    /// Allocations below this number may have been written by unchecked launches.
    assumed: u64,
    global: GlobalShadow,
    sync: Sync,
    pub findings: Findings,
    pub counting: Option<Box<Counting>>,
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

    /// Called before an op. Inlined, to be compiled for the instruction-set level of the calling
    /// loop.
    #[inline(always)]
    pub fn before(&mut self, warp: &mut Warp, block: &mut BlockState, cx: &Context<'_>, at: At) {
        if let Some(counting) = &mut self.counting {
            counting.issue(cx.program, at);
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
                counting.retract(at);
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
                if cx.program.origins[at.pc as usize].traits.proxy_fence {
                    shadow.proxy.fence(&mut shadow.clocks, index, at.active);
                }
                if scope != Scope::Weak {
                    let fenced = &mut shadow.warps[index].fenced;
                    fenced.fence(&mut shadow.clocks, index, at.active, scope);
                }
            }
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
        let make = || reporter.leaked(copy.at, (copy.pc, at.pc), (index, copy.lane));
        self.findings.add((FindingKind::LeakedCopy, copy.pc, at.pc), make);
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
