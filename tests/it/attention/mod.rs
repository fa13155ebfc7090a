//! Scaled dot product attention.

pub mod cases;
mod classes;
mod counters;
mod decode;
mod eight;
mod eight_queries;
mod eight_wgmma;
pub mod features;
mod long;
mod manifest;
mod masks;
mod meaning;
mod random;
mod registers;
mod served;
mod shapes;
mod stale;
mod tf32;
mod torch;
mod torch_masks;
mod wgmma;
mod wide;
