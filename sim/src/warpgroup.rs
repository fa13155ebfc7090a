//! A warp's share of its warpgroup's pending wgmma.

use crate::registers::{LANES, Slot};

/// Warps per warpgroup.
pub(crate) const WARPS: usize = 4;

/// Contents of accumulators until they are waited for: a NaN that arithmetic never produces.
pub(crate) const POISON: u32 = 0x7fba_dbad;

/// Accumulator of a pending wgmma.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Destination registers.
    pub slots: Vec<Slot>,
    pub words: Vec<[u32; LANES]>,
    /// The group it belongs to, once committed.
    pub group: Option<u32>,
}

/// Pending wgmma of a warp.
#[derive(Debug, Default)]
pub(crate) struct Products {
    pub in_flight: Vec<InFlight>,
    /// Number of groups committed, and of wgmma up to the end of each.
    pub committed: u32,
    pub ends: Vec<u32>,
    /// Whether the warp has executed `wgmma.fence`.
    pub fenced: bool,
}
