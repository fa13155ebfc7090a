//! Scaled dot product attention.

mod cases;
mod meaning;
