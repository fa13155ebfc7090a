//! Runs PTX on the machine and checks what it computes and how it fails.

mod attention;
mod blocks;
mod cases;
mod checks;
mod clusters;
mod command;
mod cooperative;
mod copies;
mod counters;
mod device;
mod errors;
mod exchange;
mod expectation;
mod headers;
mod instructions;
mod lstm;
mod matrix;
mod misuse;
mod mutations;
mod pointwise;
mod products;
mod properties;
mod run;
mod tiles;
mod warpgroup;
