//! The shadow of a cluster: what its blocks do to each other's shared memory, and what orders them.
//! It is lent to the block that runs.

use super::clocks::Known;
use super::global::GlobalShadow;
use super::reads::OpenRead;
use super::sync::Sync;
use crate::memory::RANK_BYTES;
use std::rc::Rc;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ClusterShadow {
    /// Order through shared memory, by [`key`].
    pub sync: Sync,
    /// Who touched the shared memory of each rank, where there are several.
    pub touched: GlobalShadow,
    /// Reads of shared memory that go on.
    pub open: Vec<OpenRead>,
    /// What was brought to the cluster's barrier, and what it gave when it last opened.
    pub arriving: Rc<Known>,
    pub opened: Rc<Known>,
}

/// A place in the shared memory of a cluster.
pub(crate) fn key(rank: usize, at: u64) -> u64 {
    rank as u64 * RANK_BYTES + at
}

impl ClusterShadow {
    /// The cluster's barrier opens.
    pub fn open_barrier(&mut self) {
        self.opened = std::mem::take(&mut self.arriving);
    }
}
