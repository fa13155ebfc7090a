//! Asynchronous copies of a warp that have not been waited for.

use super::clocks::Known;
use super::lanes::{Lanes, whole};
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

/// What lanes read of an allocation to copy it.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub area: u64,
    pub lanes: Lanes,
    /// Bytes that each lane reads, up to those of `lanes`.
    pub kept: [u8; LANES],
}

impl Source {
    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.lanes.each().map(|lane| u64::from(self.kept[lane])).sum()
    }

    /// What some of the lanes read.
    pub fn parts(&self, active: u32) -> Vec<Lanes> {
        let lanes = self.lanes.only(self.lanes.active & active);
        if lanes.each().all(|lane| u32::from(self.kept[lane]) == lanes.bytes) {
            return if lanes.active == 0 { Vec::new() } else { vec![lanes] };
        }
        let part = |lane| whole(lane, lanes.offsets[lane], self.kept[lane].into());
        lanes.each().flat_map(part).collect()
    }
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
    /// What the lanes read, for those that wait themselves.
    pub sources: Rc<[Source]>,
}

/// Asynchronous copies of lanes that have not been waited for, and take the same course.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub pc: u32,
    /// Destination: rank, and offsets of the lanes.
    pub rank: usize,
    pub lanes: Lanes,
    pub group: Group,
    pub number: u64,
    pub unset: Rc<[u64]>,
    pub sources: Rc<[Source]>,
    /// The mbarrier that signals them, by `cp.async.mbarrier.arrive`.
    pub told: Option<BarrierAddress>,
    /// What their threads did and knew when they named the mbarrier, which is released with them.
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
    /// A lane that copies.
    pub fn lane(&self) -> usize {
        self.lanes.active.trailing_zeros() as usize
    }

    /// Takes some lanes away, all or not.
    fn divide(&mut self, lanes: u32) -> InFlight {
        let taken = InFlight { lanes: self.lanes.only(self.lanes.active & lanes), ..self.clone() };
        self.lanes = self.lanes.only(self.lanes.active & !lanes);
        taken
    }
}

impl Copies {
    /// Takes the lanes that `of` says of each copy out of the list.
    pub fn take(&mut self, of: impl Fn(&InFlight) -> u32) -> Vec<InFlight> {
        let mut out = Vec::new();
        for copy in &mut self.list {
            let lanes = of(copy) & copy.lanes.active;
            if lanes != 0 {
                out.push(copy.divide(lanes));
            }
        }
        if !out.is_empty() {
            self.list.retain(|copy| copy.lanes.active != 0);
        }
        out
    }

    /// Changes the copies of the lanes that `of` says of each.
    pub fn change(&mut self, of: impl Fn(&InFlight) -> u32, mut change: impl FnMut(&mut InFlight)) {
        let mut rest = Vec::new();
        for copy in &mut self.list {
            let lanes = of(copy) & copy.lanes.active;
            if lanes == 0 {
                continue;
            }
            if lanes != copy.lanes.active {
                rest.push(copy.divide(!lanes));
            }
            change(copy);
        }
        self.list.extend(rest);
    }
}
