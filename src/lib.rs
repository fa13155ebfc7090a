//! Kiln turns operation graphs into CUDA kernels specialised for their exact hyperparameters at run
//! time, and runs them on an NVIDIA GPU or on a simulated device.
//!
//! # From graph to launch
//!
//! Stages are plain values, each `Debug`, `Clone`, `Eq` and `Hash`; data flows one way, and only
//! [`plan`] sees every stage.
//!
//! ```text
//!  OperationGraph     graph     tensors and operations, valid by construction
//!       |
//!  EngineConfig       engine    engine and knob values
//!       |
//!  KernelPlan         engine    template, parameters, architecture, launch
//!       |
//!  KernelSource       codegen   self-contained CUDA C++ (tera)
//!       |
//!  Image              compile   cubin and PTX, registers, spills (NVRTC)
//!       |             cache     memory, then disk, by blake3 key; a hit skips compile
//!       |
//!  ExecutionPlan      plan      loaded kernels; execute only launches
//!       |
//!   cuda | sim        device    one image, two devices
//! ```
//!
//! # Modules, in import order
//!
//! | module | holds | must never know |
//! |---|---|---|
//! | [`escape`], [`error`], [`dtype`] | leaf values | anything |
//! | `lattice`, `progression`, [`tensor`], [`target`] | leaf values | anything |
//! | [`expr`] | pointwise expressions | tensors, memory, threads |
//! | [`dropout`] | which elements a layer drops in training | layers |
//! | [`graph`] | operations, validation, canonical form, JSON | execution |
//! | [`kernel`] | a kernel to generate and its launch | engines, devices |
//! | [`frontend`] | what computations lowered to graphs have in common | which there are |
//! | [`rnn`] | recurrent networks, lowered to graphs | engines |
//! | [`attention`] | the multi-head attention layer, lowered to graphs | engines |
//! | [`loops`] | networks with loops and conditionals, lowered to graphs and steps | engines |
//! | [`onednn`] | oneDNN's RNN primitive and its reorders, lowered to graphs | engines |
//! | `documents` | the list of problem documents and their readers | engines |
//! | [`reference`](mod@reference) | semantics of operations in `f64`, error bounds | the engines |
//! | [`engine`] | support, knobs, heuristics, kernel parameters | addresses, compilers |
//! | [`codegen`] | templates | graphs, devices |
//! | [`compile`] | NVRTC | graphs, caches, devices |
//! | [`cache`] | keys, entries, tiers | graphs, engines |
//! | [`device`] | memory, streams, launches | graphs, plans, caches |
//! | [`plan`] | [`Kiln`], [`ExecutionPlan`], [`VariantPack`] | front-ends |
//! | [`layers`] | layers, loops and oneDNN's primitives on a device | engines |
//!
//! The simulated device is the crate `kiln-sim`, a stand-alone PTX machine. `kiln-sass` reads
//! machine code and estimates its time, `kiln-machine` is a table of GPUs.
//!
//! # Cargo features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `cli` | the command `kiln`, and `sim` | yes |
//! | `sim` | the simulated device, its counters and its sanitizer | yes, through `cli` |
//! | `remote` | a store of kernels shared by several machines | no |
//!
//! # Invariants
//!
//! * The semantics of every operation are those of [`reference`](mod@reference). Engine results are
//!   within the bound given there, on both devices, and bit-identical for every knob
//!   configuration. Bounds are derived, except for the growth of a recurrent layer's errors from
//!   step to step, which is sampled.
//! * [`ExecutionPlan::execute`] renders, hashes and allocates nothing and reads no environment
//!   variable.
//! * The cache never fails a call: problems are logged as warnings and the kernel is rebuilt.
//! * Invalid input returns an [`Error`] whose [kind](ErrorKind) says who must act; nothing panics.
//! * The environment is read once, at [`Kiln::open`]: all variables are listed at
//!   [`plan::VARIABLES`].

pub mod attention;
pub mod cache;
pub mod codegen;
pub mod compile;
pub mod device;
mod documents;
pub mod dropout;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod escape;
pub mod expr;
pub mod frontend;
pub mod graph;
pub mod kernel;
mod lattice;
pub mod layers;
pub mod loops;
pub mod onednn;
pub mod plan;
mod progression;
pub mod reference;
pub mod rnn;
pub mod target;
pub mod tensor;

pub use crate::dtype::DType;
pub use crate::error::{CompileFailure, Error, ErrorKind, Result};
pub use crate::graph::OperationGraph;
pub use crate::plan::{Config, ExecutionPlan, Kiln, VariantPack};
pub use crate::tensor::TensorDesc;

/// The README's examples, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
