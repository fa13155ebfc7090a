//! The result of a compilation.

use serde::{Deserialize, Serialize};

/// What a kernel occupies on the device, as the assembler reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Resources {
    /// 32-bit registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Local memory per thread, in bytes: spills and arrays that did not fit in registers.
    pub local_bytes: u32,
    /// Bytes stored to local memory because registers ran out.
    pub spill_bytes: u32,
}

/// A compiled kernel: a cubin for the device, its PTX for the simulator and for reading.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    /// The ELF image for exactly one architecture; empty for PTX from a user's hand, and where
    /// nothing was assembled.
    pub cubin: Vec<u8>,
    /// The text the cubin was assembled from.
    pub ptx: String,
    /// What compiler and assembler said.
    pub log: String,
    /// What the kernel occupies; all 0 without a cubin.
    pub resources: Resources,
}
