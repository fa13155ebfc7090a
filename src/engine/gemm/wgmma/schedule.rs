//! Knobs, and what follows from their settings.

use crate::engine::access::GRID_MAX;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::Tiling;
use crate::engine::gemm::wgmma::product::{Product, ROWS};
use crate::engine::gemm::work::{Block, Units, work};
use crate::engine::{EngineConfig, KernelWork, Knob};
use crate::error::{Error, Result};
use crate::target::Target;

/// Sums of one thread, at most: half of its registers are left for what follows the product.
const SUMS_MAX: i64 = 128;

/// Rows that a warp stages at once.
pub(super) const SLICE_ROWS: i64 = 16;

/// Registers of a multiprocessor, which one block takes.
const REGISTERS_SM: i64 = 65536;

/// Threads of a warpgroup.
const WARPGROUP: i64 = 128;

pub(super) fn knobs() -> Vec<Knob> {
    vec![
        Knob {
            name: "cluster",
            about: "blocks one below the other that share columns of B",
            values: vec![1, 2],
        },
        Knob { name: "cta_m", about: "rows of a block's tile", values: vec![64, 128, 256] },
        Knob {
            name: "cta_n",
            about: "columns of a block's tile",
            values: (1..=8).map(|n| 32 * n).collect(),
        },
        Knob { name: "group", about: "rows of tiles walked together", values: vec![1, 4, 8] },
        Knob { name: "stages", about: "steps in shared memory", values: vec![3, 4, 5, 6, 8] },
    ]
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Schedule {
    /// Tiles of a cluster's blocks together.
    pub(super) tiling: Tiling,
    pub(super) cta_m: i64,
    pub(super) cta_n: i64,
    pub(super) stages: i64,
    pub(super) cluster: i64,
    /// Warpgroups that multiply.
    pub(super) consumers: i64,
    /// Columns that a warp stages at once.
    pub(super) warp_n: i64,
    pub(super) shared_bytes: i64,
}

/// Bytes of shared memory that tiles of this size take for each stage.
pub(super) fn stage_bytes([cta_m, cta_n]: [i64; 2]) -> i64 {
    (cta_m + cta_n) * 128
}

/// Bytes of shared memory that tiles of this size take beside the stages, without barriers.
pub(super) fn staging_bytes([cta_m, cta_n]: [i64; 2]) -> i64 {
    4 * consumers(cta_m) * SLICE_ROWS * warp_n(cta_n) * 4
}

fn consumers(cta_m: i64) -> i64 {
    (cta_m / ROWS).min(2)
}

fn warp_n(cta_n: i64) -> i64 {
    if cta_n % 64 == 0 { 64 } else { 32 }
}

impl Schedule {
    /// # Errors
    /// `NotSupported` for a setting that the device's limits or the problem rule out.
    pub(super) fn new(
        problem: &Problem<'_>,
        product: &Product,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Schedule> {
        let refuse = |rule: String| Err(Error::not_supported(format!("{config} {rule}")));
        let [cta_m, cta_n, stages] =
            [config.knob("cta_m")?, config.knob("cta_n")?, config.knob("stages")?];
        let cluster = config.knob("cluster")?;
        let (consumers, warp_n) = (consumers(cta_m), warp_n(cta_n));
        let sums = cta_m * cta_n / (consumers * WARPGROUP);
        if sums > SUMS_MAX {
            return refuse(format!("leaves {sums} sums to a thread, which has {SUMS_MAX}"));
        }
        if !product.depth_packed[1] && cta_n % 64 != 0 {
            return refuse("cuts panels of B, whose columns are packed by 64".to_owned());
        }
        let barriers = 2 * 8 * stages;
        let shared_bytes =
            stages * stage_bytes([cta_m, cta_n]) + staging_bytes([cta_m, cta_n]) + barriers;
        let available = i64::from(target.shared_block_bytes_max);
        if shared_bytes > available {
            return refuse(format!(
                "needs {shared_bytes} bytes of shared memory, a block has {available}"
            ));
        }
        let group = config.knob("group")?;
        let tiling =
            Tiling { cta_m: cluster * cta_m, cta_n, cta_k: product.cta_k(), group, split_k: 1 };
        let blocks = tiling.tiles(problem).saturating_mul(cluster);
        if blocks > GRID_MAX {
            return refuse(format!("has {blocks} tiles, more than a grid counts"));
        }
        Ok(Schedule { tiling, cta_m, cta_n, stages, cluster, consumers, warp_n, shared_bytes })
    }

    /// One warpgroup more brings the tiles.
    pub(super) fn threads(&self) -> i64 {
        (self.consumers + 1) * WARPGROUP
    }

    /// Blocks that have a tile.
    pub(super) fn blocks(&self, problem: &Problem<'_>) -> i64 {
        self.tiling.tiles(problem) * self.cluster
    }

    /// What the launch asks of a GPU.
    pub(super) fn work(&self, problem: &Problem<'_>, product: &Product) -> KernelWork {
        let (threads, stages) = (self.threads(), self.stages);
        let registers = REGISTERS_SM / threads / 8 * 8;
        let block = Block { threads, registers, shared_bytes: self.shared_bytes, stages };
        let units = Units::Tensor(product.work(self.cta_n));
        let of_cluster = work(problem, &self.tiling, block, units).swap_remove(0);
        KernelWork {
            blocks: of_cluster.blocks * self.cluster as u64,
            in_flight_bytes: of_cluster.in_flight_bytes / self.cluster as f64,
            ..of_cluster
        }
    }
}
