//! Scaled dot product attention.

pub mod cases;
mod counters;
mod decode;
mod features;
mod manifest;
mod meaning;
mod random;
mod registers;
mod shapes;
mod wgmma;
