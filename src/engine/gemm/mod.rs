//! GEMMs with fused pointwise operations: `epilogue(prologue_a(A) x prologue_b(B))` in one pass.
//!
//! A block computes one output tile, K step by K step, from operand tiles in shared memory.
//! Prologues run while an operand passes through registers on its way there; the epilogue runs on
//! the accumulators before they are stored, so neither adds memory traffic. Where there are fewer
//! tiles than SMs, blocks split K and a second kernel reduces their partial accumulators in a fixed
//! order.
//!
//! `problem` describes the computation for all engines, `context`, `operand` and `epilogue` what
//! templates read of it, `lowering` assembles the kernels. The engines differ in the main loop:
//! `simt` uses FP32 cores, `mma` tensor cores by `mma.sync`, `wgmma` Hopper's, in a persistent
//! warp-specialised kernel.

mod axes;
mod collapse;
mod combine;
mod context;
mod convolution;
mod epilogue;
mod epilogue_reduction;
mod finish;
mod fusion;
mod lane_columns;
mod layout;
mod lowering;
mod mma;
mod mma_tiles;
mod mma_types;
mod operand;
mod operand_sum;
mod partials;
mod phases;
mod problem;
mod rasterization;
mod simt;
mod split_k;
mod tile_order;
mod tiling;
mod walk;
mod wgmma;
mod window;
mod work;
mod workspace;

pub(super) use mma::MmaEngine;
pub(super) use simt::SimtEngine;
pub(super) use wgmma::WgmmaEngine;
