//! GEMMs with prologues and epilogues, against the reference.

pub mod cases;
mod counters;
mod dual_gemm;
mod dynamic;
mod epilogue_reductions;
pub mod fusion;
mod mixed;
mod refusals;
mod settings;
mod shapes;
mod wgmma;
