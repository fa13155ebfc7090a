//! State of a launch that all blocks share.

use crate::admission::product;
use crate::heap::Heap;
use crate::launch::Launch;
use crate::memory::{Allocation, Memory, Table};
use crate::module::Kernel;
use crate::op::MicroOp;
use crate::place::Place;
use crate::program::Program;
use crate::registers::{LANES, Row, Slot};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// State of a launch that all blocks share.
pub(crate) struct Context<'a> {
    pub kernel: &'a Kernel,
    pub program: &'a Program,
    pub launch: &'a Launch,
    pub memory: &'a Memory,
    pub table: &'a Table,
    pub params: &'a [u32],
    pub param_bytes: u64,
    /// Addresses of the module's variables.
    pub variables: &'a [u64],
    /// Address of the workspace of a cooperative grid, which its barriers use; 0 for other grids.
    pub workspace: u64,
    /// Index of the heap's allocation, where the kernel allocates.
    pub heap: Option<usize>,
    /// Thread indices by warp and axis.
    pub threads: Vec<[Row<u32>; 3]>,
    /// Cluster shape, and whether the kernel or the launch specified it.
    pub cluster: [u32; 3],
    pub explicit_cluster: bool,
    pub sm_count: u32,
    pub seed: u64,
    /// Whether the host processor supports x86-64-v3.
    pub has_v3: bool,
    /// Warp instructions executed so far; counted only if the launch has a limit.
    pub executed: AtomicU64,
}

impl<'a> Context<'a> {
    /// Operand list of an op: destinations, then sources.
    pub fn list(&self, op: &MicroOp) -> &'a [Slot] {
        &self.program.lists[op.list as usize..]
    }

    /// Clusters that are run.
    pub fn clusters(&self) -> u64 {
        let all = product(self.launch.grid) / product(self.cluster);
        self.launch.clusters_max.map_or(all, |most| most.clamp(1, all.max(1)).min(all))
    }

    /// The heap and its allocation.
    pub fn heap(&self) -> Option<(&'a Allocation, &'a Heap)> {
        let of = self.table.get(self.heap?)?;
        Some((of, of.heap.as_ref()?))
    }

    /// Index of a block in the grid, by linear index.
    pub fn block_index(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [linear % x, linear / x % y, linear / x / y].map(|part| part as u32)
    }

    /// Remaining number of warp instructions.
    pub fn instructions_left(&self) -> u64 {
        match self.launch.warp_instructions_max {
            Some(max) => max.saturating_sub(self.executed.load(Relaxed)),
            None => u64::MAX,
        }
    }

    /// Forgets what was executed.
    pub fn restart(&self) {
        self.executed.store(0, Relaxed);
    }

    /// Adds executed warp instructions to the count.
    pub fn count_instructions(&self, count: u64) {
        if self.launch.warp_instructions_max.is_some() {
            self.executed.fetch_add(count, Relaxed);
        }
    }

    pub fn place(&self, block: [u32; 3], thread: [u32; 3], pc: u32) -> Place {
        let origin = self.program.origins[pc as usize];
        let module = &self.kernel.module;
        let file = module.ast.files.get(&origin.loc.file);
        Place {
            kernel: self.kernel.name().to_string(),
            block,
            thread,
            line: origin.line,
            text: module.line(origin.line).split_whitespace().collect::<Vec<_>>().join(" "),
            source: file.map(|file| (file.clone(), origin.loc.line)),
        }
    }
}

/// Thread indices of each warp of a block.
pub(crate) fn thread_rows(block: [u32; 3]) -> Vec<[Row<u32>; 3]> {
    let count: u32 = block.iter().product();
    let [x, y, _] = block;
    let warps = 0..count.div_ceil(LANES as u32);
    let row = |warp: u32, part: &dyn Fn(u32) -> u32| {
        Row(std::array::from_fn(|lane| part(warp * LANES as u32 + lane as u32)))
    };
    warps.map(|w| [row(w, &|t| t % x), row(w, &|t| t / x % y), row(w, &|t| t / x / y)]).collect()
}
