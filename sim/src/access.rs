//! Accesses to memory, as ops describe them.

use crate::types::Type;

/// Where an access goes. Constant variables live in global memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Global,
    Shared,
    Local,
    Param,
    /// Any of them, by the address.
    Generic,
}

/// A load or store: `count` elements of `bytes` bytes for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub window: Window,
    pub bytes: u8,
    pub count: u8,
    pub signed: bool,
    /// Volatile, relaxed or stronger: other threads may be waited for.
    pub strong: bool,
    /// Whether the address operand is a wide.
    pub wide_address: bool,
}

impl Access {
    /// Whether each lane's part is one word of shared memory.
    #[inline(always)]
    pub fn is_shared_word(self) -> bool {
        (self.window, self.bytes, self.count) == (Window::Shared, 4, 1)
    }
}

/// A read-modify-write.
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

/// An atomic access to one element for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Atomic {
    pub window: Window,
    pub modify: Modify,
    pub ty: Type,
    pub wide_address: bool,
}
