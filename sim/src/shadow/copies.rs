//! The copies of a warp that were issued and not waited for.

use super::lanes::Lanes;
use crate::mbarrier::BarrierAddress;
use crate::registers::LANES;

/// What a copy is waited for by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Its thread has not committed it.
    Open,
    /// The thread's group of that number.
    Committed(u32),
    /// That barrier in shared memory.
    Barrier(BarrierAddress),
}

/// A copy that was issued and not waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub lane: usize,
    pub pc: u32,
    /// The rank whose shared memory it goes to, and where there.
    pub rank: usize,
    pub at: u64,
    pub bytes: u32,
    pub group: Group,
    /// The barrier that `cp.async.mbarrier.arrive` is to tell of it.
    pub told: Option<BarrierAddress>,
}

/// The copies of a warp.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub list: Vec<InFlight>,
    /// Groups that each lane has committed.
    pub committed: [u32; LANES],
}

impl InFlight {
    pub fn lanes(&self) -> Lanes {
        let (offsets, active) = ([self.at; LANES], 1 << self.lane);
        Lanes::apart(offsets, active, self.bytes)
    }
}
