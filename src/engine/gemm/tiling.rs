//! What every kernel that multiplies tile by tile has in common: the grid, the parts of the depth.

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::problem::Problem;
use crate::engine::{EngineConfig, Grid};
use crate::error::{Error, Result};

/// Elements that tiles may reach beyond a matrix.
const OVERHANG: i64 = 512;

/// Partial sums are stored in rows of a multiple of so many columns.
const PARTIAL_VECTOR: i64 = 8;

/// A block's tile and how blocks share the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    pub(super) cta_m: i64,
    pub(super) cta_n: i64,
    pub(super) cta_k: i64,
    /// Rows of tiles that are walked together.
    pub(super) group: i64,
    /// Blocks that share the depth of a tile.
    pub(super) split_k: i64,
}

impl Tiling {
    /// # Errors
    /// `NotSupported` for more blocks than a grid has, or parts of the depth that are empty.
    pub(super) fn new(problem: &Problem<'_>, config: &EngineConfig) -> Result<Tiling> {
        let tiling = Tiling {
            cta_m: config.knob("cta_m")?,
            cta_n: config.knob("cta_n")?,
            cta_k: config.knob("cta_k")?,
            group: config.knob("group")?,
            split_k: config.knob("split_k")?,
        };
        let Tiling { split_k, cta_k, .. } = tiling;
        if split_k > 1 && (split_k - 1) * tiling.split_depth(problem) >= problem.k {
            let k = problem.k;
            return Err(Error::not_supported(format!(
                "{config} leaves a part of the depth empty: {k} elements in steps of {cta_k}"
            )));
        }
        let blocks = tiling.blocks(problem);
        if blocks > GRID_MAX {
            return Err(Error::not_supported(format!(
                "{config} needs {blocks} blocks, more than a grid has"
            )));
        }
        Ok(tiling)
    }

    /// Tiles of all batches.
    pub(super) fn tiles(&self, problem: &Problem<'_>) -> i64 {
        ceil_div(problem.m, self.cta_m)
            .saturating_mul(ceil_div(problem.n, self.cta_n))
            .saturating_mul(problem.batch_count())
    }

    fn blocks(&self, problem: &Problem<'_>) -> i64 {
        self.tiles(problem).saturating_mul(self.split_k)
    }

    pub(super) fn grid(&self, problem: &Problem<'_>) -> Grid {
        Grid::Fixed(if problem.is_empty() { 0 } else { self.blocks(problem) as u32 })
    }

    /// Elements of the depth that one block takes.
    pub(super) fn split_depth(&self, problem: &Problem<'_>) -> i64 {
        ceil_div(ceil_div(problem.k, self.split_k), self.cta_k) * self.cta_k
    }

    /// Columns of a row of partial sums.
    pub(super) fn partial_columns(&self, problem: &Problem<'_>) -> i64 {
        ceil_div(problem.n, PARTIAL_VECTOR) * PARTIAL_VECTOR
    }

    /// Partial sums of all parts.
    pub(super) fn partials(&self, problem: &Problem<'_>) -> i64 {
        [problem.m, self.partial_columns(problem), self.split_k]
            .into_iter()
            .fold(problem.batch_count(), i64::saturating_mul)
    }

    /// The type of offsets and coordinates.
    pub(super) fn index_type(&self, problem: &Problem<'_>) -> &'static str {
        let Problem { m, n, k, .. } = problem;
        let extent = m.max(n).max(k).saturating_add(OVERHANG);
        let partials = if self.split_k > 1 { self.partials(problem) } else { 0 };
        match problem.offset_max(OVERHANG).max(extent).max(partials) < 1 << 31 {
            true => "int",
            false => "long long",
        }
    }
}

/// Columns of a row that a lane takes through the epilogue: 16 bytes of the widest type that is
/// read or written there, but whole chunks of sums.
pub(super) fn epilogue_vector(problem: &Problem<'_>, sum: DType) -> i64 {
    let loaded = problem.epilogue.inputs().filter(|at| {
        let view = problem.epilogue.axes.view(&problem.graph.tensors[*at]);
        *at != problem.c && view.column == 1
    });
    let widest = loaded
        .chain(problem.outputs())
        .map(|at| problem.graph.tensors[at].dtype.bytes() as i64)
        .max()
        .unwrap_or(4);
    let chunk = 16 / sum.bytes() as i64;
    (16 / widest).clamp(chunk, if chunk == 4 { 8 } else { chunk })
}

/// Rows of a warp that are staged at once: all, or as few bands as fit in the memory of the tiles.
pub(super) fn slice_rows(warp_m: i64, band: i64, row_bytes: i64, available: i64) -> i64 {
    let fits = |rows: &i64| rows * row_bytes <= available;
    std::iter::successors(Some(warp_m), |rows| Some(rows / 2))
        .take_while(|rows| *rows >= band && rows % band == 0)
        .find(fits)
        .unwrap_or(band)
}
