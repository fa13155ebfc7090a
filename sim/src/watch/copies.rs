//! Checks of what asynchronous copies access in global memory.
//!
//! A copy from global memory reads when it is issued and, where its thread waits for it, again
//! then. What nobody wrote stays unwritten where it is copied to. A bulk store is ordered before
//! nobody until its thread waits for its group.

use super::Watch;
use super::memory::Scene;
use crate::access::Window;
use crate::aim::{Attempt, Place, resolve};
use crate::block_state::BlockState;
use crate::bulk::{Bulk, Completion, End};
use crate::context::Context;
use crate::registers::LANES;
use crate::shadow::{
    Actor, BlockShadow, Clock, GlobalRange, Lanes, OpenStore, PENDING, Touch, whole,
};
use crate::traits::{Order, Scope};
use crate::warp::{At, Warp};
use std::rc::Rc;

/// Bytes of a copy: where they are in global memory, and where they go in shared memory.
pub(super) struct Moved {
    pub lane: usize,
    pub from: GlobalRange,
    pub to: u64,
}

/// What the lanes of a `cp.async` read, up to where the rest is zeros; nothing if one of them is
/// about to fail.
pub(super) fn copied(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    at: At,
    to: &Lanes,
) -> Vec<Moved> {
    let slots = &cx.program.lists[cx.program.ops[at.pc as usize].list as usize..];
    let (constants, registers) = (&cx.program.constants, &warp.registers);
    let addresses = *registers.wide(constants, slots[1]);
    let sizes = *registers.word(constants, slots[2]);
    let ignored = registers.predicate(slots[3]);
    let mut out = Vec::new();
    for lane in to.each().filter(|&lane| ignored >> lane & 1 == 0 && sizes[lane] > 0) {
        // Larger sizes are rejected when the copy is issued.
        let bytes = u64::from(sizes[lane].min(to.bytes));
        let attempt = Attempt { verb: "", bytes };
        let place = resolve(warp, block, cx, Window::Global, lane, addresses[lane], attempt);
        let Ok(Place::Global(_, offset)) = place else { return Vec::new() };
        let from = GlobalRange { area: warp.last_hit as u64, at: offset, bytes };
        out.push(Moved { lane, from, to: to.offsets[lane] });
    }
    out
}

/// Ranges of global memory that one end of a bulk copy accesses, and where they begin in the copy.
pub(super) fn global_parts(cx: &Context<'_>, end: &End, bytes: u64) -> Vec<(GlobalRange, u64)> {
    let place = |(address, bytes, to): (u64, u64, u64)| {
        let index = cx.table.find(address, bytes)?;
        let at = address - cx.table.get(index)?.base;
        Some((GlobalRange { area: index as u64, at, bytes }, to))
    };
    match end {
        End::Global(address) => place((*address, bytes, 0)).into_iter().collect(),
        End::Tile(tile) => {
            let rows = tile.rows().filter(|row| row.inside != 0);
            rows.filter_map(|row| place((row.address, row.inside, row.at + row.before))).collect()
        }
        End::Shared(..) | End::Bytes(_) => Vec::new(),
    }
}

impl Watch {
    /// Bytes of shared memory to which unwritten ones are moved; `place` is where a byte goes.
    pub(super) fn unset(
        &self,
        cx: &Context<'_>,
        moved: &[Moved],
        place: impl Fn(u64) -> u64,
    ) -> Rc<[u64]> {
        let mut out = Vec::new();
        for Moved { from, to, .. } in moved.iter().filter(|_| self.checks.uninitialised) {
            let Some(allocation) = cx.table.get(from.area as usize) else { continue };
            let written = &allocation.written;
            if written.number < self.assumed || written.all(from.at, from.bytes) {
                continue;
            }
            let missing = (0..from.bytes).filter(|byte| !written.all(from.at + byte, 1));
            out.extend(missing.map(|byte| place(to + byte)));
        }
        out.into()
    }

    /// Records reads of global memory by the thread that issues a copy, or waits for it.
    pub(super) fn copy_reads(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        reads: impl Iterator<Item = (usize, GlobalRange)>,
    ) {
        let warp = scene.warp.index as usize;
        if !self.checks.global_races || shadow.clocks.spent(warp) {
            return;
        }
        let by = Actor::weak(warp, scene.at.pc);
        for (lane, GlobalRange { area, at, bytes }) in reads {
            for lanes in whole(lane, at, bytes) {
                self.global_races(shadow, scene, (by, Scope::Weak), (area, &lanes));
            }
        }
    }

    /// Records what a newly issued bulk copy stores to global memory.
    pub(super) fn bulk_stores(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        bulk: &Bulk,
        ranges: Vec<GlobalRange>,
    ) {
        let Completion::Group(group) = bulk.completion else { return };
        let (lane, pc) = (bulk.thread as usize % LANES, bulk.pc);
        let scope = if bulk.reduce.is_some() { Scope::Device } else { Scope::Weak };
        let store = OpenStore { lane, pc, group, scope, ranges };
        self.store_recorded(shadow, scene, &store, Some(Clock { clock: PENDING, epoch: 1 }));
        shadow.warps[scene.warp.index as usize].copies.stores.push(store);
    }

    fn store_recorded(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        store: &OpenStore,
        apart: Option<Clock>,
    ) {
        let warp = scene.warp.index as usize;
        if !self.checks.global_races || shadow.clocks.spent(warp) {
            return;
        }
        let strong = store.scope != Scope::Weak;
        let by = Actor { strong, apart, ..Actor::weak(warp, store.pc) };
        for &GlobalRange { area, at, bytes } in &store.ranges {
            for lanes in whole(store.lane, at, bytes) {
                self.global_races(shadow, scene, (by, store.scope), (area, &lanes));
            }
        }
    }

    /// The copies and bulk stores of lanes are complete for those who are ordered after the wait.
    pub(super) fn stores_waited(
        &mut self,
        shadow: &mut BlockShadow,
        (warp, block, cx, at): (&Warp, &BlockState, &Context<'_>, At),
        stores: &[OpenStore],
    ) {
        for store in stores {
            let at = At { pc: store.pc, ..at };
            let (touch, order) = (Touch::Write, Order::default());
            let scene = Scene { warp, block, cx, at, touch, order, element: 16 };
            self.store_recorded(shadow, &scene, store, None);
        }
    }
}
