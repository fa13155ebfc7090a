//! Products of matrices with what surrounds them: `epilogue(prologue_a(A) x prologue_b(B))` in one
//! pass, any pointwise operations on either side.
//!
//! A block computes a tile of the product step by step along the depth K, from tiles of both
//! operands in shared memory. Prologues run where an operand passes through registers on its way
//! there; the epilogue runs on the sums before they are stored, so that neither costs memory
//! traffic of its own. Where tiles are too few to fill the device, blocks share the depth of a
//! tile and a second kernel adds up what they leave, in a fixed order.
//!
//! `problem` says what is computed and is the same for every kernel; `parameters` writes it as
//! text. `lowering` assembles the kernels. Engines differ in what multiplies: `simt` the ordinary
//! arithmetic units, `mma` tensor cores, `wgmma` those of Hopper with a kernel of another kind.

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
