//! The recurrences of a plan: stages of executions one after the other can run side by side.

use crate::device::Device;
use crate::engine::{CostModel, predicted_us};
use crate::graph::Operation;
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;

/// The recurrences of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Recurrences {
    pub(crate) count: usize,
    /// The most blocks of one.
    pub(crate) blocks: u32,
    /// The most that one takes by the cost model, in microseconds.
    pub(crate) us: f64,
}

impl Kiln {
    /// Whether kernels may begin before those before them have ended.
    pub(crate) fn overlaps_launches(&self) -> bool {
        self.inner.overlap_launches
    }
}

impl ExecutionPlan {
    /// The recurrences of the plan; `None` where there is none, where one is more than a kernel, or
    /// where all its blocks must be on the device at once: two such may not be.
    pub(crate) fn recurrences(&self) -> Option<Recurrences> {
        let target = self.inner.device.target();
        let mut all = Recurrences { count: 0, blocks: 0, us: 0.0 };
        for kernel in self.kernels().iter().filter(|of| of.part().graph.is_recurrent()) {
            let launch = kernel.launch();
            if kernel.launches != 1 || launch.cooperative {
                return None;
            }
            let part = kernel.part();
            let supported = part.supported(target).ok()?;
            let us = predicted_us(&*supported, &CostModel::of(target), &part.config);
            all.count += 1;
            all.blocks = all.blocks.max(launch.grid);
            all.us = all.us.max(us);
        }
        (all.count > 0).then_some(all)
    }

    /// Whether each part is run as the one of another plan is that writes the same: by the same
    /// engine and knobs, and with no more registers spilled.
    pub(crate) fn runs_as_part_of(&self, other: &ExecutionPlan) -> bool {
        let spilled = |plan: &ExecutionPlan| {
            let bytes = plan.kernels().iter().map(|of| of.report().resources.spill_bytes);
            bytes.max().unwrap_or(0)
        };
        let others = other.parts();
        let alike = self.parts().iter().all(|own| {
            let written = &own.graph.operations()[0].outputs;
            let writes = |of: &Operation| of.outputs == *written;
            let other = others.iter().find(|of| of.graph.operations().iter().any(writes));
            other.is_some_and(|other| other.config == own.config)
        });
        alike && spilled(self) <= spilled(other)
    }

    /// The device that it runs on.
    pub(crate) fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The stage of each kernel.
    pub(crate) fn stages(&self) -> impl Iterator<Item = usize> + '_ {
        self.kernels().iter().map(|kernel| kernel.stage)
    }
}
