//! Gradients of attention (Dao et al. 2022, "FlashAttention", appendix B.2): scores are computed
//! again from Q, K and the log-sum-exp of each row, and never stored.
//!
//! Sums over queries and sums over keys are those of kernels of their own, so that each has one
//! order and no two blocks add to one element: results repeat bit by bit. `kernels` has what all
//! engines share: delta, the sum of dO O of each row, and the gradients of what a score is modified
//! with. The engines differ in the kernels of dQ, and of dK and dV.

mod kernels;
mod mma;
mod parameters;
mod problem;
mod simt;

pub(in crate::engine) use mma::BackwardMmaEngine;
pub(in crate::engine) use simt::BackwardSimtEngine;
