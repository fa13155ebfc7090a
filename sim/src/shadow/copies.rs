//! Asynchronous copies of a warp that have not been waited for.

use super::lanes::Lanes;
use crate::mbarrier::BarrierAddress;
use crate::registers::LANES;

/// Completion mechanism of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Not yet committed.
    Open,
    /// The thread's group of that number.
    Committed(u32),
    /// An mbarrier.
    Barrier(BarrierAddress),
}

/// An asynchronous copy that has not been waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub lane: usize,
    pub pc: u32,
    /// Destination: rank and offset.
    pub rank: usize,
    pub at: u64,
    pub bytes: u32,
    pub group: Group,
    /// The mbarrier that signals it, by `cp.async.mbarrier.arrive`.
    pub told: Option<BarrierAddress>,
}

/// Asynchronous copies of a warp.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub list: Vec<InFlight>,
    /// Number of groups committed by each lane.
    pub committed: [u32; LANES],
}

impl InFlight {
    pub fn lanes(&self) -> Lanes {
        let (offsets, active) = ([self.at; LANES], 1 << self.lane);
        Lanes::apart(offsets, active, self.bytes)
    }
}
