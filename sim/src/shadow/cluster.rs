//! Shadow state of a cluster: accesses to other blocks' shared memory, and their order. It is lent
//! to the block that runs.

use super::clocks::Known;
use super::global::GlobalShadow;
use super::reads::OpenRead;
use super::sync::Sync;
use crate::memory::RANK_BYTES;
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
    /// Knowledge brought to the cluster's barrier, and its value at the last release.
    pub arriving: Rc<Known>,
    pub opened: Rc<Known>,
}

/// Key of a location in the shared memory of a cluster.
pub(crate) fn key(rank: usize, at: u64) -> u64 {
    rank as u64 * RANK_BYTES + at
}

impl ClusterShadow {
    /// Releases the cluster's barrier.
    pub fn open_barrier(&mut self) {
        self.opened = std::mem::take(&mut self.arriving);
    }
}
