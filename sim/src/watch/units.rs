//! Checks of units: matrix operations, asynchronous copies, mbarriers.

use super::Watch;
use super::copies::copied;
use super::mbarriers::Lane;
use super::memory::shared_area;
use super::proxies::of_async_proxy;
use super::scene::Scene;
use crate::access::Window;
use crate::aim::{Aim, Attempt, Place, Span, addresses};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::descriptor::product_operands;
use crate::mbarrier::{BarrierAddress, Mbarrier};
use crate::memory::WINDOW_BYTES;
use crate::registers::{LANES, Slot};
use crate::shadow::{
    Actor, BlockShadow, Chunks, Ending, Event, Group, Issue, Lanes, SHARED, Source, Touch, pieces,
};
use crate::tensor_memory::Allocation;
use crate::traits::{Order, Proxy, Scope};
use crate::unit::{BarrierAction, MemoryBarrier, TensorOp, Unit, WarpgroupMultiply};
use crate::warp::{At, Warp};
use std::rc::Rc;

/// Mbarriers that lanes refer to, by rank and offset.
pub(super) fn barriers<'a>(
    warp: &'a Warp,
    block: &'a BlockState,
    cx: &'a Context<'_>,
    slot: Slot,
    lanes: u32,
) -> impl Iterator<Item = (usize, BarrierAddress)> + 'a {
    let lanes = (0..LANES).filter(move |lane| lanes >> lane & 1 != 0);
    lanes.map(move |lane| {
        let address = warp.registers.wide(&cx.program.constants, slot)[lane];
        let (rank, at) = block.peers.locate(address % WINDOW_BYTES);
        (lane, (rank as usize, at))
    })
}

/// Phase parity that a lane waits for: an operand, or that of an arrival's state.
fn waited_parity<'a>(
    warp: &'a Warp,
    cx: &'a Context<'_>,
    action: BarrierAction,
    slot: Slot,
) -> impl Fn(usize) -> bool + 'a {
    let constants = &cx.program.constants;
    move |lane| match action {
        BarrierAction::TestParity => warp.registers.word(constants, slot)[lane] & 1 != 0,
        _ => {
            let state = Mbarrier::decode(warp.registers.wide(constants, slot)[lane]);
            state.is_ok_and(|state| state.odd)
        }
    }
}

impl Watch {
    /// Called before an op of a unit.
    pub(super) fn unit_before(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, unit): (At, Unit),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        let slots = &cx.program.lists[op.list as usize..];
        let (touch, window, addresses, active, bytes) = match unit {
            Unit::LoadMatrix(moved) | Unit::StoreMatrix(moved) => {
                let load = matches!(unit, Unit::LoadMatrix(_));
                let slot = slots[if load { usize::from(moved.count) } else { 0 }];
                let rows = u32::MAX >> (32 - 8 * u32::from(moved.count));
                let active = if at.active == u32::MAX { rows } else { 0 };
                let addresses = addresses(warp, cx, slot, moved.wide_address, op.imm);
                let touch = if load { Touch::Read } else { Touch::Write };
                (touch, moved.window, addresses, active, 16)
            }
            Unit::Barrier(MemoryBarrier { action: BarrierAction::Arrive { .. }, .. }) => {
                // Before the op, since it may complete the phase.
                let order = cx.program.origins[at.pc as usize].traits.order;
                let releases = order.releases || order.scope == Scope::Weak;
                let mut last = None;
                for (lane, barrier) in barriers(warp, block, cx, slots[1], at.active) {
                    self.barrier_used(shadow, Lane { warp, block, cx, at, lane }, barrier, false);
                    // A release of one lane is one of its warp.
                    if releases && last.replace(barrier) == Some(barrier) {
                        continue;
                    }
                    let by = (warp.index as usize, lane as u32, at.pc);
                    shadow.phase_arrived(by, barrier, block.parity(barrier), releases);
                }
                return;
            }
            Unit::Copy(bytes) => {
                let addresses = *warp.registers.wide(&cx.program.constants, slots[0]);
                (Touch::Write, Window::Shared, addresses, at.active, bytes.into())
            }
            Unit::WarpgroupMultiply(product) => {
                return self.product(shadow, warp, block, cx, (at, product));
            }
            Unit::Tensor(TensorOp::Allocate { window }) => {
                let addresses = *warp.registers.wide(&cx.program.constants, slots[0]);
                let active = u32::from(at.active == u32::MAX);
                (Touch::Write, window, addresses, active, 4)
            }
            Unit::Tensor(op) => return self.tensor_before(shadow, warp, block, cx, (at, op)),
            Unit::ReplaceMap { .. } | Unit::CopyMap => {
                return self.map_written(shadow, warp, block, cx, (at, unit));
            }
            Unit::AcquireMap => return self.map_acquired(shadow, warp, cx, at),
            _ => return,
        };
        if active == 0 {
            return;
        }
        let aim = Aim { window, addresses, active, attempt: Attempt { verb: "", bytes } };
        if aim.check_alignment(bytes).is_err() {
            return;
        }
        // Otherwise the op is about to fail.
        let Some(Span { place: Place::Shared(_), pattern }) = aim.span(warp, block, cx) else {
            return;
        };
        let lanes = Lanes::new(&pattern, active, bytes as u32);
        let order = Order::default();
        match unit {
            Unit::Copy(_) => {
                let sources: Rc<[Source]> = copied(warp, block, cx, at, &lanes).into();
                let scene = Scene { warp, block, cx, at, touch, order, element: bytes as u32 };
                let reading = Scene { touch: Touch::Read, ..scene };
                let parts = |source: &Source| (source.area, source.parts(u32::MAX));
                self.copy_reads(shadow, &reading, sources.iter().map(parts));
                let (rank, group, number) = (shadow.rank, Group::Open, 0);
                let unset = self.unset_by_lanes(cx, &sources, &lanes);
                if let Some(counting) = &mut self.counting {
                    counting.shared((at.pc, SHARED, &lanes), true);
                    for source in sources.iter() {
                        let from = (at.pc, source.area, &source.lanes);
                        counting.copied(from, source.bytes());
                    }
                }
                let issue = Issue { rank, target: &lanes, group, number, unset, sources };
                self.issued(shadow, &scene, &issue);
            }
            _ => {
                let scene = Scene { warp, block, cx, at, touch, order, element: bytes as u32 };
                self.look(shadow, &scene, Some(SHARED), &lanes);
            }
        }
    }

    /// A wgmma starts reading its operands in shared memory.
    fn product(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, product): (At, WarpgroupMultiply),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        let operands = match at.active {
            u32::MAX => product_operands(warp, block, cx, op, product),
            _ => None,
        };
        // Otherwise it waits for its lanes or is about to fail.
        let Some(operands) = operands else { return };
        self.product_issued(shadow, warp, block, cx, (at, product));
        let chunks: Vec<Rc<Chunks>> =
            operands.iter().map(|operand| shadow.chunks.of(operand)).collect();
        let (touch, order) = (Touch::Read, Order::default());
        let scene = Scene { warp, block, cx, at, touch, order, element: 16 };
        let by = Actor::weak(warp.index as usize, at.pc);
        let settled = self.settled_product(shadow, cx, &chunks, by.warp);
        for chunks in chunks.iter().filter(|_| !settled) {
            for lanes in pieces(&chunks.starts) {
                self.check(shadow, &scene, SHARED, &lanes);
                if self.checks.shared_races {
                    lanes.each().for_each(|lane| self.shared_proxy(shadow, &scene, &lanes, lane));
                }
            }
        }
        if self.checks.shared_races {
            for range in chunks.iter().filter(|_| settled).flat_map(|chunks| &*chunks.ranges) {
                let words = range.start as usize / 4..range.end as usize / 4;
                shadow.shared.reread(&shadow.clocks, words, by, 0);
            }
            let ranges = chunks.iter().map(|chunks| chunks.ranges.clone()).collect();
            shadow.read_begun(by, 0, ranges, Ending::Product(None));
        }
    }

    /// Whether a wgmma certainly reads its operands correctly.
    fn settled_product(
        &self,
        shadow: &mut BlockShadow,
        cx: &Context<'_>,
        chunks: &[Rc<Chunks>],
        warp: usize,
    ) -> bool {
        if !self.checks.shared_races || shadow.blocks != 1 || shadow.clocks.spent(warp) {
            return false;
        }
        let BlockShadow { shared, clocks, .. } = shadow;
        let visible = |writer: &Event| {
            of_async_proxy(cx, writer.pc)
                || self.lane_fences.cover_all(clocks, warp, Proxy::Shared, writer)
        };
        chunks.iter().all(|chunks| shared.visible(clocks, &chunks.starts, warp, visible))
    }

    /// Copies to shared memory are issued.
    pub(super) fn issued(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        issue: &Issue<'_>,
    ) {
        let by = Actor::weak(scene.warp.index as usize, scene.at.pc);
        let mut conflicts = Vec::new();
        shadow.copy_issued(by, issue, &mut conflicts);
        if self.checks.shared_races {
            let area = shared_area(shadow, issue.rank);
            self.conflicts(shadow, scene, area, issue.target, conflicts);
        }
    }

    /// Called after an op of a unit.
    pub(super) fn unit_after(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, unit): (At, Unit),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        let slots = &cx.program.lists[op.list as usize..];
        let (index, active) = (warp.index as usize, at.active);
        let lanes = (0..LANES).filter(|lane| active >> lane & 1 != 0);
        match unit {
            Unit::Tensor(TensorOp::Allocate { .. }) => {
                if let Some(&Allocation { first, count, .. }) = block.tensor.allocations.last() {
                    Watch::tensor_allocated(shadow, first, count);
                }
            }
            Unit::CopyCommit => shadow.copy_committed(index, active),
            Unit::CopyWait | Unit::CopyWaitAll => {
                let left = if unit == Unit::CopyWait { op.imm as u32 } else { 0 };
                if unit == Unit::CopyWaitAll {
                    shadow.copy_committed(index, active);
                }
                for copy in shadow.copy_waited(index, active, left) {
                    let (at, touch) = (At { pc: copy.pc, ..at }, Touch::Read);
                    let order = Order::default();
                    let element = copy.lanes.bytes;
                    let scene = Scene { warp, block, cx, at, touch, order, element };
                    let active = copy.lanes.active;
                    let parts = |source: &Source| (source.area, source.parts(active));
                    self.copy_reads(shadow, &scene, copy.sources.iter().map(parts));
                }
            }
            Unit::Allocate => {
                let wide = |slot| warp.registers.wide(&cx.program.constants, slot);
                let (blocks, sizes) = (wide(slots[0]), wide(slots[1]));
                self.allocated(cx, lanes.map(|lane| (blocks[lane], sizes[lane])));
            }
            Unit::CopyArrive { .. } => {
                shadow.copies_handed(index, barriers(warp, block, cx, slots[0], active));
            }
            Unit::Barrier(barrier) => match barrier.action {
                BarrierAction::TestState | BarrierAction::TestParity => {
                    let over = warp.registers.predicate(slots[0]);
                    let odd = waited_parity(warp, cx, barrier.action, slots[2]);
                    let order = cx.program.origins[at.pc as usize].traits.order;
                    let acquires = order.acquires || order.scope == Scope::Weak;
                    for (lane, barrier) in barriers(warp, block, cx, slots[1], active) {
                        let by = Lane { warp, block, cx, at, lane };
                        self.barrier_used(shadow, by, barrier, false);
                    }
                    let mut last = None;
                    for (lane, barrier) in barriers(warp, block, cx, slots[1], active & over) {
                        let (by, phase) = ((index, lane as u32, at.pc), (barrier, odd(lane)));
                        // What one lane acquires its warp has.
                        if last.replace(phase) != Some(phase) {
                            shadow.phase_waited(by, barrier, phase.1, acquires);
                        }
                    }
                    // Clocks are per warp: lanes that observed the end of a phase count as
                    // synchronised, which hides missing synchronisation among them.
                    shadow.clocks.sync_lanes(index, active & over, warp.live);
                }
                BarrierAction::Initialise => {
                    for (lane, barrier) in barriers(warp, block, cx, slots[0], active) {
                        Watch::initialised(shadow, Lane { warp, block, cx, at, lane }, barrier);
                    }
                }
                _ => {}
            },
            Unit::Bulk(_) | Unit::StoreAsync(_) => self.bulk_issued(shadow, warp, block, cx, at),
            Unit::WarpgroupFence => Watch::product_ordered(shadow, warp, unit, 0),
            Unit::WarpgroupCommit => {
                Watch::product_ordered(shadow, warp, unit, 0);
                shadow.products_committed(index);
            }
            Unit::WarpgroupWait => {
                Watch::product_ordered(shadow, warp, unit, op.imm as u32);
                shadow.products_waited(index, op.imm as u32);
                shadow.clocks.sync_lanes(index, active, warp.live);
                Watch::products_done(shadow, warp, cx);
            }
            Unit::BulkWait { reads } => {
                for lane in lanes {
                    let thread = (index * LANES + lane) as u32;
                    let committed = block.queue.groups.get(&thread).copied().unwrap_or_default();
                    let left = op.imm as u32;
                    shadow.bulk_waited(index, lane as u32, committed, left);
                    if !reads {
                        let stores = shadow.stores_waited(index, lane, committed, left);
                        self.stores_waited(shadow, (warp, block, cx, at), &stores);
                    }
                }
            }
            Unit::ClusterArrive { releases, .. } => {
                shadow.cluster_arrived(index, active, releases);
            }
            // Lanes that have yet to wait continue when the barrier is released.
            Unit::ClusterWait { .. } if warp.cluster_arrived & active == 0 => {
                shadow.cluster_waited(index, active, warp.live);
            }
            _ => {}
        }
    }
}
