//! What the units do to shared memory: matrices, copies that land later, barriers in memory.
//!
//! What goes to another block of the cluster only counts as written there.

use super::asynchronous::Group;
use super::lanes::Lanes;
use super::memory::{SHARED, Scene};
use super::shadow::BlockShadow;
use super::shared::Actor;
use super::sync::Touch;
use super::traits::Order;
use super::{At, Watch};
use crate::block::BlockState;
use crate::execute::{Attempt, Place, addresses, resolve};
use crate::launch::Context;
use crate::mbarrier::Mbarrier;
use crate::op::Window;
use crate::registers::{LANES, Slot};
use crate::unit::{BarrierAction, MemoryBarrier, Unit};
use crate::warp::Warp;

/// The lanes whose addresses are in their own block's shared memory, and where.
fn own_places<'a>(
    warp: &'a Warp,
    block: &'a BlockState,
    cx: &'a Context<'_>,
    slot: Slot,
    lanes: u32,
) -> impl Iterator<Item = (usize, u64)> + 'a {
    let lanes = (0..LANES).filter(move |lane| lanes >> lane & 1 != 0);
    lanes.filter_map(move |lane| {
        let address = warp.registers.wide(&cx.program.constants, slot)[lane];
        let (rank, at) = block.peers.locate(address % crate::memory::WINDOW_BYTES);
        (rank == block.peers.rank.into()).then_some((lane, at))
    })
}

/// The parity of the phase that a lane waits for: given, or that of an arrival's state.
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
            Unit::Barrier(MemoryBarrier { action: BarrierAction::Arrive { .. }, .. }) => {
                // Before, as it may be the last of its phase.
                for (lane, barrier) in own_places(warp, block, cx, slots[1], at.active) {
                    let by = (warp.index as usize, lane as u32, at.pc);
                    shadow.phase_arrived(by, barrier, Mbarrier::parity(&block.shared, barrier));
                }
                return;
            }
            Unit::Copy(bytes) => {
                let addresses = *warp.registers.wide(&cx.program.constants, slots[0]);
                (Touch::Write, Window::Shared, addresses, at.active, bytes.into())
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
            Unit::Copy(_) => self.issued(shadow, &scene, &lanes, Group::Open),
            _ => self.look(shadow, &scene, Some(SHARED), &lanes),
        }
    }

    /// A copy to shared memory was issued.
    pub(super) fn issued(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        lanes: &Lanes,
        group: Group,
    ) {
        let by = Actor { warp: scene.warp.index as usize, pc: scene.at.pc, strong: false };
        let mut conflicts = Vec::new();
        shadow.copy_issued(by, lanes, group, &mut conflicts);
        if self.checks.shared_races {
            self.conflicts(shadow, scene, SHARED, lanes, conflicts);
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
                for (lane, barrier) in own_places(warp, block, cx, slots[0], active) {
                    shadow.copy_handed(index, lane, barrier);
                }
            }
            Unit::Barrier(barrier) => match barrier.action {
                BarrierAction::TestState | BarrierAction::TestParity => {
                    let over = warp.registers.predicate(slots[0]);
                    let odd = waited_parity(warp, cx, barrier.action, slots[2]);
                    for (lane, barrier) in own_places(warp, block, cx, slots[1], active & over) {
                        shadow.phase_waited((index, lane as u32, at.pc), barrier, odd(lane));
                    }
                    // Clocks are a warp's: lanes that saw a phase end count as having met, which
                    // hides what they fail to order among themselves.
                    shadow.clocks.sync_lanes(index, active & over, warp.live);
                }
                _ => {}
            },
            Unit::Bulk(_) | Unit::StoreAsync(_) => self.bulk_issued(shadow, warp, block, cx, at),
            Unit::WarpgroupWait => Watch::products_done(shadow, warp, cx),
            Unit::BulkWait { .. } => {
                let newest = op.imm as u32;
                lanes.for_each(|lane| shadow.bulk_waited(index, lane, newest, &block.queue));
            }
            _ => {}
        }
    }
}
