//! Pending asynchronous copies of a warp: `cp.async` and its groups.

use crate::registers::LANES;

/// A `cp.async` of a warp to its block's shared memory.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Lanes whose copy is pending.
    pub mask: u32,
    /// Group that the lanes had open.
    pub group: u32,
    pub pc: u32,
    pub bytes: u8,
    pub from: [u64; LANES],
    /// Offsets in shared memory.
    pub to: [u32; LANES],
    /// Number of source bytes; the rest is zero-filled.
    pub kept: [u8; LANES],
}

/// An mbarrier arrival triggered by the completion of the lanes' prior copies.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub mask: u32,
    pub pc: u32,
    /// Offsets of the mbarriers in shared memory.
    pub at: [u32; LANES],
}

#[derive(Debug)]
pub(crate) enum Pending {
    Copy(Box<Copy>),
    Arrival(Box<Arrival>),
}

/// Pending copies and arrivals of a warp, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub pending: Vec<Pending>,
    /// Number of groups committed by each lane.
    pub groups: [u32; LANES],
    /// Number of arrivals among the pending.
    pub arrivals: usize,
}
