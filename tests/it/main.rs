//! The integration tests, one binary: `KILN_DEVICE` chooses the device they run on.

mod allocations;
mod cache;
mod cli;
mod deploy;
mod errors;
mod golden;
mod graph;
mod harness;
mod hostile;
mod knobs;
mod onnx;
mod pack;
mod pointwise;
#[cfg(feature = "remote")]
mod remote;
mod special;
mod tidy;
mod warm;
