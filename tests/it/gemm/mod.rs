//! Products of matrices with what surrounds them, against the reference.

mod cases;
mod counters;
mod dynamic;
pub mod exits;
pub mod fusion;
mod settings;
mod shapes;
mod twins;
mod wgmma;
