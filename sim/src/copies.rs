//! The asynchronous copies of a warp that have not landed: `cp.async` and its groups.

use crate::registers::LANES;

/// One `cp.async` of a warp, to its own block's shared memory.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Lanes whose copy has not landed.
    pub mask: u32,
    /// The group that the lanes had open.
    pub group: u32,
    pub pc: u32,
    pub bytes: u8,
    pub from: [u64; LANES],
    /// Offsets in shared memory.
    pub to: [u32; LANES],
    /// Bytes that are read; zeros follow.
    pub kept: [u8; LANES],
}

/// An arrival at barriers once the lanes' copies before it have landed.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub mask: u32,
    pub pc: u32,
    /// Offsets of the barriers in shared memory.
    pub at: [u32; LANES],
}

#[derive(Debug)]
pub(crate) enum Pending {
    Copy(Box<Copy>),
    Arrival(Box<Arrival>),
}

/// What a warp has under way, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub pending: Vec<Pending>,
    /// Groups that each lane has committed.
    pub groups: [u32; LANES],
    /// Arrivals among the pending.
    pub arrivals: usize,
}
