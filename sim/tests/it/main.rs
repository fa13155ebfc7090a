//! Runs PTX on the machine and checks what it computes and how it fails.

mod blocks;
mod pointwise;
mod run;
