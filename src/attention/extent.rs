//! Extents of a layer call.

use crate::attention::data::SequenceAxis;

/// Number and memory order of a call's vectors, and the call's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionExtent {
    /// Batch size.
    pub batch: i64,
    /// Beam size of queries.
    pub beams: i64,
    /// Maximum number of time steps of queries.
    pub queries: i64,
    /// Maximum number of time steps of keys.
    pub keys: i64,
    /// Memory order of all vectors, outermost first.
    pub order: [SequenceAxis; 3],
    /// Whether residuals are added.
    pub residuals: bool,
    /// Whether a call computes a single time step; the graphs do not depend on which.
    pub one_step: bool,
    /// Whether the log-sum-exp of the scores is kept for a backward pass.
    pub training: bool,
}

impl Default for AttentionExtent {
    /// One vector.
    fn default() -> AttentionExtent {
        AttentionExtent {
            batch: 1,
            beams: 1,
            queries: 1,
            keys: 1,
            order: [SequenceAxis::Batch, SequenceAxis::Beam, SequenceAxis::Time],
            residuals: false,
            one_step: false,
            training: false,
        }
    }
}

impl AttentionExtent {
    /// Number of time steps computed.
    pub fn steps(&self) -> i64 {
        if self.one_step { 1 } else { self.queries }
    }
}
