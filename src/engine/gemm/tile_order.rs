//! The order in which tiles read A and B, for a model of L2.

use kiln_sass::{Stream, TileOrder};

use crate::engine::access::ceil_div;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::Tiling;
use crate::engine::tile_order::STEPS_MAX;

impl Tiling {
    /// The order of tiles as `gemm/rasterize.cuh` has it, of clusters of so many blocks; `None` if
    /// there are too many, or batches, which may share operands.
    pub(super) fn tile_order(
        &self,
        problem: &Problem<'_>,
        blocks: i64,
        persistent: bool,
    ) -> Option<TileOrder> {
        let Tiling { cta_m, cta_n, cta_k, rasterization, split_k, .. } = *self;
        let [rows, columns] = [ceil_div(problem.m, cta_m), ceil_div(problem.n, cta_n)];
        let steps = ceil_div(problem.k, cta_k);
        let tiles = rows.saturating_mul(columns);
        let is_known = problem.batch_count() == 1 && problem.overrides == [None; 3];
        if !is_known || tiles.saturating_mul(steps) > STEPS_MAX {
            return None;
        }
        let bytes = |tensor: usize, extent: i64| {
            u32::try_from(problem.graph.tensors[tensor].dtype.bytes() as i64 * extent * cta_k).ok()
        };
        let of_a = bytes(problem.a.tensor, cta_m)?;
        let of_b = bytes(problem.b.tensor, cta_n * problem.gemm_count())?;
        let steps_split = ceil_div(steps, split_k);
        let streams = |at: i64| {
            let [row, column] = rasterization.tile([rows, columns], at % tiles);
            let first = at / tiles * steps_split;
            let chunks = (steps - first).clamp(0, steps_split) as u32;
            let stream = |line: i64, bytes: u32| Stream {
                first: (line * steps + first) as u64,
                chunks,
                bytes,
            };
            vec![stream(row, of_a), stream(rows + column, of_b)]
        };
        let tiles = (0..tiles * split_k).map(streams).collect();
        Some(TileOrder { tiles, blocks: blocks as u64, persistent })
    }
}
