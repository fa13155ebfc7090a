//! Kiln turns a description of a computation into CUDA kernels specialised for exactly these
//! hyperparameters, at run time, and runs them on an NVIDIA GPU or on a simulated device.
//!
//! # The way of a graph
//!
//! Stages are plain values, each `Debug`, `Clone`, `Eq` and `Hash`; data flows one way, and only
//! [`plan`] sees every stage.
//!
//! ```text
//!  OperationGraph     graph     what is computed: tensors and operations, valid by construction
//!       |
//!  EngineConfig       engine    which engine runs it, with which knobs
//!       |
//!  KernelPlan         engine    template + parameters + architecture, and how to launch
//!       |
//!  KernelSource       codegen   readable CUDA C++, no headers (tera)
//!       |
//!  Image              compile   cubin and PTX, registers, spills (NVRTC)
//!       |             cache     by blake3 key: memory, then disk; a hit skips compile
//!       |
//!  ExecutionPlan      plan      loaded on a device; execute only launches
//!       |
//!   cuda | sim        device    one image, two devices
//! ```
//!
//! # Modules, in the order of their imports
//!
//! | module | holds | must never know |
//! |---|---|---|
//! | [`escape`], [`error`], [`dtype`], [`tensor`], [`target`] | leaf values | anything |
//! | [`expr`] | the language of everything pointwise | tensors, memory, threads |
//! | [`graph`] | operations, validation, canonical form, JSON | how anything runs |
//! | [`kernel`] | a kernel to generate and its launch | engines, devices |
//! | [`rnn`] | recurrent networks, lowered to graphs | engines |
//! | [`attention`] | the multi-head attention layer, lowered to graphs | engines |
//! | [`reference`](mod@reference) | what operations mean, in `f64`; error bounds | the engines |
//! | [`engine`] | support, knobs, heuristics, kernel parameters | addresses, compilers |
//! | [`codegen`] | templates | graphs, devices |
//! | [`compile`] | NVRTC | graphs, caches, devices |
//! | [`cache`] | keys, entries, tiers | what kernels are for |
//! | [`device`] | memory, streams, launches | graphs, plans, caches |
//! | [`plan`] | [`Kiln`], [`ExecutionPlan`], [`VariantPack`] | |
//!
//! The simulated device is the crate `kiln-sim`: a PTX machine that stands on its own. What the
//! cost model knows of GPUs is `kiln-machine`: plain numbers.
//!
//! # Cargo features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `cli` | the command `kiln`, and `sim` | yes |
//! | `sim` | the simulated device, its counters and its sanitizer | yes, through `cli` |
//! | `remote` | a store of kernels that machines share | no |
//!
//! With `default-features = false` a program has what serving on GPUs takes and nothing else.
//!
//! # Rules that hold everywhere
//!
//! * Every operation has one meaning: [`reference`](mod@reference). An engine's result is within
//!   the bound given there, on both devices, whatever the knobs; and every knob setting gives the
//!   same bits. Bounds are derived, but for how errors of a recurrent layer grow from step to step,
//!   which is sampled.
//! * [`ExecutionPlan::execute`] renders, hashes and allocates nothing and reads no environment.
//! * The cache never fails a call: what goes wrong there is a warning and a rebuild.
//! * Bad input gets an [`Error`] whose [kind](ErrorKind) says who must act; nothing panics.
//! * The environment is read once, at [`Kiln::open`]: all variables are listed at
//!   [`plan::VARIABLES`].

pub mod attention;
pub mod cache;
pub mod codegen;
pub mod compile;
pub mod device;
pub mod dtype;
pub mod engine;
pub mod error;
pub mod escape;
pub mod expr;
pub mod graph;
pub mod kernel;
pub mod plan;
pub mod reference;
pub mod rnn;
pub mod target;
pub mod tensor;

pub use crate::dtype::DType;
pub use crate::error::{CompileFailure, Error, ErrorKind, Result};
pub use crate::graph::OperationGraph;
pub use crate::plan::{Config, ExecutionPlan, Kiln, VariantPack};
pub use crate::tensor::TensorDesc;

/// The examples of the README, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
