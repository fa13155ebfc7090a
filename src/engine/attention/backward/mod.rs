//! Gradients of attention (Dao et al. 2022, "FlashAttention", appendix B.2): scores are computed
//! again from Q, K and the log-sum-exp of each row, and never stored.
//!
//! All engines share the kernels of delta, the sum of dO O of each row, and of the gradients of
//! what a score is modified with (`operands`). The engines differ in how dQ, and dK and dV, are
//! summed: by kernels of their own, so that no two blocks add to one element, or, on tensor cores,
//! by blocks of keys that add to dQ in an order of their tiles (`dq_accum`). Either way results
//! repeat bit by bit; only where blocks add in any order they need not.

mod delta;
mod dq_accum;
mod kernels;
mod mma;
mod operands;
mod parameters;
mod problem;
mod simt;
mod wgmma;
mod workspace;

pub(in crate::engine) use mma::BackwardMmaEngine;
pub(in crate::engine) use simt::BackwardSimtEngine;
pub(in crate::engine) use wgmma::BackwardWgmmaEngine;
