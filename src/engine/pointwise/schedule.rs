//! How the elements of a domain are distributed over threads: knobs, registers, the launch grid.

use crate::engine::Knob;
use crate::engine::access::{
    ACCESS_BYTES_MAX, GRID_MAX, REGISTERS_SM, REGISTERS_THREAD_MAX, ceil_div, stored,
};
use crate::engine::pointwise::domain::Domain;
use crate::engine::tunable::settings;
use crate::expr::Math;
use crate::graph::{CanonicalGraph, Operation};
use crate::kernel::Grid;
use crate::tensor::TensorDesc;

/// Registers a kernel needs besides its fragments: addresses, coordinates, the chain itself.
const REGISTERS_BASE: i64 = 40;

/// What double-precision functions add, once and per element in flight. Measured with exp: at 16
/// elements the assembler spills 64 bytes for sm_90a, at 8 it needs no spill in any setting.
const REGISTERS_F64: i64 = 24;
const REGISTERS_F64_ELEMENT: i64 = 10;

settings! { pub(super) struct Settings { grid, items, threads, vector } }

/// How one tensor is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Access {
    /// A kernel parameter passed by value.
    Value,
    /// One element for the whole domain.
    Scalar,
    /// One row of elements that is broadcast along all others.
    Row,
    /// Elements of its own in every chunk, or at least in every row.
    Stream,
}

/// Everything derived from legal settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Schedule {
    pub(super) vector: i64,
    pub(super) items: i64,
    pub(super) threads: i64,
    pub(super) persistent: bool,
    /// Each thread stays in the columns it starts in, so that row operands stay in registers.
    pub(super) fixed_columns: bool,
    pub(super) chunks: i64,
    /// Chunks along a row that a block covers, with fixed columns.
    pub(super) block_chunks: i64,
    pub(super) column_blocks: i64,
    pub(super) grid: Grid,
}

impl Schedule {
    /// # Errors
    /// Where the settings need more registers than a thread has, or more blocks than a grid.
    pub(super) fn new(
        graph: CanonicalGraph<'_>,
        domain: &Domain,
        settings: Settings,
    ) -> Result<Schedule, String> {
        let Settings { grid, items, threads, vector } = settings;
        let persistent = grid == 1;
        let needed = registers(graph, domain, vector, items);
        let available = (REGISTERS_SM / threads).min(REGISTERS_THREAD_MAX);
        // The estimate steers away from spills; the smallest setting is for the assembler to judge.
        if needed > available && (vector > 1 || items > 1) {
            return Err(format!("needs about {needed} registers of a thread's {available}"));
        }
        let chunks = ceil_div(domain.columns(), vector);
        let fixed_columns = persistent && has_row_operand(graph, domain);
        let block_chunks = block_chunks(chunks, threads);
        let column_blocks = ceil_div(chunks, block_chunks);
        if fixed_columns && column_blocks > GRID_MAX {
            return Err(format!(
                "needs {column_blocks} blocks side by side, more than a grid has; use grid=0"
            ));
        }
        let blocks = match fixed_columns {
            true => ceil_div(domain.rows(), threads / block_chunks * items)
                .saturating_mul(column_blocks),
            false => ceil_div(domain.rows().saturating_mul(chunks), threads * items),
        };
        let grid = match (
            persistent,
            u32::try_from(blocks).ok().filter(|count| i64::from(*count) <= GRID_MAX),
        ) {
            (false, Some(blocks)) => Grid::fixed(blocks),
            (false, None) => {
                return Err(format!("needs {blocks} blocks, more than a grid has; use grid=1"));
            }
            (true, Some(0)) => Grid::fixed(0),
            (true, blocks) => Grid::Resident {
                blocks_max: blocks.unwrap_or(GRID_MAX as u32).into(),
                multiple_of: if fixed_columns { column_blocks as u32 } else { 1 },
            },
        };
        Ok(Schedule {
            vector,
            items,
            threads,
            persistent,
            fixed_columns,
            chunks,
            block_chunks,
            column_blocks,
            grid,
        })
    }

    /// How a tensor is accessed under this schedule.
    pub(super) fn access(&self, graph: CanonicalGraph<'_>, domain: &Domain, at: usize) -> Access {
        match broadcast(graph, domain, at) {
            Access::Row if !self.fixed_columns => Access::Stream,
            access => access,
        }
    }
}

/// How a tensor is accessed as far as its strides tell.
pub(super) fn broadcast(graph: CanonicalGraph<'_>, domain: &Domain, at: usize) -> Access {
    let strided = domain.row_strides(at).iter().any(|stride| *stride != 0);
    match (graph.tensors[at].by_value, strided, domain.column_stride(at)) {
        (true, _, _) => Access::Value,
        (false, false, 0) => Access::Scalar,
        (false, false, _) if domain.rows() > 1 => Access::Row,
        _ => Access::Stream,
    }
}

/// How many chunks of a row one block covers with fixed columns: a power of two, so that threads
/// split evenly; at least a warp's worth, so that accesses coalesce; of those the one that leaves
/// the fewest threads without a column (96 chunks are three times 32, not once 128).
fn block_chunks(chunks: i64, threads: i64) -> i64 {
    let whole_row = (chunks.max(1) as u64).next_power_of_two().min(threads as u64) as i64;
    std::iter::successors(Some(whole_row), |width| Some(width / 2))
        .take_while(|width| *width >= 32 || *width == whole_row)
        .min_by_key(|width| ceil_div(chunks, *width) * width)
        .expect("the whole row is a candidate")
}

pub(super) fn has_row_operand(graph: CanonicalGraph<'_>, domain: &Domain) -> bool {
    stored(graph)
        .any(|(at, _)| !graph.is_written(at) && broadcast(graph, domain, at) == Access::Row)
}

/// The knobs with the values this graph allows.
pub(super) fn knobs(graph: CanonicalGraph<'_>, domain: &Domain) -> [Knob; 4] {
    let column_guard = stored(graph).any(|(at, _)| {
        graph.is_written(at) && domain.column_stride(at) == 0 && domain.columns() > 1
    });
    let narrowest = stored(graph).map(|(_, tensor)| tensor.dtype.bytes() as i64).min().unwrap_or(4);
    let useful = (domain.columns().max(1) as u64).next_power_of_two() as i64;
    let vector_max = if column_guard { 1 } else { (ACCESS_BYTES_MAX / narrowest).min(useful) };
    let up_to = |max: i64| (0..).map(|n| 1 << n).take_while(|n| *n <= max).collect();
    [
        Knob {
            name: "grid",
            about: "0: one pass, a block per tile; 1: persistent, blocks loop over tiles",
            values: vec![0, 1],
        },
        Knob { name: "items", about: "chunks per thread and pass", values: up_to(8) },
        Knob { name: "threads", about: "threads per block", values: vec![64, 128, 256, 512, 1024] },
        Knob { name: "vector", about: "elements per chunk", values: up_to(vector_max) },
    ]
}

/// 32-bit registers of a thread: the fragments in flight and one chunk's results.
pub(super) fn registers(
    graph: CanonicalGraph<'_>,
    domain: &Domain,
    vector: i64,
    items: i64,
) -> i64 {
    let words = |tensor: &TensorDesc, count: i64| (tensor.dtype.bytes() as i64 * count + 3) / 4;
    let fragments: i64 = stored(graph)
        .map(|(at, tensor)| match (graph.is_written(at), broadcast(graph, domain, at)) {
            // A result in its register type, until the whole chunk is stored.
            (true, _) => vector * if tensor.dtype.bytes() == 8 { 2 } else { 1 },
            (false, Access::Stream) if domain.column_stride(at) == 0 => items * words(tensor, 1),
            (false, Access::Stream | Access::Row) => items * words(tensor, vector),
            (false, _) => 1,
        })
        .sum();
    let double =
        |operation: &Operation| operation.as_pointwise().is_some_and(|op| op.math == Math::F64);
    let double = match graph.operations.iter().any(double) {
        true => REGISTERS_F64 + REGISTERS_F64_ELEMENT * vector * items,
        false => 0,
    };
    fragments + REGISTERS_BASE + double
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_few_threads_without_a_column() {
        let chosen = [1, 3, 32, 96, 100, 129, 4096].map(|chunks| block_chunks(chunks, 256));
        assert_eq!(chosen, [1, 4, 32, 32, 128, 32, 256]);
    }
}
