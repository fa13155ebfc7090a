//! Scaled dot product attention.

mod backward;
pub mod backward_cases;
mod backward_counts;
mod backward_wgmma;
pub mod cases;
mod counters;
pub mod data;
mod decode;
mod fp8;
mod fp8_wgmma;
mod manifest;
mod masks;
mod meaning;
mod random;
mod registers;
mod served;
mod tf32;
mod torch;
mod torch_masks;
mod wgmma;
mod wide;
