//! Packs of a recurrent network's tensors.

use crate::device::Buffer;
use crate::plan::{DeviceMemory, Kept, Slot};
use crate::rnn::{Optional, Role};

/// The addresses of a network's tensors, which the caller keeps alive.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct RnnSlots {
    slots: [Option<Slot>; Role::ALL.len()],
    pub(super) workspace: Option<Slot>,
}

impl RnnSlots {
    pub(super) fn slot(&self, role: Role) -> Option<Slot> {
        self.slots[role as usize]
    }

    pub(super) fn set(&mut self, role: Role, slot: Slot) {
        self.slots[role as usize] = Some(slot);
    }

    /// Adds or replaces a tensor at the start of a buffer, which the caller keeps alive.
    pub(super) fn with(mut self, role: Role, buffer: &Buffer) -> RnnSlots {
        self.slots[role as usize] = Some(Slot::of(buffer));
        self
    }

    /// The optional tensors in the pack.
    pub(super) fn optional(&self) -> Optional {
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

/// Device memory by [`Role`]: for a network what a [`VariantPack`](crate::VariantPack) is for a
/// graph. Its optional tensors decide what a forward pass computes.
///
/// A pack keeps buffers alive; memory given by address is the caller's to keep.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RnnPack {
    pub(super) slots: RnnSlots,
    kept: Kept<Option<Role>>,
}

impl RnnPack {
    /// An empty pack.
    pub fn new() -> RnnPack {
        RnnPack::default()
    }

    /// Adds or replaces a tensor at the start of a buffer, which the pack keeps alive.
    pub fn with(mut self, role: Role, buffer: &Buffer) -> RnnPack {
        self.slots = self.slots.with(role, buffer);
        self.kept.keep(Some(role), Some(buffer));
        self
    }

    /// Adds or replaces the workspace, a buffer that the pack keeps alive.
    pub fn with_workspace(mut self, buffer: &Buffer) -> RnnPack {
        self.slots.workspace = Some(Slot::of(buffer));
        self.kept.keep(None, Some(buffer));
        self
    }

    /// Adds or replaces those tensors that there are, and the workspace if there is one.
    pub(super) fn completed(
        self,
        optional: &[(Role, Option<&Buffer>)],
        workspace: Option<&Buffer>,
    ) -> RnnPack {
        let given = optional.iter().filter_map(|(role, buffer)| Some((*role, (*buffer)?)));
        let pack = given.fold(self, |pack, (role, buffer)| pack.with(role, buffer));
        match workspace {
            Some(workspace) => pack.with_workspace(workspace),
            None => pack,
        }
    }

    /// Adds or replaces a tensor at the start of memory on the network's device.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`](crate::VariantPack::set_address).
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_address(&mut self, role: Role, memory: DeviceMemory) {
        self.slots.slots[role as usize] = Some(Slot::foreign(memory));
        self.kept.keep(Some(role), None);
    }

    /// Adds or replaces the workspace, memory on the network's device.
    ///
    /// # Safety
    /// As [`VariantPack::set_address`](crate::VariantPack::set_address).
    #[expect(unsafe_code, reason = "nothing checks the address")]
    pub unsafe fn set_workspace_address(&mut self, memory: DeviceMemory) {
        self.slots.workspace = Some(Slot::foreign(memory));
        self.kept.keep(None, None);
    }

    /// The optional tensors in the pack.
    pub fn optional(&self) -> Optional {
        self.slots.optional()
    }
}
