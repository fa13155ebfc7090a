//! From CUDA C++ text to a cubin and its PTX, through NVRTC.
//!
//! NVRTC is found and loaded only when something must be compiled: a cache hit needs none of it.
//! This module knows sources and images; it must never know graphs, caches or devices.

mod disassemble;
mod elf;
mod environment;
mod image;
mod locate;
mod nvrtc;
mod pool;
mod toolchain;

pub use disassemble::disassemble;
pub use environment::{is_privileged, variable};
pub use image::{Image, Resources};
pub use locate::{Located, Search, locate, places};
pub use nvrtc::Compiler;
pub(crate) use pool::at_once;
pub use pool::compile_all;
pub use toolchain::Toolchain;

use crate::target::Arch;

/// The options a source is compiled with, without paths: what the cache key covers.
///
/// Contraction is off because templates write every fusion they mean; line information costs
/// nothing at run time and lets profilers and the simulator speak in source lines.
pub fn options(arch: Arch) -> Vec<String> {
    vec![
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_owned(),
        "--fmad=false".to_owned(),
        "--generate-line-info".to_owned(),
        // A constexpr of the header block that this variant does not need.
        "--diag-suppress=177".to_owned(),
        "--ptxas-options=--verbose".to_owned(),
    ]
}
