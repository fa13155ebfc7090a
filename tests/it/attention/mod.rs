//! Scaled dot product attention.

mod cases;
mod features;
mod meaning;
mod registers;
