//! Build reports: the origin of a kernel and the time to obtain it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::cache::Key;
use crate::compile::Resources;

/// The origin of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Loaded before by this process.
    Memory,
    /// A pack.
    Pack,
    /// The disk cache.
    Disk,
    /// The remote store.
    Remote,
    /// Compiled by NVRTC.
    Compiled,
}

impl Origin {
    /// Name in spans and metrics: `memory`, `pack`, `disk`, `remote` or `compiled`.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Memory => "memory",
            Origin::Pack => "pack",
            Origin::Disk => "disk",
            Origin::Remote => "remote",
            Origin::Compiled => "compiled",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Memory => "memory hit",
            Origin::Pack => "pack hit",
            Origin::Disk => "disk hit",
            Origin::Remote => "remote hit",
            Origin::Compiled => "compiled",
        })
    }
}

/// The build report of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildReport {
    /// The kernel's cache key.
    pub key: Key,
    /// The kernel's stem.
    pub stem: String,
    /// The kernel's origin.
    pub origin: Origin,
    /// Time to render the source.
    pub render: Duration,
    /// Time from the rendered source to the loaded kernel.
    pub obtain: Duration,
    /// Registers, shared memory and spills.
    pub resources: Resources,
    /// The file that replaced the generated kernel, if any.
    pub overridden: Option<PathBuf>,
}
