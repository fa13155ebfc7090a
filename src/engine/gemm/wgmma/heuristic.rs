//! The best settings, and why.

use crate::engine::access::ceil_div;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::rasterization::Rasterization;
use crate::engine::gemm::tiling::{
    counts_k, dynamic_reasons, reduce_launches, split_reason, splits, tiles_of,
};
use crate::engine::gemm::wgmma::operands::{WgmmaOperands, efficiency};
use crate::engine::gemm::wgmma::schedule::Tile;
use crate::engine::instruction::{WGMMA_M, cycles};
use crate::target::Target;

/// Candidate tiles; ties go to the first.
const CANDIDATES: [Tile; 12] = [
    Tile::shared(128, 256),
    Tile::shared(256, 128),
    Tile::shared(128, 192),
    Tile::shared(128, 128),
    Tile::shared(64, 256),
    Tile::shared(128, 64),
    Tile::shared(64, 128),
    Tile::shared(64, 64),
    Tile::shared(64, 32),
    Tile::ping_pong(128, 128),
    Tile::ping_pong(64, 256),
    Tile::ping_pong(64, 128),
];

/// Instructions per accumulator to stage and store it.
const INSTRUCTIONS_ACCUMULATOR: f64 = 4.0;

/// FP32 lanes per SM.
const LANES: f64 = 128.0;

/// Candidate pipeline depths.
const STAGES: [i64; 5] = [8, 6, 5, 4, 3];

/// Minimum number of M tiles for clusters of two, which share tiles of B.
const CLUSTER_ROWS_MIN: i64 = 4;

/// Extents from which on warpgroup MMAs are not mostly padding.
const EXTENT_MIN: i64 = 64;

/// Cycles of a launch: 2.6 us at 1.7 GHz.
const LAUNCH: f64 = 4500.0;

/// The best settings, and what decided them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    tile: Tile,
    cluster: i64,
    rasterization: Rasterization,
    stages: i64,
    split_k: i64,
    dynamic_k: bool,
    tiles: i64,
    /// Pipeline steps along the whole of K.
    steps: i64,
    /// Time of the epilogue, in percent of the mainloop.
    storing: i64,
    sm_count: i64,
    /// M tiles per matrix.
    rows: i64,
}

impl Decision {
    pub(super) fn of(problem: &Problem<'_>, operands: &WgmmaOperands, target: &Target) -> Decision {
        let sm_count = i64::from(target.sm_count);
        let tiles = |tile: Tile| tiles_of(problem, tile.cta);
        let steps = ceil_div(problem.k, operands.cta_k());
        let operations = problem.epilogue.program.program.instructions().len() as f64;
        let instructions = INSTRUCTIONS_ACCUMULATOR + operations * INSTRUCTIONS_OPERATION;
        let multiplying = |tile: Tile, split_k: i64| {
            let multiplied = tile.multiplied(problem);
            4.0 * ceil_div(steps, split_k) as f64 * cycles(multiplied) / efficiency(multiplied)
        };
        let storing = |tile: Tile| (tile.cta[0] * tile.cta[1]) as f64 * instructions / LANES;
        // Cycles of the busiest SM. With ping-pong only the last epilogue is exposed.
        let cost = |(tile, split_k): &(Tile, i64)| {
            let (multiplying, storing) = (multiplying(*tile, *split_k), storing(*tile));
            let rounds = ceil_div(tiles(*tile).saturating_mul(*split_k), sm_count) as f64;
            let (both, reduce_launches) =
                (multiplying + storing, reduce_launches(problem, *split_k));
            match tile.ping_pong {
                true => rounds * multiplying.max(both / 2.0) + storing,
                false => rounds * both + LAUNCH * reduce_launches,
            }
        };
        let whole = |tile: &Tile| {
            (operands.k_major[1] || tile.cta[1] % 64 == 0) && tile.check(problem).is_ok()
        };
        // K is only split across SMs that would be idle.
        let splits_of = |tile: Tile| {
            let idle = move |split_k: &i64| {
                let blocks = tiles(tile).saturating_mul(*split_k);
                let filled = steps >= *split_k;
                *split_k == 1 || !tile.ping_pong && blocks <= sm_count && filled
            };
            splits(problem).filter(idle).map(move |split_k| (tile, split_k))
        };
        let candidates = CANDIDATES.into_iter().filter(whole).flat_map(splits_of);
        let (tile, split_k) =
            candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let rows = ceil_div(problem.m, tile.cta[0]);
        // An odd M tile would be padded to a pair.
        let pairs = rows >= CLUSTER_ROWS_MIN && rows % 2 == 0 && sm_count % 2 == 0;
        let available = i64::from(target.shared_block_bytes_max);
        let fits = |stages: &i64| tile.shared_bytes(problem, *stages) <= available;
        let stages = STAGES.into_iter().find(fits).unwrap_or(STAGES[STAGES.len() - 1]);
        let storing = (100.0 * storing(tile) / multiplying(tile, split_k)) as i64;
        let cluster = if pairs { 2 } else { 1 };
        let tiles = tiles(tile);
        let [cta_m, cta_n] = tile.cta;
        let rasterization =
            Rasterization::of(problem, [cluster * cta_m, cta_n], sm_count / cluster);
        Decision {
            tile,
            cluster,
            rasterization,
            stages,
            split_k,
            dynamic_k: counts_k(problem),
            tiles,
            steps,
            storing,
            sm_count,
            rows,
        }
    }

    /// A value for each knob, in the order of [`KNOBS`](super::schedule::KNOBS).
    pub(super) fn values(&self) -> [i64; 10] {
        let Decision { tile, cluster, rasterization, stages, split_k, .. } = *self;
        let ([cta_m, cta_n], ping_pong) = (tile.cta, i64::from(tile.ping_pong));
        [
            cluster,
            cta_m,
            cta_n,
            i64::from(self.dynamic_k),
            0,
            rasterization.group,
            ping_pong,
            rasterization.raster(),
            split_k,
            stages,
        ]
    }

    /// Reasons, one line per knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { tile, cluster, stages, split_k, tiles, steps, .. } = self;
        let Decision { storing, sm_count, rows, .. } = self;
        let [group, raster] = self.rasterization.reasons();
        let [dynamic_k, dynamic_m] = dynamic_reasons(self.dynamic_k);
        let ([cta_m, cta_n], ping_pong) = (tile.cta, i64::from(tile.ping_pong));
        let tile = format!("{tiles} tiles for {sm_count} SMs: the best wave");
        let shared = match cluster {
            2 => format!("{rows} M tiles: pairs load each tile of B once"),
            _ => format!("{rows} M tiles: too few to pair into clusters"),
        };
        vec![
            format!("cluster={cluster}: {shared}"),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            dynamic_k,
            dynamic_m,
            group,
            format!("ping_pong={ping_pong}: the epilogue takes {storing}% of the mainloop"),
            raster,
            format!("split_k={split_k}: {}", split_reason(*split_k, *tiles, *sm_count, *steps)),
            format!("stages={stages}: as many as fit in shared memory, up to {}", STAGES[0]),
        ]
    }

    /// Whether every dimension is large enough.
    pub(super) fn pays(&self, problem: &Problem<'_>) -> bool {
        problem.m >= WGMMA_M && problem.n >= EXTENT_MIN && problem.k >= EXTENT_MIN
    }
}
