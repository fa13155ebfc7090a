//! The integration tests, one binary: `KILN_DEVICE` chooses the device they run on.

mod allocations;
mod background;
mod cache;
mod cli;
mod deploy;
mod docs;
mod dump;
mod errors;
mod gemm;
mod general;
mod golden;
mod graph;
mod harness;
mod hostile;
mod instructions;
mod knobs;
mod mutations;
mod norm;
mod observability;
mod onnx;
mod operations;
mod overrides;
mod pack;
mod page;
mod plans;
mod pointwise;
mod random_graphs;
mod record;
mod reduction;
#[cfg(feature = "remote")]
mod remote;
mod replay;
mod rows;
mod special;
mod tidy;
mod warm;
