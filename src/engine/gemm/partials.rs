//! Workspace between kernels: split-K partial accumulators and partial reductions.

use std::ops::Range;

/// Maximum size of split-K partials in bytes.
pub(super) const PARTIALS_BYTES_MAX: i64 = 1 << 40;

/// Workspace passed between kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    /// Whether it includes split-K partial accumulators.
    pub(super) sums: bool,
    /// Epilogue reductions whose partials it includes.
    pub(super) exits: Range<usize>,
}
