//! The state of a layer's dropouts in device memory.

use crate::device::{Buffer, Device, Stream};
use crate::dropout::{DropoutDescriptor, POSITION_BYTES, SEED_BYTES};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::OperationGraph;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::tensor::TensorDesc;

/// Seeds and positions of a layer's dropouts (see [`DropoutDescriptor`]), which each forward pass
/// in training reads and moves on, on its stream.
///
/// In memory, the seeds come first, `i64`, then the positions, `i32`; they wrap around.
#[derive(Debug)]
pub struct DropoutStates {
    memory: Buffer,
    count: usize,
}

impl DropoutStates {
    /// Those of these dropouts before the first pass.
    pub(super) fn new(device: &Device, dropouts: &[DropoutDescriptor]) -> Result<DropoutStates> {
        let seeds = dropouts.iter().flat_map(|dropout| dropout.seed().to_ne_bytes());
        let positions = (0..dropouts.len() as i32).flat_map(i32::to_ne_bytes);
        let bytes: Vec<u8> = seeds.chain(positions).collect();
        Ok(DropoutStates { memory: device.upload(&bytes)?, count: dropouts.len() })
    }

    /// Size of the states of so many dropouts in bytes (`cudnnDropoutGetStatesSize`).
    pub const fn bytes_of(dropouts: usize) -> usize {
        dropouts * (SEED_BYTES + POSITION_BYTES)
    }

    /// Number of dropouts.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The states in memory.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// The position of each dropout for the next forward pass in training. Waits for the default
    /// stream only.
    ///
    /// # Errors
    /// `Driver` when the copy fails.
    pub fn positions(&self) -> Result<Vec<i32>> {
        let mut bytes = vec![0; self.count * POSITION_BYTES];
        self.memory.read((self.count * SEED_BYTES) as u64, &mut bytes)?;
        let integers = bytes.as_chunks::<POSITION_BYTES>().0.iter();
        Ok(integers.map(|bytes| i32::from_ne_bytes(*bytes)).collect())
    }

    /// Sets the positions (`cudnnRestoreDropoutDescriptor`): a pass from there draws what it drew.
    ///
    /// # Errors
    /// `BadParam` for another number of positions than of dropouts; `Driver` when the copy fails.
    pub fn restore(&self, positions: &[i32]) -> Result<()> {
        if positions.len() != self.count {
            let (given, count) = (positions.len(), self.count);
            let text = format!("dropout states: {given} positions of {count} dropouts");
            return Err(Error::bad_param(text));
        }
        let bytes: Vec<u8> = positions.iter().flat_map(|at| at.to_ne_bytes()).collect();
        self.memory.write((self.count * SEED_BYTES) as u64, &bytes)
    }
}

/// What a forward pass in training does with the state: it keeps a copy in the reserve space, and
/// moves the positions on.
#[derive(Clone)]
pub(super) struct Draw {
    count: usize,
    keep: (ExecutionPlan, VariantPack),
    advance: (ExecutionPlan, VariantPack),
}

/// Uids of what a graph of the states reads and writes.
const READ: i64 = 1;
const WRITTEN: i64 = 2;
const COUNT: i64 = 3;

impl Draw {
    /// Of so many dropouts, at least one.
    pub(super) fn new(kiln: &Kiln, count: usize) -> Result<Draw> {
        let all = DropoutStates::bytes_of(count) / POSITION_BYTES;
        let (keep, advance) = (planned(kiln, all, None)?, planned(kiln, count, Some(count))?);
        Ok(Draw { count, keep, advance })
    }

    /// Copies the state to `kept`, an address and its device's identity, and moves it on.
    pub(super) fn execute(
        &mut self,
        stream: &Stream,
        states: &DropoutStates,
        kept: (u64, usize),
    ) -> Result<()> {
        let own = (states.memory.address(), states.memory.owner());
        let first = (self.count * SEED_BYTES) as u64;
        let behind = |(address, owner): (u64, usize)| (address + first, owner);
        let keep = (&mut self.keep, own, kept);
        // From what was kept: nothing is read where it is written.
        let advance = (&mut self.advance, behind(kept), behind(own));
        for ((plan, pack), from, to) in [keep, advance] {
            for (uid, slot) in &mut pack.entries {
                let (own_address, own_owner) = if *uid == READ { from } else { to };
                if let Slot::Memory { address, owner, .. } = slot {
                    (*address, *owner) = (own_address, own_owner);
                }
            }
            plan.execute(stream, pack)?;
        }
        Ok(())
    }
}

/// A plan that copies so many integers, and adds a number to each.
fn planned(
    kiln: &Kiln,
    elements: usize,
    by: Option<usize>,
) -> Result<(ExecutionPlan, VariantPack)> {
    let mut graph = OperationGraph::builder();
    let [read, written] = [(READ, "read"), (WRITTEN, "written")].map(|(uid, name)| {
        // Positions lie behind seeds.
        let alignment = POSITION_BYTES;
        let tensor = TensorDesc::packed(uid, name, &[elements as i64], DType::I32);
        graph.tensor(TensorDesc { alignment, ..tensor })
    });
    let integers = |mode| Pointwise::new(mode).math(Math::I32);
    match by {
        None => graph.pointwise_into(integers(Mode::Identity), &[read], written),
        Some(_) => {
            let count = TensorDesc::packed(COUNT, "count", &[1], DType::I32);
            let count = graph.tensor(TensorDesc { by_value: true, ..count });
            graph.pointwise_into(integers(Mode::Add), &[read, count], written);
        }
    }
    let plan = kiln.plan(&graph.build()?)?;
    let mut pack = VariantPack::new();
    let bytes = (elements * POSITION_BYTES) as u64;
    for uid in [READ, WRITTEN] {
        pack.place(uid, DeviceMemory { address: 0, bytes });
    }
    by.into_iter().for_each(|count| pack.set_value(COUNT, count as f64));
    Ok((plan, pack))
}
