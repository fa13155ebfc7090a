//! Work of pointwise kernels, for the cost model.

use crate::engine::KernelWork;
use crate::engine::access::{SECTOR_BYTES, ceil_div, drawn, stored};
use crate::engine::cost::{INSTRUCTIONS_OPERATION, OPERATIONS_DRAW};
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::heuristic::streamed_bytes;
use crate::engine::pointwise::schedule::{Schedule, registers};
use crate::expr::Math;
use crate::graph::{CanonicalGraph, Op};
use crate::kernel::Grid;
use crate::tensor::TensorDesc;

/// Instructions that find a chunk: a division by a constant, bounds, addresses. From the SASS of
/// the demo chain.
const INSTRUCTIONS_CHUNK: f64 = 24.0;

/// Columns of rows of which a warp has 16 and more: a sector of elements of 16 bits.
const COLUMNS_FEW: i64 = 8;

/// Work of the kernel of a schedule.
pub(super) fn of(
    graph: CanonicalGraph<'_>,
    domain: &Domain,
    demand: &Demand,
    schedule: &Schedule,
) -> KernelWork {
    let Schedule { vector, items, threads, .. } = *schedule;
    let registers = registers(graph, domain, vector, items);
    let chunk_bytes = demand.streamed_bytes * vector * items;
    demand.work(&schedule.grid, threads, registers, vector, chunk_bytes)
}

/// Work of a graph that does not depend on the settings.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    elements: f64,
    /// Bytes moved between memory and the SMs.
    bytes: f64,
    /// Bytes loaded per element.
    pub(super) streamed_bytes: i64,
    instructions: f64,
    f64_instructions: f64,
}

impl Demand {
    pub(super) fn of(graph: CanonicalGraph<'_>, domain: &Domain) -> Demand {
        let elements = domain.extents.iter().product::<i64>() as f64;
        let bytes = |(at, tensor): (usize, &TensorDesc)| {
            let size = tensor.dtype.bytes() as i64;
            // Strided neighbours move a sector each, which a warp reads all of where rows are so
            // short that it has those beside each other.
            let beside = domain.row_strides(at).last() == Some(&1);
            let moved = match beside && domain.columns() <= COLUMNS_FEW {
                true => size,
                false => size.max(SECTOR_BYTES.min(size * domain.column_stride(at))),
            };
            tensor.elements().unwrap_or(0) as f64 * moved as f64
        };
        let double = graph.operations.iter().filter(|operation| match &operation.op {
            Op::Pointwise(op) => op.math == Math::F64,
            _ => false,
        });
        let double = double.count() as f64;
        let draws = drawn(graph).count() as f64;
        let single = graph.operations.len() as f64 - double + draws * (OPERATIONS_DRAW - 1.0);
        Demand {
            elements,
            bytes: stored(graph).map(bytes).sum(),
            streamed_bytes: streamed_bytes(graph, domain),
            instructions: elements * single * INSTRUCTIONS_OPERATION,
            f64_instructions: elements * double * INSTRUCTIONS_OPERATION,
        }
    }

    /// With chunks of `vector` elements and so many bytes in flight for a thread.
    pub(super) fn work(
        &self,
        grid: &Grid,
        threads: i64,
        registers: i64,
        vector: i64,
        in_flight_bytes: i64,
    ) -> KernelWork {
        let blocks = match grid {
            Grid::Fixed(blocks) => blocks.count(),
            Grid::Resident { blocks_max, .. } => blocks_max.count(),
        };
        let chunks = ceil_div(self.elements as i64, vector) as f64;
        KernelWork {
            blocks: u64::from(blocks),
            threads: threads as u32,
            registers: registers as u32,
            shared_bytes: 0,
            dram_bytes: self.bytes,
            l2_bytes: self.bytes,
            // A kernel that only writes has its stores in flight.
            in_flight_bytes: (threads * in_flight_bytes.max(4 * vector)) as f64,
            round_trips: 1.0,
            lane_instructions: self.instructions + chunks * INSTRUCTIONS_CHUNK,
            f64_instructions: self.f64_instructions,
            tensor: None,
        }
    }
}
