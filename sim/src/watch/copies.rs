//! Checks of what asynchronous copies access in global memory.
//!
//! A copy from global memory reads when it is issued and, where its thread waits for it, again
//! then. What nobody wrote stays unwritten where it is copied to. A bulk store is ordered before
//! nobody until its thread waits for its group.

use super::Watch;
use super::scene::Scene;
use crate::access::Window;
use crate::aim::{Aim, Attempt, Place, Span, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::bulk::{Bulk, Completion, End};
use crate::context::Context;
use crate::registers::LANES;
use crate::shadow::{
    Actor, BlockShadow, Clock, GlobalRange, Lanes, OpenStore, PENDING, Source, Touch, whole,
};
use crate::traits::{Order, Scope};
use crate::warp::{At, Warp};
use std::rc::Rc;

/// What the lanes of a `cp.async` read, up to where the rest is zeros; nothing if one of them is
/// about to fail.
pub(super) fn copied(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    at: At,
    to: &Lanes,
) -> Vec<Source> {
    let slots = &cx.program.lists[cx.program.ops[at.pc as usize].list as usize..];
    let (constants, registers) = (&cx.program.constants, &warp.registers);
    let addresses = *registers.wide(constants, slots[1]);
    let sizes = *registers.word(constants, slots[2]);
    let ignored = registers.predicate(slots[3]);
    // Larger sizes are rejected when the copy is issued.
    let kept: [u8; LANES] = std::array::from_fn(|lane| sizes[lane].min(to.bytes) as u8);
    let reading = to.each().filter(|&lane| ignored >> lane & 1 == 0 && kept[lane] > 0);
    let active = reading.fold(0, |mask, lane| mask | 1_u32 << lane);
    if active == 0 {
        return Vec::new();
    }
    let attempt = Attempt { verb: "", bytes: to.bytes.into() };
    let aim = Aim { window: Window::Global, addresses, active, attempt };
    if let Some(Span { place: Place::Global(..), pattern }) = aim.span(warp, block, cx) {
        let lanes = Lanes::new(&pattern, active, to.bytes);
        return vec![Source { area: warp.last_hit as u64, lanes, kept }];
    }
    let mut out: Vec<Source> = Vec::new();
    for lane in lanes_of(active) {
        let attempt = Attempt { verb: "", bytes: kept[lane].into() };
        let place = resolve(warp, block, cx, Window::Global, lane, addresses[lane], attempt);
        let Ok(Place::Global(_, offset)) = place else { return Vec::new() };
        let area = warp.last_hit as u64;
        let index = out.iter().position(|source| source.area == area).unwrap_or_else(|| {
            let lanes = Lanes::apart([0; LANES], 0, to.bytes);
            out.push(Source { area, lanes, kept });
            out.len() - 1
        });
        out[index].lanes.offsets[lane] = offset;
        out[index].lanes.active |= 1 << lane;
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
    /// Bytes of shared memory to which ones that nobody wrote are copied; `ranges` says where those
    /// of global memory go, and `place` where a byte is.
    pub(super) fn unset(
        &self,
        cx: &Context<'_>,
        ranges: &[(GlobalRange, u64)],
        place: impl Fn(u64) -> u64,
    ) -> Rc<[u64]> {
        let mut out = Vec::new();
        for (from, to) in ranges.iter().filter(|_| self.checks.uninitialised) {
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

    /// The same for a `cp.async`.
    pub(super) fn unset_by_lanes(
        &self,
        cx: &Context<'_>,
        sources: &[Source],
        to: &Lanes,
    ) -> Rc<[u64]> {
        let mut ranges = Vec::new();
        for Source { area, lanes, kept } in sources.iter().filter(|_| self.checks.uninitialised) {
            if self.unwritten_global(cx, *area, lanes) == 0 {
                continue;
            }
            ranges.extend(lanes.each().map(|lane| {
                let (at, bytes) = (lanes.offsets[lane], kept[lane].into());
                (GlobalRange { area: *area, at, bytes }, to.offsets[lane])
            }));
        }
        self.unset(cx, &ranges, |at| at)
    }

    /// Records reads of global memory by the thread that issues a copy, or waits for it.
    pub(super) fn copy_reads(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        reads: impl Iterator<Item = (u64, Vec<Lanes>)>,
    ) {
        let warp = scene.warp.index as usize;
        if !self.checks.global_races || shadow.clocks.spent(warp) {
            return;
        }
        let by = Actor::weak(warp, scene.at.pc);
        for (area, parts) in reads {
            for lanes in parts {
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
        store.ranges.iter().for_each(|range| self.save(scene.cx, range.area));
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
