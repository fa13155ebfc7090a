//! Checks of wgmma: what its warps do with its registers, and whether all of them execute it.
//!
//! Between a write of an operand or accumulator and the wgmma that uses it, a `wgmma.fence` must
//! stand; operands may be written again once its group was waited for (*PTX ISA*, asynchronous
//! warpgroup-level matrix instructions).

use super::Watch;
use super::report::Reporter;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::finding::FindingKind;
use crate::op::Kind;
use crate::shadow::{BlockShadow, Issued, ProductRegister};
use crate::tracked::Role;
use crate::traits::Moves;
use crate::unit::{Unit, WarpgroupMultiply};
use crate::warp::{At, Warp};
use crate::warpgroup::WARPS;

/// Descriptors of a wgmma's operands; 0 for one in registers.
fn issued(warp: &Warp, cx: &Context<'_>, pc: u32, product: WarpgroupMultiply) -> Issued {
    let op = &cx.program.ops[pc as usize];
    let reads = &cx.list(op)[product.registers()..];
    let row = |at: usize| warp.registers.wide(&cx.program.constants, reads[at])[0];
    let descriptors = if product.a_registers { [0, row(4)] } else { [row(0), row(1)] };
    Issued { pc, descriptors }
}

impl Watch {
    /// Checks an op that uses registers of wgmma.
    pub(super) fn product_registers(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let index = warp.index as usize;
        let registers = &mut shadow.warps[index].product_registers;
        let kind = cx.program.ops[at.pc as usize].kind;
        let reporter = Reporter::new(cx, block);
        let who = (index, at.active.trailing_zeros() as usize);
        if let Kind::Unit(Unit::WarpgroupWait) = kind {
            return;
        }
        let product = matches!(kind, Kind::Unit(Unit::WarpgroupMultiply(_)));
        // Compilers put moves of constants right before the wgmma, for the assembler to place.
        let moves = cx.program.tracked.moves[at.pc as usize] == Moves::Copy;
        for &(register, role) in cx.program.product_uses.of(at.pc) {
            let held = &mut registers.list[register as usize];
            if product {
                let unfenced = held.written.filter(|(_, fences)| *fences == registers.fences);
                if let Some((written, _)) = unfenced {
                    let make = || reporter.unfenced_register(written, at.pc, who);
                    self.findings.add((FindingKind::UnfencedRegister, written, at.pc), make);
                    held.written = None;
                }
                if let Role::Read(_) = role {
                    held.read_by = Some((at.pc, None));
                }
            } else if let Role::Write(_) = role {
                held.written = Some((at.pc, registers.fences)).filter(|_| !moves);
                if let Some((reader, _)) = held.read_by.take() {
                    let make = || reporter.overwritten(reader, at.pc, who);
                    self.findings.add((FindingKind::OverwrittenOperand, reader, at.pc), make);
                }
            }
        }
    }

    /// Checks that the warps of a warpgroup issue the same wgmma.
    pub(super) fn product_issued(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, product): (At, WarpgroupMultiply),
    ) {
        if !self.checks.barriers {
            return;
        }
        let index = warp.index as usize;
        let mine = issued(warp, cx, at.pc, product);
        let group = &mut shadow.warpgroups[index / WARPS];
        let other = group.issue(index % WARPS, mine);
        let gone = group.missing(index % WARPS).map(|other| (mine, other));
        if let Some((theirs, other)) = other.or(gone) {
            let other = index / WARPS * WARPS + other;
            let same = theirs.pc == at.pc && gone.is_none();
            self.divergent_warpgroup(block, cx, ((other, theirs.pc), (index, at.pc)), same);
        }
    }

    /// Reports a wgmma that an exiting warp did not execute.
    pub(super) fn products_left(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let index = warp.index as usize;
        if !self.checks.barriers || warp.live != at.active {
            return;
        }
        if let Some((theirs, other)) = shadow.warpgroups[index / WARPS].exit(index % WARPS) {
            let other = index / WARPS * WARPS + other;
            self.divergent_warpgroup(block, cx, ((other, theirs.pc), (index, at.pc)), false);
        }
    }

    fn divergent_warpgroup(
        &mut self,
        block: &BlockState,
        cx: &Context<'_>,
        (first, second): ((usize, u32), (usize, u32)),
        descriptors: bool,
    ) {
        let reporter = Reporter::new(cx, block);
        let make = || reporter.divergent_warpgroup(first, second, descriptors);
        self.findings.add((FindingKind::DivergentWarpgroup, first.1, second.1), make);
    }

    /// `wgmma.fence`, `wgmma.commit_group` or `wgmma.wait_group` for all groups but the newest.
    pub(super) fn product_ordered(shadow: &mut BlockShadow, warp: &Warp, unit: Unit, newest: u32) {
        let shadow = &mut shadow.warps[warp.index as usize];
        let committed = shadow.products_committed;
        let registers = &mut shadow.product_registers;
        let mut change = |change: &dyn Fn(&mut ProductRegister)| {
            registers.list.iter_mut().for_each(change);
        };
        match unit {
            Unit::WarpgroupFence => registers.fences += 1,
            // Before the group is counted.
            Unit::WarpgroupCommit => change(&|held| {
                if let Some((_, group @ None)) = &mut held.read_by {
                    *group = Some(committed);
                }
            }),
            _ => change(&|held| {
                let over = |group: u32| committed - group > newest;
                held.read_by = held.read_by.filter(|(_, group)| !group.is_some_and(over));
            }),
        }
    }
}
