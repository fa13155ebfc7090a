//! Workspace between kernels: split-K partial accumulators and partial reductions.

use std::ops::Range;

/// Bytes of partial sums beyond which nothing is split.
pub(super) const PARTIALS_BYTES_MAX: i64 = 1 << 40;

/// Memory between kernels: what one leaves behind for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    /// Whether sums of parts of the depth are among it.
    pub(super) sums: bool,
    /// The reductions whose parts are.
    pub(super) exits: Range<usize>,
}
