//! Launch configurations and reports.

use crate::checks::Checks;
use crate::counters::Counters;
use crate::finding::Finding;
use crate::module::Kernel;

/// Configuration of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Grid size in blocks along x, y and z.
    pub grid: [u32; 3],
    /// Block size in threads along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be co-resident, as grid barriers require.
    pub cooperative: bool,
    /// Cluster size in blocks along x, y and z; zeros use the kernel's own.
    pub cluster: [u32; 3],
    /// Sanitizer checks.
    pub checks: Checks,
    /// Whether to count executed instructions and memory traffic.
    pub counters: bool,
    /// Minimum memory traffic of the problem in bytes, for comparison with the counters.
    pub bytes_min: Option<u64>,
    /// Maximum number of warp instructions; `None` for no limit. Each worker may exceed it by a
    /// time slice, at most 4096 instructions.
    pub warp_instructions_max: Option<u64>,
}

impl Default for Launch {
    /// One thread, no checks.
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
    /// The cluster's shape: that of the kernel, that of the launch, or one block.
    pub(crate) fn cluster_of(&self, kernel: &Kernel) -> [u32; 3] {
        let own = if self.cluster == [0; 3] { [1; 3] } else { self.cluster };
        kernel.cluster().unwrap_or(own)
    }
}

/// Report of a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Instructions executed, counted once per warp.
    pub warp_instructions: u64,
    /// Instructions executed, counted once per active lane.
    pub lane_instructions: u64,
    /// Sanitizer findings in order of occurrence.
    pub findings: Vec<Finding>,
    /// Counters, if requested.
    pub counters: Option<Box<Counters>>,
    /// Output of `printf` in block order.
    pub printed: String,
}
