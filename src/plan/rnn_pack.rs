//! The addresses a network runs on.

use crate::device::Buffer;
use crate::plan::variant_pack::Slot;
use crate::rnn::{Optional, Role};

/// Device memory by [`Role`]: what a [`VariantPack`](crate::VariantPack) is for a graph. Which
/// optional tensors it holds says what a forward pass does.
///
/// A pack holds addresses, not memory: buffers must stay alive until the work has run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RnnPack {
    slots: [Option<Slot>; Role::ALL.len()],
    pub(super) workspace: Option<Slot>,
}

impl RnnPack {
    /// A pack without tensors.
    pub fn new() -> RnnPack {
        RnnPack::default()
    }

    /// The same with a tensor at the start of a buffer.
    pub fn with(mut self, role: Role, buffer: &Buffer) -> RnnPack {
        self.slots[role as usize] = Some(Slot::of(buffer));
        self
    }

    /// The same with a workspace.
    pub fn with_workspace(mut self, buffer: &Buffer) -> RnnPack {
        self.workspace = Some(Slot::of(buffer));
        self
    }

    /// Adds or replaces a tensor at an address of the network's device with so many bytes behind
    /// it.
    pub fn set_address(&mut self, role: Role, address: u64, bytes: u64) {
        self.slots[role as usize] = Some(Slot::Memory { address, bytes, owner: 0 });
    }

    /// Sets the workspace: so many bytes at an address of the network's device.
    pub fn set_workspace_address(&mut self, address: u64, bytes: u64) {
        self.workspace = Some(Slot::Memory { address, bytes, owner: 0 });
    }

    pub(super) fn slot(&self, role: Role) -> Option<Slot> {
        self.slots[role as usize]
    }

    /// Which optional tensors are there.
    pub fn optional(&self) -> Optional {
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
