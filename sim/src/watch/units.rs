//! Checks of units: matrix operations, asynchronous copies, mbarriers.

use super::Watch;
use super::copies::{Moved, copied};
use super::mbarriers::Lane;
use super::memory::{Scene, shared_area};
use crate::access::Window;
use crate::aim::{Attempt, Place, addresses, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::descriptor::product_pieces;
use crate::mbarrier::{BarrierAddress, Mbarrier};
use crate::memory::WINDOW_BYTES;
use crate::registers::{LANES, Slot};
use crate::shadow::{Actor, BlockShadow, Ending, Group, Issue, Lanes, SHARED, Touch, pieces};
use crate::traits::{Order, Scope};
use crate::unit::{BarrierAction, MemoryBarrier, TensorOp, Unit, WarpgroupMultiply};
use crate::warp::{At, Warp};

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
                for (lane, barrier) in barriers(warp, block, cx, slots[1], at.active) {
                    self.barrier_used(shadow, Lane { warp, block, cx, at, lane }, barrier, false);
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
            _ => return,
        };
        let mut offsets = [0; LANES];
        for lane in (0..LANES).filter(|lane| active >> lane & 1 != 0) {
            let attempt = Attempt { verb: "", bytes };
            let address = addresses[lane];
            match resolve(warp, block, cx, window, lane, address, attempt) {
                Ok(Place::Shared(offset)) if offset.is_multiple_of(bytes) => offsets[lane] = offset,
                // The op is about to fail.
                _ => return,
            }
        }
        if active == 0 {
            return;
        }
        let lanes = Lanes::apart(offsets, active, bytes as u32);
        let order = Order::default();
        match unit {
            Unit::Copy(_) => {
                let moved = copied(warp, block, cx, at, &lanes);
                let scene = Scene { warp, block, cx, at, touch, order, element: bytes as u32 };
                let sources: Vec<_> = moved.iter().map(|part| (part.lane, part.from)).collect();
                let reading = Scene { touch: Touch::Read, ..scene };
                self.copy_reads(shadow, &reading, sources.iter().copied());
                let (rank, group, number) = (shadow.rank, Group::Open, 0);
                let unset = self.unset(cx, &moved, |at| at);
                let issue = Issue { rank, target: &lanes, group, number, unset, sources };
                self.issued(shadow, &scene, &issue);
                self.count_copy(at.pc, &lanes, &moved);
            }
            _ => {
                let scene = Scene { warp, block, cx, at, touch, order, element: bytes as u32 };
                self.look(shadow, &scene, Some(SHARED), &lanes);
            }
        }
    }

    /// Counts a copy as a store to shared memory and a load of the bytes that are not zero-filled.
    fn count_copy(&mut self, pc: u32, to: &Lanes, moved: &[Moved]) {
        let Some(counting) = &mut self.counting else { return };
        counting.shared((pc, SHARED, to), true);
        // For each allocation, the lanes that copy from it and the bytes they request.
        let mut parts: Vec<(u64, Lanes, u64)> = Vec::new();
        for Moved { lane, from, .. } in moved {
            let part = parts.iter().position(|part| part.0 == from.area).unwrap_or_else(|| {
                parts.push((from.area, Lanes { offsets: [0; LANES], active: 0, ..*to }, 0));
                parts.len() - 1
            });
            let (_, lanes, asked) = &mut parts[part];
            lanes.offsets[*lane] = from.at;
            lanes.active |= 1 << lane;
            *asked += from.bytes;
        }
        for (area, from, asked) in &parts {
            counting.copied((pc, *area, from), *asked);
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
        let starts = match at.active {
            u32::MAX => product_pieces(warp, block, cx, op, product),
            _ => None,
        };
        // Otherwise it waits for its lanes or is about to fail.
        let Some(starts) = starts else { return };
        self.product_issued(shadow, warp, block, cx, (at, product));
        let (touch, order) = (Touch::Read, Order::default());
        let scene = Scene { warp, block, cx, at, touch, order, element: 16 };
        for lanes in pieces(&starts) {
            self.check(shadow, &scene, SHARED, &lanes);
            if self.checks.shared_races {
                lanes.each().for_each(|lane| self.proxies(shadow, &scene, &lanes, lane));
            }
        }
        if self.checks.shared_races {
            let by = Actor::weak(warp.index as usize, at.pc);
            let ranges = starts.into_iter().map(|start| start..start + 16);
            shadow.read_begun(by, 0, ranges.collect(), Ending::Product(None));
        }
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
            Unit::CopyCommit => shadow.copy_committed(index, active),
            Unit::CopyWait | Unit::CopyWaitAll => {
                let left = if unit == Unit::CopyWait { op.imm as u32 } else { 0 };
                if unit == Unit::CopyWaitAll {
                    shadow.copy_committed(index, active);
                }
                for copy in shadow.copy_waited(index, active, left) {
                    let (at, touch) = (At { pc: copy.pc, ..at }, Touch::Read);
                    let order = Order::default();
                    let scene = Scene { warp, block, cx, at, touch, order, element: copy.bytes };
                    let source = copy.source.map(|range| (copy.lane, range));
                    self.copy_reads(shadow, &scene, source.into_iter());
                }
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
                    for (lane, barrier) in barriers(warp, block, cx, slots[1], active & over) {
                        let by = (index, lane as u32, at.pc);
                        shadow.phase_waited(by, barrier, odd(lane), acquires);
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
