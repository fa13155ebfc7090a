//! Tensors converted from one type to another on a device.

use crate::device::Stream;
use crate::error::Result;
use crate::graph::OperationGraph;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};

/// What converts a tensor.
#[derive(Clone)]
pub(super) struct Cast {
    plan: ExecutionPlan,
    pack: VariantPack,
    /// Uid of what is converted.
    from: i64,
}

impl Cast {
    /// Runs a graph of one input and one output.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(super) fn new(kiln: &Kiln, graph: &OperationGraph) -> Result<Cast> {
        let plan = kiln.plan(graph)?;
        let mut pack = VariantPack::new();
        for uid in plan.tensors() {
            let bytes = graph.tensor(uid)?.span_bytes()?;
            pack.place(uid, DeviceMemory { address: 0, bytes });
        }
        let from = graph.inputs().next().map_or(0, |of| of.uid);
        Ok(Cast { plan, pack, from })
    }

    /// Converts what is at `from`.
    pub(super) fn execute(&mut self, stream: &Stream, from: Slot, to: Slot) -> Result<()> {
        for (uid, slot) in &mut self.pack.entries {
            *slot = if *uid == self.from { from } else { to };
        }
        self.plan.execute(stream, &self.pack)
    }
}
