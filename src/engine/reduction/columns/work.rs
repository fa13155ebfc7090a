//! Work of `reduction_columns` kernels, for the cost model.

use crate::engine::KernelWork;
use crate::engine::access::{SECTOR_BYTES, ceil_div, stored};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::reduction::columns::schedule::{Footprint, Schedule};
use crate::engine::reduction::phases::{Phases, Residence};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::work::element_operations;
use crate::graph::CanonicalGraph;
use crate::tensor::TensorDesc;

/// Instructions that find a vector's elements: bounds and addresses.
const INSTRUCTIONS_VECTOR: f64 = 16.0;

/// Partials that a thread loads before it waits.
const JOINED_ROUND: i64 = 4;

/// Work of a graph that does not depend on the settings.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    elements: f64,
    /// Bytes read per phase; `written_bytes` once.
    read_bytes: f64,
    written_bytes: f64,
    instructions: f64,
    f64_instructions: f64,
    phases: usize,
    /// Bytes of one partial of every value.
    partial_bytes: f64,
}

impl Demand {
    pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space) -> Demand {
        let bytes = |(at, tensor): (usize, &TensorDesc)| {
            let size = tensor.dtype.bytes() as i64;
            // Strided neighbours move a sector each.
            let moved = size.max(SECTOR_BYTES.min(size * space.rows.stride(at)));
            tensor.elements().unwrap_or(0) as f64 * moved as f64
        };
        let sum = |written: bool| {
            stored(graph).filter(|(at, _)| graph.is_written(*at) == written).map(bytes).sum()
        };
        let elements = space.rows.count() as f64 * space.columns.count() as f64;
        let [single, double] = element_operations(graph, space);
        let phases = Phases::of(graph, space, Residence::Memory).phases;
        let partials = phases.iter().flat_map(|phase| &phase.steps);
        let partial_bytes = partials.map(|step| step.op.math.dtype().bytes() as f64).sum::<f64>();
        Demand {
            elements,
            read_bytes: sum(false),
            written_bytes: sum(true),
            instructions: elements * single * INSTRUCTIONS_OPERATION,
            f64_instructions: elements * double * INSTRUCTIONS_OPERATION,
            phases: phases.len(),
            partial_bytes: partial_bytes * space.rows.count() as f64,
        }
    }

    /// Work of one launch, or of one per phase where values are split.
    pub(super) fn work(&self, footprint: &Footprint, schedule: &Schedule) -> Vec<KernelWork> {
        let Schedule { vector, items, threads_x, threads_y, segments, segment, .. } = *schedule;
        let threads = schedule.threads();
        let launches = if segments > 1 { self.phases + 1 } else { 1 };
        let share = 1.0 / launches as f64;
        let passes = self.phases as f64;
        let line_bytes = threads_x * vector * footprint.input_bytes.iter().min().unwrap_or(&4);
        let apart = threads_x < schedule.chunks && line_bytes < SECTOR_BYTES;
        // A block that reads less than a sector of a row moves whole sectors.
        let moved = if apart { SECTOR_BYTES as f64 / line_bytes as f64 } else { 1.0 };
        let bytes = (self.read_bytes * passes + self.written_bytes) * share * moved;
        // Each block combines the partials of all splits of its values.
        let partials = match segments {
            1 => 0.0,
            _ => self.partial_bytes * (segments * segments) as f64 * share,
        };
        let vector_bytes = footprint.input_bytes.iter().sum::<i64>() * vector;
        let vectors = self.elements / vector as f64 * passes;
        let join = if segments > 1 { ceil_div(segments, threads_y * JOINED_ROUND) } else { 0 };
        let rounds = ceil_div(segment, threads_y * items).max(1) + join;
        let work = KernelWork {
            blocks: (schedule.tiles() * segments) as u64,
            threads: threads as u32,
            registers: footprint.registers(vector, items) as u32,
            shared_bytes: footprint.shared_bytes(vector, threads_x, threads_y) as u32,
            dram_bytes: bytes,
            l2_bytes: bytes + partials,
            in_flight_bytes: (threads * (vector_bytes * items).max(4 * vector)) as f64,
            round_trips: rounds as f64 * passes * share,
            lane_instructions: (self.instructions + vectors * INSTRUCTIONS_VECTOR) * share,
            f64_instructions: self.f64_instructions * share,
            tensor: None,
        };
        vec![work; launches]
    }
}
