//! Packs of a recurrent network's tensors.

use crate::plan::{DeviceMemory, Kept, Memory, Slot};
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

    /// Adds or replaces a tensor at the start of memory; a buffer is kept alive by the pack.
    pub fn with<'a>(mut self, role: Role, memory: impl Into<Memory<'a>>) -> RnnPack {
        let memory = memory.into();
        self.slots.set(role, memory.slot());
        self.kept.keep(Some(role), memory.buffer());
        self
    }

    /// Adds or replaces the workspace; a buffer is kept alive by the pack.
    pub fn with_workspace<'a>(mut self, memory: impl Into<Memory<'a>>) -> RnnPack {
        let memory = memory.into();
        self.slots.workspace = Some(memory.slot());
        self.kept.keep(None, memory.buffer());
        self
    }

    /// Adds or replaces those tensors that there are, and the workspace if there is one.
    pub(super) fn completed(
        self,
        optional: &[(Role, Option<Memory<'_>>)],
        workspace: Option<Memory<'_>>,
    ) -> RnnPack {
        let given = optional.iter().filter_map(|(role, memory)| Some((*role, (*memory)?)));
        let pack = given.fold(self, |pack, (role, memory)| pack.with(role, memory));
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

    /// Removes a tensor, if it is there.
    pub fn remove(&mut self, role: Role) {
        self.slots.slots[role as usize] = None;
        self.kept.keep(Some(role), None);
    }

    /// The optional tensors in the pack.
    pub fn optional(&self) -> Optional {
        self.slots.optional()
    }
}
