//! Runs PTX on the machine and checks what it computes and how it fails.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod accesses;
mod asynchronous;
mod attention;
mod blocks;
mod cases;
mod checks;
mod clusters;
mod command;
mod compilers;
mod cooperative;
mod copies;
mod counters;
mod device;
mod elements;
mod errors;
mod exchange;
mod expectation;
mod headers;
mod instructions;
mod list;
mod lstm;
mod matrix;
mod misuse;
mod mutations;
mod noncoherent;
mod pointwise;
mod products;
mod properties;
mod refusals;
mod registers;
mod run;
mod sharing;
mod starts;
mod tensor_core;
mod tiles;
mod triton;
mod warpgroup;
mod warpgroups;
mod wide;
