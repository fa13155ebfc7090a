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
    /// The ELF image for exactly one architecture; empty for PTX from a user's hand.
    pub cubin: Vec<u8>,
    /// The text the cubin was assembled from.
    pub ptx: String,
    /// What compiler and assembler said.
    pub log: String,
    /// What the kernel occupies.
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
