//! The knob settings expected to run best, and why.

use crate::engine::EngineConfig;
use crate::engine::access::ceil_div;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::gemm::order::Order;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::{DYNAMIC_REASON, joining, split_reason, splits, tiles_of};
use crate::engine::gemm::wgmma::product::{Product, efficiency};
use crate::engine::gemm::wgmma::schedule::{KNOBS, NAME, Tile};
use crate::engine::warpgroup::{ROWS, cycles};
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

/// Cycles in 2.6 us, which a launch takes: 1700 in each.
const LAUNCH: f64 = 4500.0;

/// The settings, and what decided them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Decision {
    tile: Tile,
    cluster: i64,
    order: Order,
    stages: i64,
    split_k: i64,
    tiles: i64,
    /// Pipeline steps along the whole of K.
    steps: i64,
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
        let steps = ceil_div(problem.k, product.cta_k());
        let operations = problem.epilogue.program.program.instructions().len() as f64;
        let instructions = INSTRUCTIONS_SUM + operations * INSTRUCTIONS_OPERATION;
        let multiplying = |tile: Tile, split_k: i64| {
            let multiplied = tile.multiplied(problem);
            4.0 * ceil_div(steps, split_k) as f64 * cycles(multiplied) / efficiency(multiplied)
        };
        let storing = |tile: Tile| (tile.cta[0] * tile.cta[1]) as f64 * instructions / LANES;
        // The cycles of the busiest multiprocessor. In turns, only the last tile's store is seen.
        let cost = |(tile, split_k): &(Tile, i64)| {
            let (multiplying, storing) = (multiplying(*tile, *split_k), storing(*tile));
            let rounds = ceil_div(tiles(*tile).saturating_mul(*split_k), sm_count) as f64;
            let (both, joining) = (multiplying + storing, joining(problem, *split_k));
            match tile.turns {
                true => rounds * multiplying.max(both / 2.0) + storing,
                false => rounds * both + LAUNCH * joining,
            }
        };
        let whole = |tile: &Tile| {
            (product.depth_packed[1] || tile.cta[1] % 64 == 0) && tile.check(problem).is_ok()
        };
        // Parts of the depth go to multiprocessors that would have nothing to do.
        let parts = |tile: Tile| {
            let idle = move |split_k: &i64| {
                let blocks = tiles(tile).saturating_mul(*split_k);
                let filled = (split_k - 1) * ceil_div(steps, *split_k) < steps;
                *split_k == 1 || !tile.turns && blocks <= sm_count && filled
            };
            splits(problem).filter(idle).map(move |split_k| (tile, split_k))
        };
        let candidates = CANDIDATES.into_iter().filter(whole).flat_map(parts);
        let (tile, split_k) =
            candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let rows = ceil_div(problem.m, tile.cta[0]);
        // A row more that pairs with none is work for nothing.
        let pairs = rows >= CLUSTER_ROWS_MIN && rows % 2 == 0 && sm_count % 2 == 0;
        let available = i64::from(target.shared_block_bytes_max);
        let fits = |stages: &i64| tile.shared_bytes(problem, *stages) <= available;
        let stages = STAGES.into_iter().find(fits).unwrap_or(STAGES[STAGES.len() - 1]);
        let storing = (100.0 * storing(tile) / multiplying(tile, split_k)) as i64;
        let cluster = if pairs { 2 } else { 1 };
        let tiles = tiles(tile);
        let [cta_m, cta_n] = tile.cta;
        let order = Order::of(problem, [cluster * cta_m, cta_n], sm_count / cluster);
        Decision { tile, cluster, order, stages, split_k, tiles, steps, storing, sm_count, rows }
    }

    /// A value for each knob, in the order of [`KNOBS`].
    pub(super) fn values(&self) -> [i64; 9] {
        let Decision { tile, cluster, order, stages, split_k, .. } = *self;
        let ([cta_m, cta_n], turns) = (tile.cta, i64::from(tile.turns));
        [cluster, cta_m, cta_n, 0, order.group, order.raster(), split_k, stages, turns]
    }

    pub(super) fn config(&self) -> EngineConfig {
        EngineConfig::of_values(NAME, KNOBS, self.values())
    }

    /// A line for each knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { tile, cluster, stages, split_k, tiles, steps, .. } = self;
        let Decision { storing, sm_count, rows, .. } = self;
        let [group, raster] = self.order.reasons();
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
            group,
            raster,
            format!("split_k={split_k}: {}", split_reason(*split_k, *tiles, *sm_count, *steps)),
            format!("stages={stages}: as many as fit in shared memory, up to {}", STAGES[0]),
            format!("turns={turns}: a tile is stored in {storing}% of the time of its products"),
        ]
    }

    /// Whether the problem is large enough in every dimension.
    pub(super) fn pays(&self, problem: &Problem<'_>) -> bool {
        problem.m >= ROWS && problem.n >= EXTENT_MIN && problem.k >= EXTENT_MIN
    }
}
