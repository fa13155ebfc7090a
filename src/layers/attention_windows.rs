//! The windows of a call on their way to the workspace: by value, in kernels' parameters. Nothing
//! on the host has to last, nothing is waited for, and a CUDA graph captures them as they are.

use crate::attention::WINDOW_STEPS;
use crate::device::Stream;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Concatenate, Op, OperationGraph};
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Memory, Slot, VariantPack};
use crate::tensor::TensorDesc;

const PIECE_BYTES: u64 = (WINDOW_STEPS * size_of::<i32>()) as u64;

/// What writes a piece of windows to memory.
#[derive(Clone)]
pub(super) struct WindowWriter {
    plan: ExecutionPlan,
    /// Numbers by their position in the piece, and behind them the piece.
    pack: VariantPack,
}

impl WindowWriter {
    pub(super) fn new(kiln: &Kiln) -> Result<WindowWriter> {
        let mut graph = OperationGraph::builder();
        let numbers: Vec<i64> = (0..WINDOW_STEPS as i64).collect();
        for uid in &numbers {
            let number = TensorDesc::packed(*uid, format!("number_{uid}"), &[1], DType::I32);
            graph.tensor(TensorDesc { by_value: true, ..number });
        }
        let count = WINDOW_STEPS as i64;
        graph.tensor(TensorDesc::packed(count, "piece", &[count], DType::I32));
        let op = Op::Concatenate(Concatenate::new(0, WINDOW_STEPS));
        graph.operation_into(op, &numbers, &[count]);
        let plan = kiln.plan(&graph.build()?)?;
        let mut pack = VariantPack::new();
        for uid in plan.tensors() {
            match uid == count {
                true => pack.place(uid, DeviceMemory { address: 0, bytes: PIECE_BYTES }),
                false => pack.set_value(uid, 0.0),
            }
        }
        Ok(WindowWriter { plan, pack })
    }

    /// Writes numbers to an offset of memory, which has room for whole pieces.
    pub(super) fn write(
        &mut self,
        stream: &Stream,
        numbers: &[i32],
        (memory, mut offset): (Memory<'_>, u64),
    ) -> Result<()> {
        for piece in numbers.chunks(WINDOW_STEPS) {
            for (uid, slot) in &mut self.pack.entries {
                *slot = match slot {
                    Slot::Memory { .. } => memory.slot().piece(offset, PIECE_BYTES),
                    Slot::Value(_) => {
                        Slot::Value(piece.get(*uid as usize).copied().unwrap_or(0).into())
                    }
                };
            }
            self.plan.execute(stream, &self.pack)?;
            offset += PIECE_BYTES;
        }
        Ok(())
    }
}
