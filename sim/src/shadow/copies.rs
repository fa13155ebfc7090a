//! Asynchronous copies of a warp that have not been waited for.

use super::clocks::Known;
use super::lanes::{Lanes, one};
use crate::mbarrier::BarrierAddress;
use crate::registers::LANES;
use crate::traits::Scope;
use std::rc::Rc;

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

/// Bytes of global memory: allocation, offset and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GlobalRange {
    pub area: u64,
    pub at: u64,
    pub bytes: u64,
}

/// A store to global memory by a bulk copy that has not been waited for.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub lane: usize,
    pub pc: u32,
    pub group: u32,
    pub scope: Scope,
    pub ranges: Vec<GlobalRange>,
}

/// Copies of lanes that are issued.
#[derive(Debug, Clone)]
pub(crate) struct Issue<'a> {
    /// Destination: rank, and offsets of the lanes.
    pub rank: usize,
    pub target: &'a Lanes,
    pub group: Group,
    /// Number of a bulk copy in its block; of others 0.
    pub number: u64,
    /// Bytes of the destination to which what nobody wrote is copied.
    pub unset: Rc<[u64]>,
    /// What each lane reads, for those that wait themselves.
    pub sources: Vec<(usize, GlobalRange)>,
}

/// An asynchronous copy that has not been waited for.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub lane: usize,
    pub pc: u32,
    /// Destination: rank and offset.
    pub rank: usize,
    pub at: u64,
    pub bytes: u32,
    pub group: Group,
    pub number: u64,
    pub unset: Rc<[u64]>,
    pub source: Option<GlobalRange>,
    /// The mbarrier that signals it, by `cp.async.mbarrier.arrive`.
    pub told: Option<BarrierAddress>,
    /// What its thread did and knew when it named the mbarrier, which is released with the copy.
    pub before: Rc<Known>,
}

/// Asynchronous copies of a warp.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub list: Vec<InFlight>,
    pub stores: Vec<OpenStore>,
    /// Number of groups committed by each lane.
    pub committed: [u32; LANES],
}

impl InFlight {
    pub fn lanes(&self) -> Lanes {
        one(self.lane, self.at, self.bytes.into())
    }
}
