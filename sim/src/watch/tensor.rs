//! Checks of `tcgen05`.

use super::Watch;
use super::memory::Scene;
use super::units::barriers;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::execute::tensor_reads;
use crate::shadow::{BlockShadow, SHARED, Touch, pieces};
use crate::traits::Order;
use crate::unit::TensorOp;
use crate::warp::{At, Warp};

impl Watch {
    /// Called before a `tcgen05` op other than an allocation: a commit arrives, an MMA or copy
    /// starts reading shared memory.
    pub(super) fn tensor_before(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, tensor): (At, TensorOp),
    ) {
        let op = &cx.program.ops[at.pc as usize];
        if let TensorOp::Commit { .. } = tensor {
            for (lane, barrier) in barriers(warp, block, cx, cx.list(op)[0], at.active) {
                let by = (warp.index as usize, lane as u32, at.pc);
                shadow.phase_arrived(by, barrier, block.parity(barrier), true);
            }
        }
        let (touch, order) = (Touch::Read, Order::default());
        let scene = Scene { warp, block, cx, at, touch, order, element: 16 };
        for lane in (0..32).filter(|lane| at.active >> lane & 1 != 0) {
            // One that is about to fail reads nothing.
            let starts = tensor_reads(warp, block, cx, op, tensor, lane).unwrap_or_default();
            for lanes in pieces(&starts) {
                self.check(shadow, &scene, SHARED, &lanes);
                if self.checks.shared_races {
                    lanes.each().for_each(|lane| self.proxies(shadow, &scene, &lanes, lane));
                }
            }
        }
    }
}
