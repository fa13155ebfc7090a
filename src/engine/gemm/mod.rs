//! GEMMs with fused pointwise operations: `epilogue(prologue_a(A) x prologue_b(B))` in one pass.
//!
//! A block computes one output tile, K step by K step, from operand tiles in shared memory.
//! Prologues run while an operand passes through registers on its way there; the epilogue runs on
//! the accumulators before they are stored, so neither adds memory traffic. Where there are fewer
//! tiles than SMs, blocks split K and a second kernel reduces their partial accumulators in a fixed
//! order.
//!
//! `problem` describes the computation for all engines, `parameters` renders it, `lowering`
//! assembles the kernels. The engines differ in the main loop: `simt` uses FP32 cores, `mma` tensor
//! cores by `mma.sync`, `wgmma` Hopper's, in a persistent warp-specialised kernel.

mod axes;
mod exits;
mod join;
mod lowering;
mod mma;
mod order;
mod parameters;
mod partials;
mod parts;
mod problem;
mod simt;
mod sum;
mod tiling;
mod wgmma;
mod work;

pub(super) use mma::MmaEngine;
pub(super) use simt::SimtEngine;
pub(super) use wgmma::WgmmaEngine;
