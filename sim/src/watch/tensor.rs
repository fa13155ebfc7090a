//! Checks of `tcgen05`: tensor memory is written before it is read, loads and stores are waited
//! for, and what an MMA reads stays until its commit is.

use super::Watch;
use super::report::Reporter;
use super::scene::Scene;
use super::units::barriers;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::execute::{moved_cells, tensor_reads, tensor_touched};
use crate::finding::FindingKind;
use crate::registers::LANES;
use crate::shadow::{Actor, BlockShadow, SHARED, Touch, joined_chunks, pieces};
use crate::tensor_memory::Region;
use crate::traits::Order;
use crate::unit::TensorOp;
use crate::warp::{At, Warp};

impl Watch {
    /// Called before a `tcgen05` op other than an allocation.
    pub(super) fn tensor_before(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, tensor): (At, TensorOp),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        let index = warp.index as usize;
        let whole = at.active == u32::MAX;
        match tensor {
            TensorOp::Commit { .. } => {
                for (lane, barrier) in barriers(warp, block, cx, cx.list(op)[0], at.active) {
                    let (by, odd) = ((index, lane as u32), block.parity(barrier));
                    shadow.phase_arrived((by.0, by.1, at.pc), barrier, odd, true);
                    shadow.tensor_committed(by, barrier, odd);
                }
            }
            TensorOp::Copy(_) | TensorOp::Multiply(_) => {
                for lane in (0..LANES).filter(|lane| at.active >> lane & 1 != 0) {
                    self.tensor_issued(shadow, warp, block, cx, (at, tensor, lane));
                }
            }
            TensorOp::Wait { loads: true } if whole => Watch::tensor_loaded(shadow, index, cx),
            TensorOp::Wait { loads: false } if whole => shadow.tensor.stores_waited(index),
            TensorOp::Load(moved) | TensorOp::Store(moved)
                if whole && self.checks.uninitialised =>
            {
                let load = matches!(tensor, TensorOp::Load(_));
                let Some((cells, region)) = moved_cells(warp, cx, op, moved, load) else { return };
                let cells = cells.into_iter();
                if !load {
                    shadow.tensor.write(cells, true);
                    shadow.tensor.stored(region, index, at.pc);
                } else if let Some(cell) = shadow.tensor.unwritten(cells) {
                    self.tensor_cell(warp, block, cx, at, (cell, None));
                }
            }
            _ => {}
        }
    }

    /// Columns of tensor memory are allocated.
    pub(super) fn tensor_allocated(shadow: &mut BlockShadow, first: u32, count: u32) {
        shadow.tensor.write_region(Region::all(first, count), false);
    }

    /// An MMA or copy of a lane is issued.
    fn tensor_issued(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, tensor, lane): (At, TensorOp, usize),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        let (touch, order) = (Touch::Read, Order::default());
        let scene = Scene { warp, block, cx, at, touch, order, element: 16 };
        // One that is about to fail reads nothing.
        let starts = tensor_reads(warp, block, cx, op, tensor, lane).unwrap_or_default();
        for lanes in pieces(&starts) {
            self.check(shadow, &scene, SHARED, &lanes);
            if self.checks.shared_races {
                lanes.each().for_each(|lane| self.shared_proxy(shadow, &scene, &lanes, lane));
            }
        }
        if self.checks.shared_races && !starts.is_empty() {
            let by = Actor::weak(warp.index as usize, at.pc);
            shadow.tensor_begun(by, lane as u32, joined_chunks(&starts).into());
        }
        if !self.checks.uninitialised {
            return;
        }
        let (reads, writes) = tensor_touched(warp, block, cx, op, tensor, lane);
        for region in reads {
            if let Some(cell) = shadow.tensor.unwritten_region(region) {
                self.tensor_cell(warp, block, cx, at, (cell, None));
            } else if let Some(store) = shadow.tensor.pending_store(region) {
                let cell = (0, region.first as usize);
                self.tensor_cell(warp, block, cx, at, (cell, Some(store)));
            }
        }
        writes.into_iter().for_each(|region| shadow.tensor.write_region(region, true));
    }

    /// Reports tensor memory that an op reads too early.
    fn tensor_cell(
        &mut self,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
        (cell, store): ((usize, usize), Option<(usize, u32)>),
    ) {
        let who = (warp.index as usize, at.active.trailing_zeros() as usize);
        let reporter = Reporter::new(cx, block);
        let make = || reporter.tensor(cell, store, who, at.pc);
        let (kind, first) = match store {
            Some((_, pc)) => (FindingKind::UnfinishedTensorStore, pc),
            None => (FindingKind::UninitialisedTensor, at.pc),
        };
        self.findings.add((kind, first, at.pc), make);
    }
}
