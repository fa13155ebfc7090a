//! Hardware-independent counters of a launch, by class, PTX line and CUDA line, with global memory
//! traffic and shared memory bank conflicts.
//!
//! PTX instructions are counted, some of which the assembler merges, splits or drops. The counts
//! compare two versions of a kernel well, and a kernel with its bound roughly.

mod class;
mod counting;
mod display;
mod products;
mod roofline;

pub use class::InstructionClass;
pub(crate) use counting::{Counting, PeerCopy};
pub use products::ProductCount;
pub(crate) use products::product;
pub use roofline::{Bound, Estimate, Part};

/// Global memory traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GlobalCount {
    /// Warp instructions that access global memory.
    pub requests: u64,
    /// Bytes requested by the lanes.
    pub bytes: u64,
    /// 32-byte sectors, counted once per request.
    pub sectors: u64,
    /// 128-byte lines, counted once per request.
    pub lines: u64,
    /// Sectors of plain loads, which L1 may hold.
    pub cached_sectors: u64,
}

/// Shared memory traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SharedCount {
    /// Warp instructions that access shared memory.
    pub requests: u64,
    /// Wavefronts: passes over the 32 banks, each of which delivers one word per pass to all lanes.
    pub wavefronts: u64,
    /// Wavefronts beyond the minimum for the access size: 1 up to 4 bytes, 2 for 8, 4 for 16, half
    /// as many where pairs of lanes load the same.
    pub conflicts: u64,
    /// Wavefronts that loads save whose lanes are pairs, one or two apart, that load the same.
    pub paired: u64,
}

/// Asynchronous copies to shared memory, and asynchronous stores to that of other blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CopyCount {
    /// Bytes that are written, in every block that a copy is multicast to.
    pub bytes: u64,
    /// Bytes of those that come from another block of the cluster.
    pub cluster_bytes: u64,
    /// Sectors of 32 bytes that those touch, by passes of up to 128 bytes: of lanes whose 16 bytes
    /// are apart, each has its own.
    pub cluster_sectors: u64,
}

/// Counts of an instruction, a line or a launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Count {
    /// Instructions, counted once per warp.
    pub warp_instructions: u64,
    /// Instructions, counted once per active lane.
    pub lane_instructions: u64,
    /// Divergent conditional branches.
    pub diverged: u64,
    /// Global memory traffic.
    pub global: GlobalCount,
    /// Shared memory loads.
    pub shared_loads: SharedCount,
    /// Shared memory stores and atomics.
    pub shared_stores: SharedCount,
    /// Copies to shared memory by TMA, and asynchronous stores.
    pub copies: CopyCount,
}

/// Instruction counts of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClassCount {
    /// Instruction class.
    pub class: InstructionClass,
    /// Instructions, counted once per warp.
    pub warp_instructions: u64,
    /// Instructions, counted once per active lane.
    pub lane_instructions: u64,
}

/// Counts of a PTX line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineCount {
    /// Line number, from 1.
    pub line: u32,
    /// Text of the line.
    pub text: String,
    /// CUDA file and line of its origin.
    pub source: Option<(String, u32)>,
    /// Counts.
    pub count: Count,
    /// Of its instructions, those of each warp of a block, in all blocks.
    pub warps: Vec<u64>,
}

/// Counts of a CUDA line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceCount {
    /// Source file.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Counts.
    pub count: Count,
}

/// Counters of a launch; displayed as a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Total counts.
    pub total: Count,
    /// Counts of the classes that occurred.
    pub classes: Vec<ClassCount>,
    /// MMA counts by operand type, of those that occurred.
    pub products: Vec<ProductCount>,
    /// Counts by PTX line, in order.
    pub lines: Vec<LineCount>,
    /// Counts by CUDA line, in order of file and line.
    pub sources: Vec<SourceCount>,
    /// Compulsory DRAM reads in bytes: the distinct sectors read.
    pub dram_read_bytes: u64,
    /// Compulsory DRAM writes in bytes: the distinct sectors written.
    pub dram_written_bytes: u64,
    /// Minimum memory traffic stated by the caller.
    pub bytes_min: Option<u64>,
    /// Blocks that were run: all of the grid, unless it was limited.
    pub blocks: u64,
}

impl Count {
    fn add(&mut self, other: &Count) {
        self.warp_instructions += other.warp_instructions;
        self.lane_instructions += other.lane_instructions;
        self.diverged += other.diverged;
        self.global.requests += other.global.requests;
        self.global.bytes += other.global.bytes;
        self.global.sectors += other.global.sectors;
        self.global.lines += other.global.lines;
        self.global.cached_sectors += other.global.cached_sectors;
        self.shared_loads.add(&other.shared_loads);
        self.shared_stores.add(&other.shared_stores);
        self.copies.bytes += other.copies.bytes;
        self.copies.cluster_bytes += other.copies.cluster_bytes;
        self.copies.cluster_sectors += other.copies.cluster_sectors;
    }

    /// Mean number of active lanes per instruction; 32 without divergence.
    pub fn active_lanes(&self) -> f64 {
        ratio(self.lane_instructions, self.warp_instructions)
    }
}

impl GlobalCount {
    /// Bytes that L2 is asked for at least: all but what plain loads ask for again, of a launch
    /// that reads `distinct` bytes.
    pub fn beyond_l1(&self, distinct: u64) -> u64 {
        let cached = self.cached_sectors * 32;
        self.sectors * 32 - cached + cached.min(distinct)
    }

    /// Mean number of sectors per request; 4 for coalesced 4-byte accesses.
    pub fn sectors_per_request(&self) -> f64 {
        ratio(self.sectors, self.requests)
    }
}

impl SharedCount {
    fn add(&mut self, other: &SharedCount) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.conflicts += other.conflicts;
        self.paired += other.paired;
    }
}

impl Counters {
    /// DRAM traffic in bytes with perfect caches.
    pub fn dram_bytes(&self) -> u64 {
        self.dram_read_bytes + self.dram_written_bytes
    }

    /// Counts of a class.
    pub fn class(&self, class: InstructionClass) -> ClassCount {
        let none = ClassCount { class, warp_instructions: 0, lane_instructions: 0 };
        self.classes.iter().copied().find(|count| count.class == class).unwrap_or(none)
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}
