//! Descriptors of memory accesses.

use crate::types::Type;

/// State space of an access. Constant variables are in global memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Global,
    Shared,
    Local,
    Param,
    /// Any window, determined by the address.
    Generic,
}

/// A load or store of `count` elements of `bytes` bytes per lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub window: Window,
    pub bytes: u8,
    pub count: u8,
    pub signed: bool,
    /// Whether the access is volatile, relaxed or stronger, so that a thread may poll with it.
    pub strong: bool,
    /// Whether the elements are accessed in one step: those of a 128-bit value.
    pub single: bool,
    /// Whether the address operand is 64 bits wide.
    pub wide_address: bool,
    /// Whether L1 keeps nothing of it (`.cg`, `.cv`).
    pub past_l1: bool,
}

impl Access {
    /// A weak access to one unsigned element, at an address of 64 bits.
    pub fn weak(window: Window, bytes: u8) -> Access {
        let (count, wide_address) = (1, true);
        let [signed, strong, single, past_l1] = [false; 4];
        Access { window, bytes, count, signed, strong, single, wide_address, past_l1 }
    }

    /// Whether each lane accesses one word of shared memory.
    #[inline(always)]
    pub fn is_shared_word(self) -> bool {
        (self.window, self.bytes, self.count) == (Window::Shared, 4, 1)
    }
}

/// A read-modify-write operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modify {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    Compare,
    Increment,
    Decrement,
}

/// An atomic access to one element per lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub window: Window,
    pub modify: Modify,
    pub ty: Type,
    pub wide_address: bool,
}
