//! A launch: its shape, and what it gives.

use crate::checks::Checks;
use crate::counters::Counters;
use crate::finding::Finding;
use crate::module::Kernel;

/// The shape of one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be resident at once, as grid barriers need.
    pub cooperative: bool,
    /// Blocks of a cluster along x, y and z; zeros for what the kernel itself says.
    pub cluster: [u32; 3],
    /// What to look for.
    pub checks: Checks,
    /// Whether to count what is executed.
    pub counters: bool,
    /// Bytes that must move between memory and the device at least, for the counters to compare.
    pub bytes_min: Option<u64>,
    /// Instructions that the launch may execute, each counted once for a warp; none for no limit.
    /// Several workers may each exceed it by what they have begun, at most 4096.
    pub warp_instructions_max: Option<u64>,
}

impl Default for Launch {
    /// One thread, and nothing looked for.
    fn default() -> Launch {
        Launch {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            cooperative: false,
            cluster: [0; 3],
            checks: Checks::NONE,
            counters: false,
            bytes_min: None,
            warp_instructions_max: None,
        }
    }
}

impl Launch {
    /// The cluster's shape: the kernel's own, the launch's, or one block.
    pub(crate) fn cluster_of(&self, kernel: &Kernel) -> [u32; 3] {
        let own = if self.cluster == [0; 3] { [1; 3] } else { self.cluster };
        kernel.cluster().unwrap_or(own)
    }
}

/// What one launch executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Instructions executed, each counted once for a warp.
    pub warp_instructions: u64,
    /// Instructions executed, each counted once for every lane that took part.
    pub lane_instructions: u64,
    /// What the checks found, in the order in which it was met.
    pub findings: Vec<Finding>,
    /// What was executed, if the launch asked for it.
    pub counters: Option<Box<Counters>>,
    /// What `printf` wrote, block after block.
    pub printed: String,
}
