//! Launch configurations and reports.

use crate::checks::Checks;
use crate::counters::Counters;
use crate::finding::Finding;
use crate::module::Kernel;

/// Registers of an SM, and the most that a thread is given, of which it can name 255.
pub(crate) const SM_REGISTERS: u32 = 65536;
const REGISTERS_MAX: u32 = 256;

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
    /// Whether on hardware it may begin before the launch before it in the stream has ended
    /// (programmatic dependent launch), so that its threads must wait before they access memory.
    pub programmatic: bool,
    /// Cluster size in blocks along x, y and z; zeros use the kernel's own.
    pub cluster: [u32; 3],
    /// Whether the cluster may have more than 8 blocks, which not every device runs.
    pub non_portable_cluster: bool,
    /// Registers per thread, as the assembler says. If 0, they do not limit how many blocks fit,
    /// and `setmaxnreg` starts from what the kernel's directives allow.
    pub registers: u32,
    /// Sanitizer checks.
    pub checks: Checks,
    /// Whether to count executed instructions and memory traffic.
    pub counters: bool,
    /// Minimum memory traffic of the problem in bytes, for comparison with the counters.
    pub bytes_min: Option<u64>,
    /// Run only so many clusters, spread evenly over the grid: what a large grid does shows in a
    /// few of its blocks. Memory then holds what those wrote. Not for cooperative launches.
    pub clusters_max: Option<u64>,
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
            programmatic: false,
            cluster: [0; 3],
            non_portable_cluster: false,
            registers: 0,
            checks: Checks::NONE,
            counters: false,
            bytes_min: None,
            clusters_max: None,
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

    /// Registers of each thread at the kernel's start.
    pub(crate) fn registers_of(&self, kernel: &Kernel) -> u32 {
        if self.registers != 0 {
            return self.registers;
        }
        let own = self.block.iter().product();
        let threads = kernel.block_threads_max().unwrap_or(own).max(own).max(1);
        let blocks = kernel.entry().blocks_min.unwrap_or(1).max(1);
        let share = SM_REGISTERS / threads.saturating_mul(blocks) / 8 * 8;
        kernel.entry().registers_max.unwrap_or(share).min(REGISTERS_MAX)
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
