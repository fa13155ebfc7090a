//! The sum of weight gradients and those in memory.

use crate::device::Stream;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::{Op, Operation, OperationGraph};
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::tensor::TensorDesc;

/// `cudnnWgradMode_t`: what becomes of the weight gradients that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WeightGradientMode {
    /// Those of the pass are added to them.
    #[default]
    Add,
    /// They are overwritten, which recurrent networks do not support.
    Set,
}

/// Alignment of results within the workspace, in bytes.
pub(super) const SCRATCH_ALIGNMENT: u64 = 256;

/// The gradients of a weight space, added to what is in memory.
#[derive(Clone)]
pub(super) struct Sum {
    plan: ExecutionPlan,
    pack: VariantPack,
    bytes: u64,
}

impl Sum {
    /// Uids of what is in memory, of what is added to it, and of the sum.
    const UIDS: [i64; 3] = [1, 2, 3];

    /// Of a whole weight space.
    pub(super) fn new(kiln: &Kiln, tensor: &TensorDesc) -> Result<Sum> {
        let bytes = tensor.span_bytes()?;
        let named = [("before", 1), ("gradient", 2), ("after", 3)];
        let tensors = named.map(|(name, uid)| {
            let name = format!("{}_{name}", tensor.name);
            TensorDesc { uid, name, is_virtual: false, ..tensor.clone() }
        });
        let op = Op::Pointwise(Pointwise::new(Mode::Add).math(Math::of(tensor.dtype)));
        let operation = Operation { op, inputs: vec![1, 2], outputs: vec![3] };
        let graph = OperationGraph::new(tensors.to_vec(), vec![operation])?;
        let plan = kiln.plan(&graph)?;
        let mut pack = VariantPack::new();
        for uid in plan.tensors() {
            pack.place(uid, DeviceMemory { address: 0, bytes });
        }
        Ok(Sum { plan, pack, bytes })
    }

    /// Adds to what is in the weight space `gradients` what lies alike in `results`.
    pub(super) fn execute(
        &mut self,
        stream: &Stream,
        results: Slot,
        gradients: Slot,
    ) -> Result<()> {
        for (uid, slot) in &mut self.pack.entries {
            let whole = if *uid == Sum::UIDS[1] { results } else { gradients };
            *slot = whole.piece(0, self.bytes);
        }
        self.plan.execute(stream, &self.pack)
    }
}
