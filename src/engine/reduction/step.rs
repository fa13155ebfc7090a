//! One reduction of a phase.

use crate::graph::Reduction;

/// A reduction of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) op: Reduction,
    /// The tensor that is reduced, and the one that comes of it.
    pub(super) operand: usize,
    pub(super) result: usize,
    /// The mean, if squared distances from it are reduced: a result of the same phase.
    pub(super) around: Option<usize>,
}
