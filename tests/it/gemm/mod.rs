//! Products of matrices with what surrounds them, against the reference.

pub mod cases;
mod counters;
mod dynamic;
mod exits;
pub mod fusion;
mod mixed;
mod refusals;
mod settings;
mod shapes;
mod twins;
mod wgmma;
