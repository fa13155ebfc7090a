//! Reads the machine code of NVIDIA GPUs (SASS), and estimates how long it takes.
//!
//! A cubin holds, besides what an instruction does, when it may issue: clocks to stall, and
//! scoreboards that it sets and waits for. So one warp can be walked through its code, clock by
//! clock, without a GPU. With how often each part is executed, which a simulator or a profile says,
//! that gives the latency of a kernel and what its parts are busy with.
//!
//! ```text
//!  bytes -> Cubin -> Code: instructions, with lines of PTX and CUDA
//!                     |
//!                    Flow: blocks, edges, loops
//!                     |
//!        Execution: how often each block is executed
//!                     |
//!  Walk (one warp) + Sm (a thread block) + Work (all warps) -> Estimate, Finding
//! ```
//!
//! Sources: the encoding of the 128-bit instructions since Volta, as CuAssembler and Jia et al.,
//! "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (2018), describe it;
//! opcodes and their units, as nvdisasm prints what NVRTC and ptxas emit for sm_75 to sm_120a.

mod architecture;
mod control;
mod cubin;
mod error;
mod estimate;
mod execution;
mod finding;
mod flow;
mod instruction;
mod l2;
mod lines;
mod opcode;
mod path;
mod role;
mod sm;
mod walk;

pub use architecture::{Architecture, Latencies, SCHEDULERS};
pub use control::Control;
pub use cubin::{Code, Cubin};
pub use error::Error;
pub use estimate::{Bound, Clocks, Estimate, Launch, LoopEstimate, Mix};
pub use execution::Execution;
pub use finding::Finding;
pub use flow::{Block, Edge, Flow, Loop};
pub use instruction::{Instruction, Jump, Shape};
pub use l2::{Stream, TileOrder};
pub use opcode::{Opcode, Pipe};
pub use walk::Walk;

/// The examples of the readme.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
