//! A PTX machine that runs CUDA kernels without a GPU, and checks them.
//!
//! A [`Module`] is parsed, verified and decoded PTX; a [`Device`] has memory and launches a
//! module's kernels. Results are those of the hardware where PTX defines them; `.approx` functions
//! return the correctly rounded value. Every access is checked: an access outside an allocation,
//! after a free or misaligned fails with the kernel, thread, PTX line and CUDA line. So do
//! divergent barriers and deadlocks. [`Launch::checks`] enables checks for data races,
//! uninitialised reads and mismatched barriers, [`Launch::counters`] counts what is executed.
//! Unsupported PTX is rejected when the module is loaded.
//!
//! Launches are deterministic with one worker. With more, floating-point atomics of different
//! blocks may differ in rounding, as on hardware.
//!
//! ```
//! use kiln_sim::{Device, DeviceConfig, Launch, Module};
//!
//! let module = Module::load(
//!     ".version 8.0 .target sm_90 .address_size 64
//!      .visible .entry square(.param .u64 values) {
//!          .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!          ld.param.u64 %rd1, [values];
//!          mov.u32 %r1, %tid.x;
//!          mul.wide.u32 %rd2, %r1, 4;
//!          add.s64 %rd3, %rd1, %rd2;
//!          mul.lo.u32 %r2, %r1, %r1;
//!          st.global.u32 [%rd3], %r2;
//!          ret;
//!      }",
//! )?;
//! let kernel = module.kernel("square").expect("the module has it");
//! let device = Device::new(DeviceConfig::default());
//! let values = device.alloc(4 * 4)?;
//! let shape = Launch { block: [4, 1, 1], ..Launch::default() };
//! device.launch(&kernel, &shape, &values.to_le_bytes())?;
//!
//! let mut bytes = [0; 16];
//! device.read(values, &mut bytes)?;
//! assert_eq!(bytes, [0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0]);
//!
//! // One thread too many: the store misses the buffer.
//! let wide = Launch { block: [5, 1, 1], ..shape };
//! let error = device.launch(&kernel, &wide, &values.to_le_bytes()).unwrap_err();
//! assert!(error.to_string().contains("thread (4, 0, 0)"));
//! # Ok::<(), kiln_sim::Error>(())
//! ```

/// The README's examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod accuracy;
mod admission;
mod aim;
mod ast;
mod block;
mod block_state;
mod bulk;
mod checks;
mod cluster;
mod colour;
mod config;
mod context;
mod copies;
mod counters;
mod decode;
mod descriptor;
mod device;
mod draft;
mod error;
#[cfg(feature = "cli")]
pub mod exec;
mod execute;
mod failure;
mod finding;
mod format;
mod groups;
mod half;
mod heap;
mod lanes;
mod launch;
mod lex;
mod matrix_descriptor;
mod mbarrier;
mod memory;
mod module;
mod op;
mod parse;
mod parse_body;
mod parse_prototype;
mod peers;
mod place;
mod program;
mod refused;
mod registers;
mod rounding;
mod shadow;
mod shuffle;
mod tensor_descriptor;
mod tensor_map;
mod tensor_memory;
mod tile;
mod tracked;
mod traits;
mod types;
mod undo;
mod unit;
mod warp;
mod warpgroup;
mod watch;
mod words;
mod workers;
mod written;

pub use accuracy::Accuracy;
pub use checks::Checks;
pub use config::DeviceConfig;
pub use counters::{
    Bound, ClassCount, CopyCount, Count, Counters, Estimate, GlobalCount, InstructionClass,
    LineCount, Part, ProductCount, SharedCount, SourceCount,
};
pub use device::Device;
pub use error::{Error, ErrorKind};
pub use finding::{Finding, FindingKind, FindingSet, Site};
pub use kiln_machine::{Limit, Machine, Occupancy, Operands, Resources, TensorRates};
pub use launch::{Launch, Report};
pub use module::{Kernel, Module, Param};
pub use place::Place;
pub use tensor_map::{
    Interleave, L2Promotion, OutOfBoundsFill, Swizzle, TensorMap, TensorType, Tiled,
};
