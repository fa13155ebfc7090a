//! Runs PTX on the machine and checks what it computes and how it fails.

mod attention;
mod blocks;
mod checks;
mod command;
mod copies;
mod counters;
mod device;
mod errors;
mod exchange;

mod instructions;
mod matrix;
mod misuse;
mod pointwise;
mod products;
mod properties;
mod refusals;
mod run;
mod sharing;
mod warpgroup;
