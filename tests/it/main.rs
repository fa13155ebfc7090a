//! The integration tests, one binary: `KILN_DEVICE` chooses the device they run on.

mod allocations;
mod cache;
mod cli;
mod docs;
mod dump;
mod errors;
mod golden;
mod graph;
mod harness;
mod instructions;
mod knobs;
mod mutations;
mod onnx;
mod overrides;
mod pack;
mod page;
mod pointwise;
#[cfg(feature = "remote")]
mod remote;
mod replay;
mod special;
mod tidy;
mod warm;
