//! How long a kernel takes on a GPU, by its machine code and what the simulated device counted.

use std::collections::BTreeMap;

use kiln_machine::Machine;
use kiln_sass::{Code, Cubin, Estimate, Launch};

use crate::device::Counters;
use crate::error::{Error, Result};
use crate::plan::recipe::PlannedKernel;
use crate::target::Target;

impl PlannedKernel {
    /// Its machine code, and an estimate of a launch on a machine of its architecture, from the
    /// counters of a launch on a device of `target`.
    ///
    /// # Errors
    /// `Internal` when the kernel has no cubin, as where PTX alone is compiled, or one that is
    /// damaged.
    pub fn clocks(
        &self,
        target: &Target,
        machine: &Machine,
        counters: &Counters,
    ) -> Result<(Code, Estimate)> {
        let cubin = Cubin::parse(&self.image.cubin)
            .map_err(|error| Error::internal("failed to read the machine code").caused_by(error))?;
        let entry = &self.source.entry;
        let code = cubin.codes.into_iter().find(|code| code.name == *entry);
        let code =
            code.ok_or_else(|| Error::internal(format!("the cubin contains no kernel `{entry}`")))?;
        // Of a sample of the blocks, the others did as much.
        let blocks = u64::from(self.launch.grid).max(1);
        let all = |count: u64| {
            (u128::from(count) * u128::from(blocks) / u128::from(counters.blocks.max(1))) as u64
        };
        let lines = counters.lines.iter();
        let lines: BTreeMap<u32, Vec<u64>> =
            lines.map(|line| (line.line, line.warps.iter().map(|&of| all(of)).collect())).collect();
        // The distinct sectors of a sample say nothing of those of the others.
        let dram_bytes = match counters.blocks == blocks {
            true => counters.dram_bytes(),
            false => self.part.graph.bytes_min().min(all(counters.dram_bytes())),
        };
        let total = &counters.total;
        let shared_bytes = self.report.resources.shared_bytes + self.launch.shared_bytes;
        // The counters know of no L2 that is too small, nor of blocks that were not counted.
        let order = match self.position {
            0 => self.part.supported(target)?.tile_order(&self.part.config),
            _ => None,
        };
        let launch = Launch {
            blocks,
            counted: counters.blocks,
            threads: self.launch.threads,
            shared_bytes,
            lines: &lines,
            wavefronts: all(total.shared_loads.wavefronts + total.shared_stores.wavefronts),
            paired: all(total.shared_loads.paired),
            copied_bytes: all(total.copies.bytes),
            cluster_sectors: all(total.copies.cluster_sectors),
            l2_bytes: all(total.global.sectors * 32),
            beyond_l1_bytes: all(total.global.beyond_l1(counters.dram_read_bytes)),
            dram_bytes,
            order: order.as_ref(),
        };
        let estimate = Estimate::of(&code, machine, &launch);
        Ok((code, estimate))
    }
}
