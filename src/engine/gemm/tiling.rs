//! Tiling and split-K, common to all GEMM engines.

use std::fmt;

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::rasterization::Rasterization;
use crate::engine::{BehaviorNote, Knob};
use crate::kernel::{Blocks, Grid};

/// Elements by which tiles may extend beyond a matrix.
const OVERHANG: i64 = 512;

/// Rows of split-K partials are padded to a multiple of this many columns.
const PARTIAL_VECTOR: i64 = 8;

/// Maximum value of `split_k`.
const SPLIT_MAX: i64 = 64;

/// The block tile, the order of tiles and how K is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    pub(super) cta_m: i64,
    pub(super) cta_n: i64,
    pub(super) cta_k: i64,
    pub(super) rasterization: Rasterization,
    /// Blocks that share the K of a tile.
    pub(super) split_k: i64,
    /// Whether K is a run-time value.
    pub(super) dynamic_k: bool,
    /// Whether M is a run-time value.
    pub(super) dynamic_m: bool,
}

/// Bytes that memory moves during a launch: in 2.6 us 5 MB on A100, 12 MB on H200.
const LAUNCH_BYTES: f64 = (8 << 20) as f64;

/// A block tile and a warp or thread tile (rows and columns of each), with the fraction of an SM's
/// peak rate that it reaches.
pub(super) type Candidate = ([i64; 4], f64);

/// Throughput of the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    pub(super) sm_count: i64,
    /// Multiply-adds of an SM during a launch.
    pub(super) launch: f64,
}

/// Why settings are not legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Refusal {
    EmptySplit { k: i64, cta_k: i64 },
    Blocks { count: i64 },
    Threads { count: i64, max: i64 },
    SharedBytes { needed: i64, available: i64 },
    Rows { min: i64 },
    Accumulators { count: i64, max: i64 },
    Elements { count: i64, max: i64 },
    Columns { count: i64, max: i64 },
    SwizzleAtoms,
    SummedColumns,
    PingPongSplitK,
    Partials { bytes: i64 },
    ReductionPartials { bytes: i64 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::EmptySplit { k, cta_k } => {
                write!(f, "leaves a split of K empty: {k} elements in steps of {cta_k}")
            }
            Refusal::Blocks { count } => write!(f, "needs {count} blocks, more than a grid has"),
            Refusal::Threads { count, max } => {
                write!(f, "needs {count} threads, a block has 32 to {max}")
            }
            Refusal::SharedBytes { needed, available } => {
                write!(f, "needs {needed} bytes of shared memory, a block has {available}")
            }
            Refusal::Rows { min } => {
                write!(f, "needs tiles of at least {min} rows of A, which is M-major")
            }
            Refusal::Accumulators { count, max } => {
                write!(f, "needs {count} accumulators per thread, at most {max}")
            }
            Refusal::Elements { count, max } => {
                write!(f, "needs {count} elements per thread and K step, at most {max} here")
            }
            Refusal::Columns { count, max } => {
                write!(f, "needs an MMA of {count} columns, at most {max}")
            }
            Refusal::SwizzleAtoms => {
                f.write_str("splits swizzle atoms of B, which is N-major: 64 columns each")
            }
            Refusal::SummedColumns => {
                f.write_str("splits the 64 columns that are added up at once")
            }
            Refusal::Partials { bytes } => {
                write!(f, "needs {bytes} bytes of split-K partials; use split_k=1")
            }
            Refusal::ReductionPartials { bytes } => {
                write!(f, "needs {bytes} bytes of partials of an epilogue reduction")
            }
            Refusal::PingPongSplitK => f.write_str("combines ping-pong with split-K"),
        }
    }
}

impl Tiling {
    /// Checks that the grid is not too large, with `ctas` blocks per tile, and no split of K
    /// empty.
    pub(super) fn check(&self, problem: &Problem<'_>, ctas: i64) -> Result<(), Refusal> {
        let Tiling { split_k, cta_k, .. } = *self;
        if split_k > 1 && ceil_div(problem.k, cta_k) < split_k {
            return Err(Refusal::EmptySplit { k: problem.k, cta_k });
        }
        let count = self.blocks(problem).saturating_mul(ctas);
        if count > GRID_MAX {
            return Err(Refusal::Blocks { count });
        }
        Ok(())
    }

    /// Number of tiles in all batches.
    pub(super) fn tiles(&self, problem: &Problem<'_>) -> i64 {
        tiles_of(problem, [self.cta_m, self.cta_n])
    }

    /// Number of tiles times `split_k`.
    pub(super) fn blocks(&self, problem: &Problem<'_>) -> i64 {
        self.tiles(problem).saturating_mul(self.split_k)
    }

    pub(super) fn grid(&self, problem: &Problem<'_>) -> Grid {
        Grid::Fixed(self.launched(problem, 1))
    }

    /// [`Tiling::blocks`] of a launch, with `ctas` blocks per tile: they grow with M.
    pub(super) fn launched(&self, problem: &Problem<'_>, ctas: i64) -> Blocks {
        if problem.is_empty() {
            return Blocks::from(0);
        }
        let each = self.blocks(problem) * ctas / ceil_div(problem.m, self.cta_m);
        Blocks { items: problem.m, tile: self.cta_m, each }
    }

    /// The most K elements of a block.
    pub(super) fn k_per_split(&self, problem: &Problem<'_>) -> i64 {
        ceil_div(ceil_div(problem.k, self.cta_k), self.split_k) * self.cta_k
    }

    /// Time of the busiest SM, in multiply-adds at peak rate: its tiles and the split-K reduction.
    fn load(&self, problem: &Problem<'_>, of: Rates, efficiency: f64) -> f64 {
        let rounds = ceil_div(self.blocks(problem), of.sm_count) as f64;
        let per_block = (self.cta_m * self.cta_n) as f64 * self.k_per_split(problem).max(1) as f64;
        rounds * per_block / efficiency + of.launch * reduce_launches(problem, self.split_k)
    }

    /// Run-time numbers passed to the kernel.
    pub(super) fn numbers(&self, problem: &Problem<'_>) -> Vec<i64> {
        let (m, k) = (self.dynamic_m.then_some(problem.m), self.dynamic_k.then_some(problem.k));
        m.into_iter().chain(k).collect()
    }

    /// C++ type of offsets and coordinates.
    pub(super) fn index_type(&self, problem: &Problem<'_>) -> &'static str {
        let Problem { m, n, k, .. } = problem;
        let steps = ceil_div(*k, self.cta_k).saturating_mul(self.split_k);
        let extent = m.max(n).max(k).max(&steps).saturating_add(OVERHANG);
        let partials = if self.split_k > 1 { partials(problem, self.split_k) } else { 0 };
        let reduction_partials =
            if problem.reductions.is_empty() { 0 } else { reduction_partials_max(problem) };
        match problem.offset_max(OVERHANG).max(extent).max(partials).max(reduction_partials)
            < 1 << 31
        {
            true => "int",
            false => "long long",
        }
    }
}

/// Time of the split-K reduction, in launches.
pub(super) fn reduce_launches(problem: &Problem<'_>, split_k: i64) -> f64 {
    match split_k {
        1 => 0.0,
        _ => 1.0 + 2.0 * partial_bytes(problem, split_k) as f64 / LAUNCH_BYTES,
    }
}

/// Columns of split-K partials, padded.
pub(super) fn partial_columns(problem: &Problem<'_>) -> i64 {
    ceil_div(problem.n, PARTIAL_VECTOR) * PARTIAL_VECTOR
}

/// Number of split-K partial accumulators.
fn partials(problem: &Problem<'_>, split_k: i64) -> i64 {
    [problem.m, partial_columns(problem), split_k]
        .into_iter()
        .fold(problem.batch_count(), i64::saturating_mul)
}

/// Bytes of the split-K partials.
pub(super) fn partial_bytes(problem: &Problem<'_>, split_k: i64) -> i64 {
    let size = problem.matmul.math.dtype().bytes() as i64;
    partials(problem, split_k).saturating_mul(size)
}

/// Maximum number of partials of an epilogue reduction: one per 8 rows or columns.
fn reduction_partials_max(problem: &Problem<'_>) -> i64 {
    let matrix = (problem.m + OVERHANG).saturating_mul(problem.n + OVERHANG) / 8;
    matrix.saturating_mul(problem.batch_count())
}

/// Number of tiles of this size in all batches.
pub(super) fn tiles_of(problem: &Problem<'_>, [cta_m, cta_n]: [i64; 2]) -> i64 {
    ceil_div(problem.m, cta_m)
        .saturating_mul(ceil_div(problem.n, cta_n))
        .saturating_mul(problem.batch_count())
}

/// The knobs `dynamic_k` and `dynamic_m`.
pub(super) fn dynamic_knobs(problem: &Problem<'_>) -> [Knob; 2] {
    let values = |legal: bool| if legal { vec![0, 1] } else { vec![0] };
    [
        Knob {
            name: "dynamic_k",
            about: "1: K is a run-time argument, one kernel serves every K from 2 on",
            values: values(counts_k(problem)),
        },
        Knob {
            name: "dynamic_m",
            about: "1: M is a run-time argument, one kernel serves every M from 2 on",
            values: values(!problem.is_convolution()),
        },
    ]
}

/// Whether K can be a run-time value. It costs one comparison per load there, and a gradient of
/// weights, whose K are the rows of a batch, has one kernel for all batches.
pub(super) fn counts_k(problem: &Problem<'_>) -> bool {
    // Along K, vectors and the strides of rows depend on it.
    let along_k = problem.a.k_major || problem.b.k_major;
    !problem.is_convolution() && !along_k && problem.overrides[2].is_none()
}

/// Reasons for `dynamic_k` and `dynamic_m`.
pub(super) fn dynamic_reasons(dynamic_k: bool) -> [String; 2] {
    let of_k = match dynamic_k {
        true => "dynamic_k=1: no stride depends on K, one kernel serves every K",
        false => "dynamic_k=0: constant bounds where K is known",
    };
    [of_k.to_owned(), "dynamic_m=0: constant bounds where M is known".to_owned()]
}

/// The knob `split_k`.
pub(super) fn split_knob(problem: &Problem<'_>) -> Knob {
    Knob {
        name: "split_k",
        about: "CTAs that split K of a tile; changes the order of sums",
        values: splits(problem).collect(),
    }
}

/// The knobs with the values that some K allows, where one kernel serves every K.
pub(super) fn for_any_k<const N: usize>(problem: &Problem<'_>, mut knobs: [Knob; N]) -> Vec<Knob> {
    if counts_k(problem) {
        let split = knobs.iter_mut().find(|knob| knob.name == "split_k");
        split.expect("engines share it").values = all_splits(problem).collect();
    }
    knobs.into()
}

/// Splits of K that leave each block something to do.
pub(super) fn splits(problem: &Problem<'_>) -> impl Iterator<Item = i64> {
    let k = problem.k;
    all_splits(problem).filter(move |split| *split == 1 || split * 8 <= k)
}

fn all_splits(problem: &Problem<'_>) -> impl Iterator<Item = i64> {
    // Values between powers of two let tiles times split_k come close to the number of SMs, which
    // balances the load without blocks that compute splits of two tiles (stream-K).
    let powers = (0..).map(|n| 1 << n).take_while(|split| *split <= SPLIT_MAX);
    let splits = powers.flat_map(|split| [split, split / 2 * 3]);
    let splits = splits.filter(|split| (1..=SPLIT_MAX).contains(split));
    // A dual GEMM needs both accumulators in one epilogue.
    let whole = problem.dual.is_some();
    splits.filter(move |split| *split == 1 || !whole)
}

/// The candidate and `split_k` with the least time on the busiest SM; K is only split across SMs
/// that would be idle. Both are chosen together: a larger tile with a larger split may beat a small
/// tile. `settings` returns the settings of a tile and a split where they are legal.
pub(super) fn best<S>(
    problem: &Problem<'_>,
    rates: Rates,
    candidates: impl Iterator<Item = Candidate>,
    settings: impl Fn([i64; 4], i64) -> Option<(Tiling, S)>,
) -> S {
    let mut best: Option<(f64, S)> = None;
    for (tile, efficiency) in candidates {
        let tiles = tiles_of(problem, [tile[0], tile[1]]);
        let useful = |split: &i64| *split == 1 || tiles.saturating_mul(*split) <= rates.sm_count;
        for (tiling, legal) in splits(problem).filter(useful).filter_map(|n| settings(tile, n)) {
            let load = tiling.load(problem, rates, efficiency);
            if best.as_ref().is_none_or(|(least, _)| load < *least) {
                best = Some((load, legal));
            }
        }
    }
    best.expect("a tile of a supported problem is legal").1
}

/// Behaviour notes.
pub(super) fn behavior(problem: &Problem<'_>, split_k: i64) -> Vec<BehaviorNote> {
    let workspace =
        (split_k > 1 || !problem.reductions.is_empty()).then_some(BehaviorNote::Workspace);
    std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace).collect()
}

/// Reason for `split_k`.
pub(super) fn split_reason(split_k: i64, tiles: i64, sm_count: i64, steps: i64) -> String {
    match split_k {
        1 if tiles * 2 > sm_count => "there are tiles for all SMs".to_owned(),
        1 => format!("{steps} K steps: nothing to split"),
        _ => format!("{tiles} tiles would leave most of {sm_count} SMs idle"),
    }
}

/// Columns per lane in the epilogue: 16 bytes of the widest type that is read or written there, in
/// whole chunks of accumulators.
pub(super) fn epilogue_vector(problem: &Problem<'_>, accumulator: DType) -> i64 {
    let loaded = problem.epilogue.inputs().filter(|at| {
        let view = problem.epilogue.axes.view(&problem.graph.tensors[*at]);
        !problem.is_gemm(*at) && view.column == 1
    });
    let widest = loaded
        .chain(problem.outputs())
        .map(|at| problem.graph.tensors[at].dtype.bytes() as i64)
        .max()
        .unwrap_or(4);
    let chunk = 16 / accumulator.bytes() as i64;
    (16 / widest).clamp(chunk, if chunk == 4 { 8 } else { chunk })
}

/// Rows of a warp tile that are staged at once: as many as fit in the operand tiles.
pub(super) fn slice_rows(warp_m: i64, band: i64, row_bytes: i64, available: i64) -> i64 {
    let fits = |rows: &i64| rows * row_bytes <= available;
    std::iter::successors(Some(warp_m), |rows| Some(rows / 2))
        .take_while(|rows| *rows >= band && rows % band == 0)
        .find(fits)
        .unwrap_or(band)
}
