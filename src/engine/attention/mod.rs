//! Scaled dot product attention in one pass: scores are never stored (Dao et al. 2022,
//! "FlashAttention").
//!
//! A block owns a tile of queries of a head and iterates over the tiles of keys they may attend to:
//! S = Q K^T, online softmax (P relative to the running row_max), O += P V, where O is rescaled
//! whenever row_max grows. Tiles without an unmasked key are skipped, whatever masks them.
//!
//! `problem` describes the computation, `score` turns everything that modifies or masks a score
//! into one program, `parameters` renders both. The engines differ in the main loop.

mod backward;
mod decode;
mod mma;
mod parameters;
mod problem;
mod schedule;
mod score;
mod simt;
mod tile_order;
mod tma_operand;
mod turns;
mod wgmma;
mod work;

pub(super) use backward::{BackwardMmaEngine, BackwardSimtEngine, BackwardWgmmaEngine};
pub(super) use decode::DecodeEngine;
pub(super) use mma::MmaEngine;
pub(super) use simt::SimtEngine;
pub(super) use wgmma::WgmmaEngine;
