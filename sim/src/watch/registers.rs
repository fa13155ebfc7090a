//! Checks of uninitialised registers.
//!
//! A value computed from a register that was never written is tracked through arithmetic, since
//! compilers and array tails compute such values and discard them. It is reported where it affects
//! a branch, an address, memory or another lane. Uninitialised values from vector loads are
//! reported where they are computed with.

use super::Watch;
use super::report::Reporter;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::finding::FindingKind;
use crate::op::Kind;
use crate::registers::LANES;
use crate::shadow::{BlockShadow, GUARD, LOCAL, NEVER, PRODUCT, Poison, SHARED};
use crate::shuffle::sources;
use crate::tracked::Role;
use crate::traits::Moves;
use crate::unit::Unit;
use crate::warp::{At, Warp};

/// Lanes whose values other lanes of a shuffle read.
fn taken(from: [usize; LANES], active: u32) -> u32 {
    let others = from.iter().enumerate().filter(|&(lane, &from)| from != lane);
    others.filter(|&(lane, _)| active >> lane & 1 != 0).fold(0, |all, (_, from)| all | 1 << from)
}

/// Whether an op loads from tensor memory.
fn of_tensor(cx: &Context<'_>, pc: u32) -> bool {
    matches!(cx.program.ops[pc as usize].kind, Kind::Unit(Unit::Tensor(_)))
}

impl Watch {
    /// Reports uses of uninitialised registers, and propagates their state.
    pub(super) fn registers(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let tracked = &cx.program.tracked;
        let poison = &mut shadow.warps[warp.index as usize].poison;
        let op = &cx.program.ops[at.pc as usize];
        let store = matches!(op.kind, Kind::Store(_));
        let lane_wise = matches!(op.kind, Kind::Lane(_));
        let pending = matches!(op.kind, Kind::Unit(unit) if unit.is_pending());
        let mut copied = Poison::NONE;
        let mut effects = Vec::new();
        for &(register, role) in tracked.uses(at.pc) {
            let mut held = poison[register as usize];
            let position = match role {
                Role::Guard => {
                    held.lanes &= at.mask;
                    GUARD
                }
                Role::Read(position) => {
                    held.lanes &= at.active;
                    position
                }
                Role::Write(_) if pending => {
                    let lanes = at.active;
                    poison[register as usize] = Poison { lanes, from: at.pc, area: PRODUCT, at: 0 };
                    continue;
                }
                Role::Write(_) => {
                    let kept = poison[register as usize].lanes & !at.active;
                    let from = if copied.lanes != 0 { copied } else { held };
                    poison[register as usize] = Poison { lanes: kept | copied.lanes, ..from };
                    continue;
                }
            };
            let moves = tracked.moves[at.pc as usize];
            if moves == Moves::Select && position < 2 {
                let chosen = warp.registers.predicate(op.c);
                held.lanes &= if position == 0 { chosen } else { !chosen };
            }
            if let (Kind::Shuffle(mode), 0) = (op.kind, position) {
                held.lanes &= taken(sources(warp, cx, op, mode).0, at.active);
            }
            let brought = held.from != NEVER && held.area != PRODUCT;
            // A value from a vector load may be stored back unmodified.
            if held.lanes == 0 || store && position > 0 && brought {
                continue;
            }
            let moved = moves == Moves::Copy || moves == Moves::Select && position < 2;
            let computed = lane_wise && held.from == NEVER;
            // Compilers move what a tcgen05.ld loads before they wait for it.
            let follows = held.area != PRODUCT || moved && of_tensor(cx, held.from);
            if position != GUARD && follows && (moved || computed) {
                if !moved && held.area == 0 {
                    (held.area, held.at) = (u64::from(at.pc) + 1, position.into());
                }
                copied = Poison { lanes: copied.lanes | held.lanes, ..held };
                continue;
            }
            effects.push((position, held));
        }
        for (position, held) in effects {
            self.effect(warp, block, cx, at, (position, held));
        }
    }

    /// What a warp loaded from tensor memory has arrived.
    pub(super) fn tensor_loaded(shadow: &mut BlockShadow, warp: usize, cx: &Context<'_>) {
        for held in &mut shadow.warps[warp].poison {
            if held.area == PRODUCT && of_tensor(cx, held.from) {
                *held = Poison::NONE;
            }
        }
    }

    /// Accumulators of completed wgmma become initialised.
    pub(super) fn products_done(shadow: &mut BlockShadow, warp: &Warp, cx: &Context<'_>) {
        let under_way = |from: u32| {
            let op = &cx.program.ops[from as usize];
            let Kind::Unit(Unit::WarpgroupMultiply(product)) = op.kind else { return true };
            let slots = &cx.program.lists[op.list as usize..][..product.registers()];
            warp.products.in_flight.iter().any(|flight| flight.slots == slots)
        };
        for held in &mut shadow.warps[warp.index as usize].poison {
            if held.area == PRODUCT && !under_way(held.from) {
                *held = Poison::NONE;
            }
        }
    }

    /// Reports an effect of an uninitialised register.
    fn effect(
        &mut self,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
        (position, held): (u16, Poison),
    ) {
        let reporter = Reporter::new(cx, block);
        let lane = held.lanes.trailing_zeros() as usize;
        let first = match (held.from, held.area) {
            (NEVER, 1..) => held.area as u32 - 1,
            (from, _) => from,
        };
        let kind = match (held.from, held.area) {
            (NEVER, _) => FindingKind::UninitialisedRegister,
            (from, PRODUCT) if of_tensor(cx, from) => FindingKind::UnfinishedTensorLoad,
            (_, PRODUCT) => FindingKind::UnfinishedProduct,
            (_, SHARED) => FindingKind::UninitialisedShared,
            (_, LOCAL) => FindingKind::UninitialisedLocal,
            _ => FindingKind::UninitialisedGlobal,
        };
        let who = (warp.index as usize, lane);
        for _ in 0..held.lanes.count_ones() {
            let make = || match held.from {
                NEVER => reporter.register(at.pc, who, position, held),
                from if held.area == PRODUCT => {
                    reporter.unfinished(kind, (from, at.pc), who, position)
                }
                _ => reporter.brought(kind, at.pc, who, held),
            };
            self.findings.add((kind, first, at.pc), make);
        }
    }
}
