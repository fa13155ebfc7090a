//! The lengths of sequences in a part of their steps.

use crate::device::Stream;
use crate::error::Result;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::rnn::PartLengths;

/// What computes how many steps each sequence has in a part ([`PartLengths`]).
#[derive(Debug, Clone)]
pub(super) struct Lengths {
    plan: ExecutionPlan,
    pack: VariantPack,
}

impl Lengths {
    /// Those of so many sequences.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(super) fn new(kiln: &Kiln, batch: i64) -> Result<Lengths> {
        let graph = PartLengths::graph(batch)?;
        let plan = kiln.plan(&graph)?;
        let mut pack = VariantPack::new();
        for uid in [PartLengths::READ, PartLengths::WRITTEN] {
            let bytes = graph.tensor(uid)?.span_bytes()?;
            pack.place(uid, DeviceMemory { address: 0, bytes });
        }
        Ok(Lengths { plan, pack })
    }

    /// Writes the lengths in so many steps from a step on.
    ///
    /// # Errors
    /// As [`ExecutionPlan::execute`].
    pub(super) fn execute(
        &mut self,
        stream: &Stream,
        [first, steps]: [i64; 2],
        lengths: Slot,
        to: Slot,
    ) -> Result<()> {
        for (uid, slot) in &mut self.pack.entries {
            match *uid {
                PartLengths::READ => *slot = lengths,
                PartLengths::WRITTEN => *slot = to,
                _ => {}
            }
        }
        self.pack.set_value(PartLengths::FIRST, first as f64);
        self.pack.set_value(PartLengths::STEPS, steps as f64);
        self.plan.execute(stream, &self.pack)
    }
}
