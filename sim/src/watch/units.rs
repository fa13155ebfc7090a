//! What the units do to shared memory: matrices, copies that land later, barriers in memory.

use super::asynchronous::Group;
use super::lanes::Lanes;
use super::memory::{SHARED, Scene, shared_area};
use super::open::{Ending, pieces};
use super::shadow::BlockShadow;
use super::shared::Actor;
use super::sync::Touch;
use super::traits::{Order, Scope};
use super::{At, Watch};
use crate::block::BlockState;
use crate::bulk::{Completion, End};
use crate::execute::{Attempt, Place, addresses, product_pieces, resolve};
use crate::launch::Context;
use crate::memory::WINDOW_BYTES;
use crate::op::Window;
use crate::registers::{LANES, Slot};
use crate::unit::{BarrierAction, Unit, WarpgroupMultiply};
use crate::warp::Warp;

/// One lane's bytes.
fn one(lane: usize, at: u64, bytes: u64) -> Lanes {
    let (offsets, active) = ([at; LANES], 1 << lane);
    Lanes { offsets, active, bytes: bytes as u32, run: false, uniform: false }
}

impl Watch {
    /// Before an op of a unit runs.
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
            Unit::Copy(bytes) => {
                let addresses = *warp.registers.wide(&cx.program.constants, slots[0]);
                (Touch::Write, Window::Shared, addresses, at.active, bytes.into())
            }
            Unit::WarpgroupMultiply(product) => {
                return self.product(shadow, warp, block, cx, (at, product));
            }
            _ => return,
        };
        let mut offsets = [0; LANES];
        for lane in (0..LANES).filter(|lane| active >> lane & 1 != 0) {
            let attempt = Attempt { verb: "", bytes };
            let address = addresses[lane];
            match resolve(warp, block, cx, window, lane, address, attempt) {
                Ok(Place::Shared(offset)) if offset.is_multiple_of(bytes) => offsets[lane] = offset,
                // It is about to fail.
                _ => return,
            }
        }
        if active == 0 {
            return;
        }
        let lanes = Lanes { offsets, active, bytes: bytes as u32, run: false, uniform: false };
        let order = Order::default();
        let scene = Scene { warp, block, cx, at, touch, order, element: bytes as u32 };
        match unit {
            Unit::Copy(_) => self.issued(shadow, &scene, (shadow.rank, &lanes), Group::Open),
            _ => self.look(shadow, &scene, Some(SHARED), &lanes),
        }
    }

    /// A product begins to read its operands in shared memory.
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
        // Without, it waits for its lanes or is about to fail.
        let Some(starts) = starts else { return };
        let (touch, order) = (Touch::Read, Order::default());
        let scene = Scene { warp, block, cx, at, touch, order, element: 16 };
        for lanes in pieces(&starts) {
            self.order(shadow, &scene, SHARED, &lanes);
        }
        if self.checks.shared_races {
            let by = Actor { warp: warp.index as usize, pc: at.pc, strong: false };
            shadow.read_begun(by, 0, starts, Ending::Product(None));
        }
    }

    /// A copy to the shared memory of a rank was issued.
    fn issued(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        (rank, lanes): (usize, &Lanes),
        group: Group,
    ) {
        let by = Actor { warp: scene.warp.index as usize, pc: scene.at.pc, strong: false };
        let mut conflicts = Vec::new();
        shadow.copy_issued(by, (rank, lanes), group, &mut conflicts);
        if self.checks.shared_races {
            let area = shared_area(shadow, rank);
            self.conflicts(shadow, scene, area, lanes, conflicts);
            self.overwritten(shadow, scene, (rank, area), lanes);
        }
    }

    /// After an op of a unit ran.
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
            Unit::CopyWait => shadow.copy_waited(index, active, op.imm as u32),
            Unit::CopyWaitAll => {
                shadow.copy_committed(index, active);
                shadow.copy_waited(index, active, 0);
            }
            Unit::CopyArrive { .. } => {
                // What waits for the barrier may read the copies.
                shadow.copy_committed(index, active);
                shadow.copy_waited(index, active, 0);
                for lane in lanes {
                    let barrier = barrier_at(warp, block, cx, slots[0], lane);
                    shadow.phase_arrived(index, lane as u32, at.pc, barrier, true);
                }
            }
            Unit::Barrier(_) => barrier(shadow, warp, block, cx, (at, unit)),
            Unit::Bulk(_) | Unit::StoreAsync(_) => self.bulk_issued(shadow, warp, block, cx, at),
            Unit::BulkWait { .. } => {
                for lane in lanes {
                    let thread = (index * LANES + lane) as u32;
                    let committed = block.queue.groups.get(&thread).copied().unwrap_or_default();
                    shadow.bulk_waited(index, lane as u32, committed, op.imm as u32);
                }
            }
            Unit::WarpgroupCommit => shadow.products_committed(index),
            Unit::WarpgroupWait => shadow.products_waited(index, op.imm as u32),
            Unit::ClusterArrive { releases, .. } => {
                shadow.cluster_arrived(index, active, releases);
            }
            // Lanes that have yet to wait go on when the barrier opens.
            Unit::ClusterWait { .. } if warp.cluster_arrived & active == 0 => {
                shadow.cluster_waited(index, active, warp.live);
            }
            _ => {}
        }
    }

    /// Bulk copies were issued: the last of the block's queue.
    fn bulk_issued(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let order = Order::default();
        let count = at.active.count_ones() as usize;
        for bulk in block.queue.pending.iter().rev().take(count) {
            let lane = bulk.thread as usize % LANES;
            if let End::Shared(_, from) = bulk.from
                && self.checks.shared_races
            {
                let scene = Scene { warp, block, cx, at, touch: Touch::Read, order, element: 16 };
                self.races(shadow, &scene, SHARED, &one(lane, from, bulk.bytes));
                if let Completion::Group(number) = bulk.completion {
                    let starts = (from..from + bulk.bytes).step_by(16).collect();
                    let by = Actor { warp: warp.index as usize, pc: at.pc, strong: false };
                    shadow.read_begun(by, lane as u32, starts, Ending::Bulk(number));
                }
            }
            if let (End::Shared(rank, to), Completion::Barrier(_, barrier)) =
                (&bulk.to, bulk.completion)
                && bulk.reduce.is_none()
            {
                let scene = Scene { warp, block, cx, at, touch: Touch::Write, order, element: 16 };
                let ranks = if bulk.ranks == 0 { 1 << rank } else { bulk.ranks };
                for rank in (0..LANES).filter(|rank| ranks >> rank & 1 != 0) {
                    let lanes = one(lane, *to, bulk.bytes);
                    self.issued(shadow, &scene, (rank, &lanes), Group::Barrier((rank, barrier)));
                }
            }
        }
    }
}

/// The rank and offset of the barrier in memory that a lane names.
fn barrier_at(
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    slot: Slot,
    lane: usize,
) -> (usize, u64) {
    let address = warp.registers.wide(&cx.program.constants, slot)[lane];
    let (rank, at) = block.peers.locate(address % WINDOW_BYTES);
    (rank as usize, at)
}

/// After an op on barriers in memory ran: what arrives releases and what sees a phase end acquires,
/// unless it is relaxed.
fn barrier(
    shadow: &mut BlockShadow,
    warp: &Warp,
    block: &BlockState,
    cx: &Context<'_>,
    (at, unit): (At, Unit),
) {
    let Unit::Barrier(barrier) = unit else { return };
    let slots = &cx.program.lists[cx.program.ops[at.pc as usize].list as usize..];
    let order = cx.program.origins[at.pc as usize].traits.order;
    let (index, stated) = (warp.index as usize, order.scope != Scope::Weak);
    let lanes = |mask: u32| (0..LANES).filter(move |lane| mask >> lane & 1 != 0);
    match barrier.action {
        BarrierAction::Arrive { .. } => {
            for lane in lanes(at.active) {
                let place = barrier_at(warp, block, cx, slots[1], lane);
                let releases = order.releases || !stated;
                shadow.phase_arrived(index, lane as u32, at.pc, place, releases);
            }
        }
        BarrierAction::TestState | BarrierAction::TestParity => {
            let over = warp.registers.predicate(slots[0]) & at.active;
            for lane in lanes(over) {
                let place = barrier_at(warp, block, cx, slots[1], lane);
                let acquires = order.acquires || !stated;
                shadow.phase_waited(index, lane as u32, at.pc, place, acquires);
            }
            // Clocks are a warp's: lanes that saw a phase end count as having met, which hides
            // what they fail to order among themselves.
            shadow.clocks.sync_lanes(index, over, warp.live);
        }
        _ => {}
    }
}

impl BlockShadow {
    /// Bytes of the block's shared memory were written from outside its warps.
    pub fn landed(&mut self, at: u64, bytes: u64) {
        self.shared.set_written(&one(0, at, bytes), true);
    }
}
