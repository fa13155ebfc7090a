//! The result of a compilation.

use serde::{Deserialize, Serialize};

/// Resource usage of a kernel, as reported by the assembler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Resources {
    /// 32-bit registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Local memory per thread in bytes: spills and arrays without a place in registers.
    pub local_bytes: u32,
    /// Spill stores in bytes.
    pub spill_bytes: u32,
}

/// A compiled kernel: cubin for GPUs, PTX for the simulator and for inspection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    /// ELF image for exactly one architecture; empty for user-supplied PTX, and where nothing was
    /// assembled.
    pub cubin: Vec<u8>,
    /// PTX from which the cubin was assembled.
    pub ptx: String,
    /// Log of compiler and assembler.
    pub log: String,
    /// Resource usage; all 0 without a cubin.
    pub resources: Resources,
}

impl Image {
    /// What stands for the image of a source that does not compile.
    pub(crate) fn refused(reason: String) -> Image {
        let resources = Resources::default();
        Image { cubin: Vec::new(), ptx: String::new(), log: reason, resources }
    }

    /// Why the source does not compile, where it does not.
    pub(crate) fn refusal(&self) -> Option<&str> {
        (self.ptx.is_empty() && self.cubin.is_empty()).then_some(&self.log)
    }
}
