//! A network with loops that has been planned.

use crate::device::Buffer;
use crate::loops::{Network, Program};
use crate::plan::ExecutionPlan;

/// What all runs of a network share.
pub(super) struct Planned {
    pub(super) network: Network,
    pub(super) program: Program,
    /// The plans of the program's graphs.
    pub(super) plans: Vec<ExecutionPlan>,
    /// Zeros for every element that may have to be cleared or does not exist.
    pub(super) zeros: Buffer,
    /// The device's identity ([`Buffer::owner`]).
    pub(super) owner: usize,
}
