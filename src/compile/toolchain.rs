//! Identity of the NVRTC that compiles an image.

use serde::{Deserialize, Serialize};

use crate::compile::Compiler;
use crate::error::Result;

/// Version and build of an NVRTC library: part of every cache key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Toolchain {
    /// Major and minor version.
    pub version: (i32, i32),
    /// `__CUDACC_VER_BUILD__`.
    pub build: u32,
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version;
        write!(f, "NVRTC {major}.{minor}.{}", self.build)
    }
}

impl Toolchain {
    /// Queries a loaded library.
    ///
    /// # Errors
    /// As [`Compiler::build`].
    pub fn of(compiler: &Compiler) -> Result<Toolchain> {
        Ok(Toolchain { version: compiler.version(), build: compiler.build()? })
    }
}
