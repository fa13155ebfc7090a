//! What a launch executed, in counts that do not depend on the host: by class, by PTX line and by
//! CUDA line, with the traffic of global memory and the conflicts of shared memory.
//!
//! Counts are of PTX instructions, which the hardware's assembler merges, splits and drops some of:
//! they compare two versions of a kernel well, and a kernel with its bound roughly.

mod class;
mod counting;
mod display;
mod products;
mod roofline;

pub use class::InstructionClass;
pub(crate) use counting::Counting;
pub use products::ProductCount;
pub(crate) use products::product;
pub use roofline::{Bound, Estimate, Part};

/// Traffic of global memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GlobalCount {
    /// Instructions of a warp that touch global memory.
    pub requests: u64,
    /// Bytes that the lanes ask for.
    pub bytes: u64,
    /// Sectors of 32 bytes, each counted once for a request.
    pub sectors: u64,
    /// Lines of 128 bytes, each counted once for a request.
    pub lines: u64,
}

/// Traffic of shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SharedCount {
    /// Instructions of a warp that touch shared memory.
    pub requests: u64,
    /// Passes over the 32 banks: each bank gives one word in a pass, to all lanes that want it.
    pub wavefronts: u64,
    /// Passes beyond those that the access size needs: 1 up to 4 bytes, 2 for 8, 4 for 16.
    pub conflicts: u64,
}

/// Counts of an instruction, a line or a launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Count {
    /// Instructions, once for each warp.
    pub warp_instructions: u64,
    /// Instructions, once for each lane that took part.
    pub lane_instructions: u64,
    /// Conditional branches that a warp reached with both outcomes.
    pub diverged: u64,
    /// Global memory.
    pub global: GlobalCount,
    /// Loads from shared memory.
    pub shared_loads: SharedCount,
    /// Stores to shared memory and atomics on it.
    pub shared_stores: SharedCount,
}

/// Instructions of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClassCount {
    /// Which.
    pub class: InstructionClass,
    /// Once for each warp.
    pub warp_instructions: u64,
    /// Once for each lane that took part.
    pub lane_instructions: u64,
}

/// What one line of PTX did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineCount {
    /// The line, from 1.
    pub line: u32,
    /// Its text.
    pub text: String,
    /// The CUDA file and line that it came from.
    pub source: Option<(String, u32)>,
    /// Its counts.
    pub count: Count,
}

/// What one line of CUDA did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceCount {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// Its counts.
    pub count: Count,
}

/// What a launch executed. Its text is a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Everything.
    pub total: Count,
    /// By class, without those that did not occur.
    pub classes: Vec<ClassCount>,
    /// Matrix products by their operands, without those that did not occur.
    pub products: Vec<ProductCount>,
    /// By line of PTX, in its order.
    pub lines: Vec<LineCount>,
    /// By line of CUDA, in the order of files and lines.
    pub sources: Vec<SourceCount>,
    /// Bytes that must come from memory: the different sectors that are read.
    pub dram_read_bytes: u64,
    /// Bytes that must go to memory: the different sectors that are written.
    pub dram_written_bytes: u64,
    /// What the caller says must move at least.
    pub bytes_min: Option<u64>,
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
        self.shared_loads.add(&other.shared_loads);
        self.shared_stores.add(&other.shared_stores);
    }

    /// Lanes that took part in an instruction, on average; 32 where nothing diverges.
    pub fn active_lanes(&self) -> f64 {
        ratio(self.lane_instructions, self.warp_instructions)
    }
}

impl GlobalCount {
    /// Sectors of a request, on average: 4 for whole words of 4 bytes one after the other.
    pub fn sectors_per_request(&self) -> f64 {
        ratio(self.sectors, self.requests)
    }
}

impl SharedCount {
    fn add(&mut self, other: &SharedCount) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.conflicts += other.conflicts;
    }
}

impl Counters {
    /// Bytes between the device's memory and its caches, if the caches hold everything else.
    pub fn dram_bytes(&self) -> u64 {
        self.dram_read_bytes + self.dram_written_bytes
    }

    /// The counts of a class.
    pub fn class(&self, class: InstructionClass) -> ClassCount {
        let none = ClassCount { class, warp_instructions: 0, lane_instructions: 0 };
        self.classes.iter().copied().find(|count| count.class == class).unwrap_or(none)
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}
