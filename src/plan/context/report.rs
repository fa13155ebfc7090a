//! How a plan came to be: what a user sees of the build.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::cache::Key;
use crate::compile::Resources;

/// Where a kernel came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Another plan of this process had it.
    Memory,
    /// A pack.
    Pack,
    /// The disk cache.
    Disk,
    /// The remote store.
    Remote,
    /// NVRTC compiled it.
    Compiled,
}

impl Origin {
    /// Its name in spans and metrics: `memory`, `pack`, `disk` or `compiled`.
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

/// How a plan came to be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildReport {
    /// The kernel's cache key.
    pub key: Key,
    /// The kernel's stem.
    pub stem: String,
    /// Where the kernel came from.
    pub origin: Origin,
    /// Time to render the source.
    pub render: Duration,
    /// Time from the source to a kernel on the device.
    pub obtain: Duration,
    /// What the kernel occupies.
    pub resources: Resources,
    /// The file that stands in for the generated kernel.
    pub overridden: Option<PathBuf>,
}
