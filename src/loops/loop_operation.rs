//! A loop that an operation of a graph does.

use crate::loops::layer::Loop;

/// Names of the steps.
pub(super) const RECURRENT: &str = "recurrent layer";
pub(super) const POINTWISE: &str = "pointwise loop";
pub(super) const RESIDENT: &str = "resident loop";

/// A loop that is one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopOperation {
    /// The loop.
    pub(crate) of: Loop,
    /// The step of the ladder.
    pub(crate) step: &'static str,
    /// The tensor that has a count.
    pub(crate) count: Option<i64>,
    /// The tensor that has the number of trips, where a condition decides it.
    pub(crate) trips: Option<i64>,
    /// The least extent that the loop iterates over.
    pub(crate) extent: i64,
    /// The least length of its outputs.
    pub(crate) length: i64,
    /// A result of the operation.
    pub(super) y: i64,
}
