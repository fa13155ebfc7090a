//! NVIDIA GPUs as plain numbers: throughputs, limits, and how full a kernel makes them.
//!
//! ```
//! use kiln_machine::{Machine, Occupancy, Resources};
//!
//! let resources = Resources { registers: 64, shared_bytes: 48 << 10 };
//! let occupancy = Occupancy::of(&Machine::A100, 256, resources);
//! assert_eq!((occupancy.blocks, occupancy.warps), (3, 24));
//! ```

mod occupancy;
mod table;

pub use occupancy::{Limit, Occupancy, Resources};
pub use table::{Machine, Operands, TensorRates};

/// The examples of the readme.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
