//! The knob settings expected to run best, and why.

use crate::engine::EngineConfig;
use crate::engine::access::ceil_div;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::tiles_of;
use crate::engine::gemm::wgmma::NAME;
use crate::engine::gemm::wgmma::product::{Product, ROWS};
use crate::engine::gemm::wgmma::schedule::{stage_bytes, staging_bytes};
use crate::target::Target;

/// Tiles to choose from, and how close each comes to the speed of the tensor cores: a product of n
/// columns reads 64 + n lines of shared memory in the time of n / 2, and a block n + m for n m.
pub(super) const CANDIDATES: [([i64; 2], f64); 9] = [
    ([128, 256], 1.0),
    ([256, 128], 1.0),
    ([128, 192], 0.96),
    ([128, 128], 0.92),
    ([64, 256], 0.85),
    ([128, 64], 0.75),
    ([64, 128], 0.7),
    ([64, 64], 0.55),
    ([64, 32], 0.35),
];

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
    cta: [i64; 2],
    cluster: i64,
    stages: i64,
    tiles: i64,
    sm_count: i64,
    /// Rows of tiles of a matrix.
    rows: i64,
}

impl Decision {
    pub(super) fn of(problem: &Problem<'_>, product: &Product, target: &Target) -> Decision {
        let sm_count = i64::from(target.sm_count);
        let tiles = |cta: [i64; 2]| tiles_of(problem, cta);
        // The multiplications of the busiest multiprocessor, as far as a tile is efficient.
        let cost = |(cta, efficiency): &([i64; 2], f64)| {
            let rounds = ceil_div(tiles(*cta), sm_count) as f64;
            rounds * (cta[0] * cta[1]) as f64 / efficiency
        };
        let whole = |cta: &[i64; 2]| product.depth_packed[1] || cta[1] % 64 == 0;
        let candidates = CANDIDATES.iter().filter(|(cta, _)| whole(cta));
        let (cta, _) =
            *candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are candidates");
        let rows = ceil_div(problem.m, cta[0]);
        // A row more that pairs with none is work for nothing.
        let pairs = rows >= CLUSTER_ROWS_MIN && rows % 2 == 0 && sm_count % 2 == 0;
        let available = i64::from(target.shared_block_bytes_max) - staging_bytes(cta);
        let fits = |stages: &i64| stages * (stage_bytes(cta) + 16) <= available;
        let stages = STAGES.into_iter().find(fits).unwrap_or(STAGES[STAGES.len() - 1]);
        let cluster = if pairs { 2 } else { 1 };
        Decision { cta, cluster, stages, tiles: tiles(cta), sm_count, rows }
    }

    pub(super) fn config(&self) -> EngineConfig {
        let settings = [
            ("cluster", self.cluster),
            ("cta_m", self.cta[0]),
            ("cta_n", self.cta[1]),
            ("group", 8),
            ("stages", self.stages),
        ];
        EngineConfig::new(NAME, &settings)
    }

    /// A line for each knob.
    pub(super) fn reasons(&self) -> Vec<String> {
        let Decision { cta: [cta_m, cta_n], cluster, stages, tiles, sm_count, rows } = self;
        let tile = format!("{tiles} tiles load {sm_count} multiprocessors best");
        let shared = match cluster {
            2 => format!("{rows} rows of tiles make pairs that load columns of B once"),
            _ => format!("{rows} rows of tiles do not make enough pairs"),
        };
        vec![
            format!("cluster={cluster}: {shared}"),
            format!("cta_m={cta_m}: {tile}"),
            format!("cta_n={cta_n}: {tile}"),
            "group=8: blocks that run together share rows of A and columns of B".to_owned(),
            format!("stages={stages}: as many as fit in shared memory, up to {}", STAGES[0]),
        ]
    }
}

/// Whether a problem is large enough in every dimension, and has tiles enough or so little depth
/// that sharing it would not help.
pub(super) fn pays(problem: &Problem<'_>, product: &Product, target: &Target) -> bool {
    let Decision { tiles, sm_count, .. } = Decision::of(problem, product, target);
    let wide = problem.m >= ROWS && problem.n >= EXTENT_MIN && problem.k >= EXTENT_MIN;
    let steps = ceil_div(problem.k, product.cta_k());
    wide && (2 * tiles > sm_count || steps < SPLIT_STEPS)
}
