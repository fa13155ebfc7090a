//! What every kernel that multiplies tile by tile has in common: the grid, the parts of the depth.

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::problem::Problem;
use crate::engine::{BehaviorNote, EngineConfig, Grid, Knob};
use crate::error::{Error, Result};

/// Elements that tiles may reach beyond a matrix.
const OVERHANG: i64 = 512;

/// Partial sums are stored in rows of a multiple of so many columns.
const PARTIAL_VECTOR: i64 = 8;

/// The most parts of the depth.
const SPLIT_MAX: i64 = 16;

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
        tiles_of(problem, [self.cta_m, self.cta_n])
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

/// Tiles of this size of all batches.
pub(super) fn tiles_of(problem: &Problem<'_>, [cta_m, cta_n]: [i64; 2]) -> i64 {
    ceil_div(problem.m, cta_m)
        .saturating_mul(ceil_div(problem.n, cta_n))
        .saturating_mul(problem.batch_count())
}

/// The knob for the parts of the depth.
pub(super) fn split_knob(problem: &Problem<'_>) -> Knob {
    let splits = (0..).map(|n| 1 << n).take_while(|split| *split <= SPLIT_MAX);
    Knob {
        name: "split_k",
        about: "blocks that share the depth of a tile; changes the order of sums",
        values: splits.filter(|split| *split == 1 || split * 8 <= problem.k).collect(),
    }
}

/// What a setting asks of its surroundings.
pub(super) fn behavior(config: &EngineConfig) -> Vec<BehaviorNote> {
    let splits = config.knob("split_k").is_ok_and(|split| split > 1);
    let workspace = splits.then_some(BehaviorNote::Workspace);
    std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace).collect()
}

/// Into how many parts to split the depth so that every multiprocessor has a block, each part of
/// at least `steps_min` of the depth's steps.
pub(super) fn split_of(tiles: i64, sm_count: i64, steps: i64, steps_min: i64) -> i64 {
    let idle = sm_count / tiles.max(1);
    let splits = (0..).map(|n| 1 << n).take_while(|split| *split <= SPLIT_MAX);
    splits
        .filter(|split| *split == 1 || (*split <= idle && steps / split >= steps_min))
        .max()
        .expect("1 is one of them")
}

/// Why [`split_of`] decided so.
pub(super) fn split_reason(split_k: i64, tiles: i64, sm_count: i64, steps: i64) -> String {
    match split_k {
        1 if tiles * 2 > sm_count => "there are tiles for all multiprocessors".to_owned(),
        1 => format!("{steps} steps are too few to share"),
        _ => format!("{tiles} tiles would leave most of {sm_count} multiprocessors idle"),
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
