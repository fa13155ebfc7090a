//! What a check of a memory access knows of it.

use crate::block_state::BlockState;
use crate::context::Context;
use crate::op::Kind;
use crate::shadow::Touch;
use crate::traits::{Order, Scope};
use crate::warp::{At, Warp};

/// Context of a check.
pub(super) struct Scene<'a, 'b> {
    pub warp: &'a Warp,
    pub block: &'a BlockState,
    pub cx: &'a Context<'b>,
    pub at: At,
    pub touch: Touch,
    pub order: Order,
    /// Bytes per element; vector accesses have several.
    pub element: u32,
}

impl Scene<'_, '_> {
    /// Whether a read of memory of the device may find it in L1.
    pub fn may_be_in_l1(&self) -> bool {
        let op = &self.cx.program.ops[self.at.pc as usize];
        let past = matches!(op.kind, Kind::Load(access) if access.past_l1);
        self.touch == Touch::Read && self.order.scope == Scope::Weak && !past
    }
}
