//! Who makes an access, and what it conflicts with.

use super::clocks::{Clocks, Event};

/// Origin of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actor {
    pub warp: usize,
    pub pc: u32,
    pub strong: bool,
    /// The clock of an asynchronous access; else that of the warp.
    pub apart: Option<Clock>,
}

/// An epoch of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    pub clock: u32,
    pub epoch: u32,
}

impl Actor {
    /// A weak access of a warp.
    pub fn weak(warp: usize, pc: u32) -> Actor {
        Actor { warp, pc, strong: false, apart: None }
    }

    /// Clock and epoch of the access.
    pub fn clock(&self, clocks: &Clocks) -> Clock {
        let own = || Clock { clock: self.warp as u32, epoch: clocks.warps[self.warp].epoch };
        self.apart.unwrap_or_else(own)
    }
}

/// An access that is not ordered after an earlier, conflicting one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conflict {
    pub lane: usize,
    /// First byte common to both.
    pub at: u64,
    pub earlier: Event,
    /// Whether the earlier access is a pending asynchronous read.
    pub open: bool,
}
