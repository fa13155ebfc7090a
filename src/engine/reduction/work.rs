//! Work of `reduction` kernels, for the cost model.

use crate::dtype::DType;
use crate::engine::KernelWork;
use crate::engine::access::{SECTOR_BYTES, ceil_div, stored};
use crate::engine::cost::{INSTRUCTIONS_OPERATION, OPERATIONS_DRAW};
use crate::engine::reduction::phases::{Phases, Residence};
use crate::engine::reduction::schedule::{Footprint, Schedule};
use crate::engine::reduction::space::Space;
use crate::graph::{CanonicalGraph, Op, Operation};
use crate::tensor::TensorDesc;

/// Instructions that find a chunk and combine its row's partials: bounds, addresses, shuffles.
const INSTRUCTIONS_CHUNK: f64 = 24.0;

/// Work of a graph that does not depend on the settings.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    elements: f64,
    /// Read once, and written.
    read_bytes: f64,
    written_bytes: f64,
    instructions: f64,
    f64_instructions: f64,
    /// Phases of a row that is read again in each.
    phases: usize,
    /// Phases of a row that stays in registers.
    resident_phases: usize,
}

impl Demand {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space) -> Demand {
        let bytes = |(at, tensor): (usize, &TensorDesc)| {
            let size = tensor.dtype.bytes() as i64;
            // Strided neighbours move a sector each.
            let moved = size.max(SECTOR_BYTES.min(size * space.stride(at)));
            tensor.elements().unwrap_or(0) as f64 * moved as f64
        };
        let sum = |written: bool| {
            stored(graph).filter(|(at, _)| graph.is_written(*at) == written).map(bytes).sum()
        };
        let elements = space.rows.count() as f64 * space.columns.count() as f64;
        let [single, double] = element_operations(graph, space);
        Demand {
            elements,
            read_bytes: sum(false),
            written_bytes: sum(true),
            instructions: elements * single * INSTRUCTIONS_OPERATION,
            f64_instructions: elements * double * INSTRUCTIONS_OPERATION,
            phases: Phases::of(graph, space, Residence::Memory).phases.len(),
            resident_phases: Phases::of(graph, space, Residence::Registers).phases.len(),
        }
    }

    /// One launch, or one per phase of a row that several blocks share.
    pub(super) fn work(
        &self,
        space: &Space,
        footprint: &Footprint,
        schedule: &Schedule,
    ) -> Vec<KernelWork> {
        let Schedule { vector, items, threads, residence, segments, .. } = *schedule;
        let passes = if residence == Residence::Memory { self.phases } else { 1 };
        let launches = if segments > 1 { passes } else { 1 };
        let share = 1.0 / launches as f64;
        let read = self.read_bytes * passes as f64;
        let chunks = ceil_div(self.elements as i64, vector) as f64 * passes as f64;
        let chunk_bytes = footprint.input_bytes.iter().sum::<i64>() * vector * items;
        let sharers = schedule.row_threads * schedule.cluster;
        let rounds = ceil_div(schedule.segment_chunks(), sharers * items).max(1);
        // Blocks of a cluster wait for each other about as long as for memory.
        let meetings = if schedule.cluster > 1 { self.resident_phases } else { 0 };
        let work = KernelWork {
            blocks: schedule.blocks(space) as u64,
            threads: threads as u32,
            registers: footprint.registers(vector, items, residence) as u32,
            shared_bytes: schedule.shared_bytes as u32,
            dram_bytes: (read + self.written_bytes) * share,
            l2_bytes: (read + self.written_bytes) * share,
            in_flight_bytes: (threads * chunk_bytes.max(4 * vector)) as f64,
            round_trips: rounds as f64 * passes as f64 * share + meetings as f64,
            lane_instructions: (self.instructions + chunks * INSTRUCTIONS_CHUNK) * share,
            f64_instructions: self.f64_instructions * share,
            tensor: None,
        };
        vec![work; launches]
    }
}

/// Operations on elements, in single and in double precision; what is computed of a value of a row
/// is nothing beside them.
pub(super) fn element_operations(graph: CanonicalGraph<'_>, space: &Space) -> [f64; 2] {
    let of_elements =
        |of: &&Operation| !of.is_elementwise() || !space.is_row(of.outputs[0] as usize);
    let all = graph.operations.iter().filter(of_elements);
    let (double, single): (Vec<_>, Vec<_>) = all.partition(|of| of.op.math() == DType::F64);
    let weight = |of: &&Operation| if matches!(of.op, Op::Rng(_)) { OPERATIONS_DRAW } else { 1.0 };
    [single, double].map(|of| of.iter().map(weight).sum())
}
