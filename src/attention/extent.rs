//! For how many vectors a layer is built.

use crate::attention::data::SequenceAxis;

/// How many vectors a call has, how they stand, and what it does with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionExtent {
    /// Beams side by side.
    pub batch: i64,
    /// Candidates of a beam of queries.
    pub beams: i64,
    /// Steps of queries that there is room for.
    pub queries: i64,
    /// Steps of keys that there is room for.
    pub keys: i64,
    /// The memory order of all vectors, outermost first.
    pub order: [SequenceAxis; 3],
    /// Whether residuals are added.
    pub residuals: bool,
    /// Whether only one step is computed, one that the graphs do not depend on.
    pub one_step: bool,
    /// Whether the logarithms of sums are kept for a backward pass.
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
    /// Steps that are computed.
    pub fn steps(&self) -> i64 {
        if self.one_step { 1 } else { self.queries }
    }
}
