//! An operation, its tensors by the names of their slots.

use crate::graph::{Operation, Slots};

/// The tensors of an operation by the names of their slots.
pub(super) struct Named<'a> {
    pub(super) slots: Slots,
    pub(super) operation: &'a Operation,
}

impl Named<'_> {
    /// An operand that may be missing.
    pub(super) fn given(&self, slot: &str) -> Option<i64> {
        let at = self.slots.inputs.iter().position(|name| *name == slot)?;
        Some(self.operation.inputs[at])
    }

    pub(super) fn operand(&self, slot: &str) -> i64 {
        self.given(slot).expect("the operation was checked")
    }

    /// A result that may be missing.
    pub(super) fn wanted(&self, slot: &str) -> Option<i64> {
        let at = self.slots.outputs.iter().position(|name| *name == slot)?;
        Some(self.operation.outputs[at])
    }

    pub(super) fn result(&self, slot: &str) -> i64 {
        self.wanted(slot).expect("the operation was checked")
    }
}
