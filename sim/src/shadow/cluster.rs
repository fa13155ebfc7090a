//! Shadow state of a cluster: accesses to other blocks' shared memory, and their order. It is lent
//! to the block that runs.

use super::clocks::{Event, Known, joined};
use super::global::GlobalShadow;
use super::reads::OpenRead;
use super::sync::Sync;
use crate::mbarrier::BarrierAddress;
use crate::memory::RANK_BYTES;
use std::collections::HashMap;
use std::rc::Rc;

/// Shadow state of a cluster.
#[derive(Debug, Default)]
pub(crate) struct ClusterShadow {
    /// Synchronisation through shared memory, by [`key`].
    pub sync: Sync,
    /// Accesses to the shared memory of each rank, if there are several.
    pub touched: GlobalShadow,
    /// Pending asynchronous reads of shared memory.
    pub open: Vec<OpenRead>,
    /// Initialised mbarriers.
    pub inits: HashMap<BarrierAddress, Init>,
    /// Index in the launch of each rank's block.
    pub ranks: Vec<u32>,
    /// Knowledge brought to the cluster's barrier, and its value at the last release.
    pub arriving: Rc<Known>,
    pub opened: Rc<Known>,
}

/// Initialisation of an mbarrier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Init {
    pub event: Event,
    /// Whether a fence of its thread followed that makes it visible to copies.
    pub fenced: bool,
}

/// Key of a location in the shared memory of a cluster.
pub(crate) fn key(rank: usize, at: u64) -> u64 {
    rank as u64 * RANK_BYTES + at
}

impl ClusterShadow {
    /// Creates the state of a cluster of blocks, by rank.
    pub fn new(ranks: Vec<u32>) -> ClusterShadow {
        ClusterShadow { ranks, ..ClusterShadow::default() }
    }

    /// Releases the cluster's barrier: every block has started.
    pub fn open_barrier(&mut self) {
        let mut blocks = self.ranks.clone();
        blocks.sort_unstable();
        let starts = Rc::new(Known::starts(blocks.into_iter()));
        self.opened = joined(&std::mem::take(&mut self.arriving), &starts);
    }
}
