//! A warp's part of the products that its warpgroup has under way.

use crate::registers::{LANES, Slot};

/// What accumulators hold until they are waited for: a NaN that arithmetic does not make.
pub(crate) const POISON: u32 = 0x7fba_dbad;

/// The sum of products that have not been waited for.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The registers that it goes to.
    pub slots: Vec<Slot>,
    pub words: Vec<[u32; LANES]>,
    /// The group it belongs to, once committed.
    pub group: Option<u32>,
}

/// What a warp has under way.
#[derive(Debug, Default)]
pub(crate) struct Products {
    pub in_flight: Vec<InFlight>,
    /// Groups committed.
    pub committed: u32,
    /// Whether the warp has executed `wgmma.fence`.
    pub fenced: bool,
}
