//! Workspace between kernels: split-K partial accumulators and partial reductions.

use std::ops::Range;

/// Maximum size of split-K partials in bytes.
pub(super) const PARTIALS_BYTES_MAX: i64 = 1 << 40;

/// Workspace passed between kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partials {
    /// Whether it includes split-K partial accumulators.
    pub(super) accumulators: bool,
    /// Epilogue reductions whose partials it includes.
    pub(super) reductions: Range<usize>,
}
