//! Products of matrices with what surrounds them, against the reference.

pub mod cases;
mod counters;
mod dynamic;
pub mod exits;
pub mod fusion;
mod mixed;
mod settings;
mod shapes;
pub mod twins;
mod wgmma;
