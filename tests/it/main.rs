//! The integration tests, one binary: `KILN_DEVICE` chooses the device they run on.

mod allocations;
mod background;
mod cache;
mod cli;
mod errors;
mod general;
mod golden;
mod graph;
mod harness;
mod instructions;
mod knobs;
mod mutations;
mod observability;
mod onnx;
mod pack;
mod pointwise;
mod record;
#[cfg(feature = "remote")]
mod remote;
mod special;
mod tidy;
mod warm;
