//! Scaled dot product attention in one pass: scores are never stored (Dao et al. 2022,
//! "FlashAttention").
//!
//! A block takes some queries of a head and walks over the keys they may attend to, a tile at a
//! time: products of queries and keys become scores, scores become weights relative to the
//! greatest so far, and weighted values are added up; what has been added is scaled whenever the
//! greatest score grows. Tiles that no query of the block attends to are skipped, whatever says so.
//!
//! `problem` says what is computed, `score` turns everything that modifies or masks a score into
//! one program, `parameters` writes both as text. Engines differ in what multiplies.

mod decode;
mod mma;
mod parameters;
mod problem;
mod schedule;
mod score;
mod simt;
mod wgmma;
mod work;

pub(super) use decode::DecodeEngine;
pub(super) use mma::MmaEngine;
pub(super) use simt::SimtEngine;
pub(super) use wgmma::WgmmaEngine;
