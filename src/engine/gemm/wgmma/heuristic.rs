//! The knob settings expected to run best, and why.

use crate::engine::EngineConfig;
use crate::engine::access::ceil_div;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::{DYNAMIC_REASON, GROUP, tiles_of};
use crate::engine::gemm::wgmma::NAME;
use crate::engine::gemm::wgmma::product::{Product, ROWS, cycles, efficiency};
use crate::engine::gemm::wgmma::schedule::{KNOBS, Tile};
use crate::target::Target;

/// Tiles to choose from; of equals the first.
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
    Tile::turns(128, 128),
    Tile::turns(64, 256),
    Tile::turns(64, 128),
];

/// Instructions with which a lane stages and stores a sum.
const INSTRUCTIONS_SUM: f64 = 4.0;

/// Lanes of a multiprocessor.
const LANES: f64 = 128.0;

/// Stages to choose from.
const STAGES: [i64; 5] = [8, 6, 5, 4, 3];

/// Rows of tiles from which on two blocks share columns of B.
const CLUSTER_ROWS_MIN: i64 = 4;

/// Extents from which on products of a warpgroup are not mostly padding.
const EXTENT_MIN: i64 = 64;

/// Steps of the depth from which on it should be shared among blocks where tiles are few.
const SPLIT_STEPS: i64 = 16;

/// The settings, and what decided them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    tile: Tile,
    cluster: i64,
    stages: i64,
    tiles: i64,
    /// What storing a tile takes of the time that multiplying it does, in percent.
    storing: i64,
    sm_count: i64,
    /// Rows of tiles of a matrix.
    rows: i64,
}

impl Decision {
    pub(super) fn of(problem: &Problem<'_>, product: &Product, target: &Target) -> Decision {
        let sm_count = i64::from(target.sm_count);
        let tiles = |tile: Tile| tiles_of(problem, tile.cta);
        let steps = ceil_div(problem.k, product.cta_k()) as f64;
        let operations = problem.epilogue.program.program.instructions().len() as f64;
        let instructions = INSTRUCTIONS_SUM + operations * INSTRUCTIONS_OPERATION;
        let multiplying = |tile: Tile| 4.0 * steps * cycles(tile.cta) / efficiency(tile.cta);
        let storing = |tile: Tile| (tile.cta[0] * tile.cta[1]) as f64 * instructions / LANES;
        // The cycles of the busiest multiprocessor. In turns, only the last tile's store is seen.
        let cost = |tile: &Tile| {
            let (multiplying, storing) = (multiplying(*tile), storing(*tile));
            let (rounds, both) = (ceil_div(tiles(*tile), sm_count) as f64, multiplying + storing);
            match tile.turns {
                true => rounds * multiplying.max(both / 2.0) + storing,
                false => rounds * both,
            }
        };
        let whole = |tile: &Tile| product.depth_packed[1] || tile.cta[1] % 64 == 0;
        let candidates = CANDIDATES.into_iter().filter(whole);
        let tile =
            candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let rows = ceil_div(problem.m, tile.cta[0]);
        // A row more that pairs with none is work for nothing.
        let pairs = rows >= CLUSTER_ROWS_MIN && rows % 2 == 0 && sm_count % 2 == 0;
        let available = i64::from(target.shared_block_bytes_max);
        let fits = |stages: &i64| tile.shared_bytes(*stages) <= available;
        let stages = STAGES.into_iter().find(fits).unwrap_or(STAGES[STAGES.len() - 1]);
        let storing = (100.0 * storing(tile) / multiplying(tile)) as i64;
        let cluster = if pairs { 2 } else { 1 };
        Decision { tile, cluster, stages, tiles: tiles(tile), storing, sm_count, rows }
    }

    /// A value for each knob, in the order of [`KNOBS`].
    pub(super) fn values(&self) -> [i64; 7] {
        let Tile { cta: [cta_m, cta_n], turns } = self.tile;
        [self.cluster, cta_m, cta_n, 0, GROUP, self.stages, i64::from(turns)]
    }

    pub(super) fn config(&self) -> EngineConfig {
        EngineConfig::of_values(NAME, KNOBS, self.values())
    }

    /// A line for each knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { tile, cluster, stages, tiles, storing, sm_count, rows } = self;
        let ([cta_m, cta_n], turns) = (tile.cta, i64::from(tile.turns));
        let tile = format!("{tiles} tiles load {sm_count} multiprocessors best");
        let shared = match cluster {
            2 => format!("{rows} rows of tiles make pairs that load columns of B once"),
            _ => format!("{rows} rows of tiles do not make enough pairs"),
        };
        vec![
            format!("cluster={cluster}: {shared}"),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            DYNAMIC_REASON.to_owned(),
            "group=8: blocks that run together share rows of A and columns of B".to_owned(),
            format!("stages={stages}: as many as fit in shared memory, up to {}", STAGES[0]),
            format!("turns={turns}: a tile is stored in {storing}% of the time of its products"),
        ]
    }

    /// Whether the problem is large enough in every dimension, and has tiles enough or so little
    /// depth that sharing it would not help.
    pub(super) fn pays(&self, problem: &Problem<'_>, product: &Product) -> bool {
        let wide = problem.m >= ROWS && problem.n >= EXTENT_MIN && problem.k >= EXTENT_MIN;
        wide && self.blocks_wanted(problem, product) == 1
    }

    /// Blocks that should share the depth of a tile.
    pub(super) fn blocks_wanted(&self, problem: &Problem<'_>, product: &Product) -> i64 {
        let steps = ceil_div(problem.k, product.cta_k());
        match 2 * self.tiles > self.sm_count || steps < SPLIT_STEPS {
            true => 1,
            false => (self.sm_count / self.tiles).min(steps),
        }
    }
}
