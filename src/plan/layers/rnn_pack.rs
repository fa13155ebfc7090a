//! The addresses a network runs on.

use crate::device::Buffer;
use crate::plan::variant_pack::{DeviceMemory, Kept, Slot};
use crate::rnn::{Optional, Role};

/// The addresses of a network's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::plan) struct RnnSlots {
    slots: [Option<Slot>; Role::ALL.len()],
    pub(in crate::plan) workspace: Option<Slot>,
}

impl RnnSlots {
    pub(in crate::plan) fn slot(&self, role: Role) -> Option<Slot> {
        self.slots[role as usize]
    }

    /// Adds a tensor that lies at the start of a buffer, which the caller keeps.
    pub(in crate::plan) fn with(mut self, role: Role, buffer: &Buffer) -> RnnSlots {
        self.slots[role as usize] = Some(Slot::of(buffer));
        self
    }

    /// Which optional tensors are there.
    pub(in crate::plan) fn optional(&self) -> Optional {
        let has = |role| self.slot(role).is_some();
        Optional {
            h_initial: has(Role::HInitial),
            states_initial: has(Role::StatesInitial),
            lengths: has(Role::Lengths),
            reset: has(Role::Reset),
            h_final: has(Role::HFinal),
            states_final: has(Role::StatesFinal),
            history: has(Role::History),
            reserve: has(Role::Reserve),
        }
    }
}

/// Device memory by [`Role`]: what a [`VariantPack`](crate::VariantPack) is for a graph. Which
/// optional tensors it holds says what a forward pass does.
///
/// A pack keeps the buffers it was given; what it was given by address its caller keeps.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RnnPack {
    pub(in crate::plan) slots: RnnSlots,
    kept: Kept<Option<Role>>,
}

impl RnnPack {
    /// A pack without tensors.
    pub fn new() -> RnnPack {
        RnnPack::default()
    }

    /// Adds a tensor that lies at the start of a buffer, which the pack keeps.
    pub fn with(mut self, role: Role, buffer: &Buffer) -> RnnPack {
        self.slots = self.slots.with(role, buffer);
        self.kept.keep(Some(role), Some(buffer));
        self
    }

    /// Adds the workspace, which the pack keeps.
    pub fn with_workspace(mut self, buffer: &Buffer) -> RnnPack {
        self.slots.workspace = Some(Slot::of(buffer));
        self.kept.keep(None, Some(buffer));
        self
    }

    /// Adds or replaces a tensor at the start of memory of the network's device.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`](crate::VariantPack::set_address).
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_address(&mut self, role: Role, memory: DeviceMemory) {
        self.slots.slots[role as usize] = Some(Slot::foreign(memory));
        self.kept.keep(Some(role), None);
    }

    /// Sets the workspace: memory of the network's device.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`](crate::VariantPack::set_address).
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_workspace_address(&mut self, memory: DeviceMemory) {
        self.slots.workspace = Some(Slot::foreign(memory));
        self.kept.keep(None, None);
    }

    /// Which optional tensors are there.
    pub fn optional(&self) -> Optional {
        self.slots.optional()
    }
}
