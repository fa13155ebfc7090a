//! Knobs and schedule.

use crate::engine::access::REGISTERS_SM;
use crate::engine::gemm::epilogue_reduction::Reduced;
use crate::engine::gemm::lowering::check_workspace;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::rasterization::{Rasterization, group_knob, raster_knob};
use crate::engine::gemm::tiling::{Refusal, Tiling, dynamic_knobs, split_knob};
use crate::engine::gemm::wgmma::operands::WgmmaOperands;
use crate::engine::gemm::work::{Block, Demand, MathPath};
use crate::engine::instruction::{WARPGROUP, WGMMA_M};
use crate::engine::{KernelWork, Knob};
use crate::error::Result;
use crate::target::Target;

/// Maximum number of accumulators per thread; leaves half of the registers for the epilogue.
const ACCUMULATORS_MAX: i64 = 128;

/// Maximum N of a `wgmma`.
const COLUMNS_MAX: i64 = 256;

/// Rows that a warp stages at once in the epilogue.
pub(super) const SLICE_ROWS: i64 = 16;

/// The name of the engine.
pub(super) const NAME: &str = "gemm_wgmma";

/// The names of the knobs.
pub(super) const KNOBS: [&str; 10] = [
    "cluster",
    "cta_m",
    "cta_n",
    "dynamic_k",
    "dynamic_m",
    "group",
    "ping_pong",
    "raster",
    "split_k",
    "stages",
];

pub(super) fn knobs(problem: &Problem<'_>) -> [Knob; 10] {
    let [dynamic_k, dynamic_m] = dynamic_knobs(problem);
    [
        Knob {
            name: "cluster",
            about: "CTAs of a cluster along M, which multicast B",
            values: vec![1, 2],
        },
        Knob { name: "cta_m", about: "rows of a CTA's tile of C", values: vec![64, 128, 256] },
        Knob {
            name: "cta_n",
            about: "columns of a CTA's tile of C",
            values: (1..=8).map(|n| 32 * n).collect(),
        },
        dynamic_k,
        dynamic_m,
        group_knob(&[1, 4, 8]),
        Knob {
            name: "ping_pong",
            about: "1: one warpgroup multiplies while the other stores; 0: cooperative",
            values: vec![0, 1],
        },
        raster_knob(),
        split_knob(problem),
        Knob {
            name: "stages",
            about: "pipeline stages in shared memory",
            values: vec![3, 4, 5, 6, 8],
        },
    ]
}

/// A setting of every knob, and what follows from it: accumulators, pipeline stages, shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Schedule {
    /// Tiling of a cluster's blocks together.
    pub(super) tiling: Tiling,
    pub(super) tile: Tile,
    pub(super) stages: i64,
    pub(super) cluster: i64,
    pub(super) shared_bytes: i64,
}

/// The block tile and how consumer warpgroups share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// Rows and columns.
    pub(super) cta: [i64; 2],
    /// Ping-pong: each warpgroup computes whole tiles; otherwise all share a tile.
    pub(super) ping_pong: bool,
}

impl Tile {
    pub(super) const fn shared(cta_m: i64, cta_n: i64) -> Tile {
        Tile { cta: [cta_m, cta_n], ping_pong: false }
    }

    pub(super) const fn ping_pong(cta_m: i64, cta_n: i64) -> Tile {
        Tile { cta: [cta_m, cta_n], ping_pong: true }
    }

    /// Consumer warpgroups.
    pub(super) fn consumers(self) -> i64 {
        if self.ping_pong { 2 } else { (self.cta[0] / WGMMA_M).min(2) }
    }

    /// Rows of the tile, and columns of all GEMMs together.
    pub(super) fn multiplied(self, problem: &Problem<'_>) -> [i64; 2] {
        [self.cta[0], self.cta[1] * problem.gemm_count()]
    }

    /// Accumulators per thread.
    fn accumulators(self, problem: &Problem<'_>) -> i64 {
        let ctas = if self.ping_pong { 1 } else { self.consumers() };
        self.multiplied(problem).iter().product::<i64>() / (ctas * WARPGROUP)
    }

    /// Checks the number of accumulators and the N of the instruction.
    pub(super) fn check(self, problem: &Problem<'_>) -> Result<(), Refusal> {
        let (count, columns) = (self.accumulators(problem), self.multiplied(problem)[1]);
        if columns > COLUMNS_MAX {
            return Err(Refusal::Columns { count: columns, max: COLUMNS_MAX });
        }
        match count > ACCUMULATORS_MAX {
            true => Err(Refusal::Accumulators { count, max: ACCUMULATORS_MAX }),
            false => Ok(()),
        }
    }

    /// Columns per GEMM that a warp stages at once.
    pub(super) fn warp_n(self, problem: &Problem<'_>) -> i64 {
        if self.cta[1] % 64 == 0 && problem.dual.is_none() { 64 } else { 32 }
    }

    /// Bytes of shared memory: operand stages, barriers, epilogue staging, and the B of sums.
    pub(super) fn shared_bytes(self, problem: &Problem<'_>, stages: i64) -> i64 {
        let columns = self.warp_n(problem) * problem.gemm_count();
        let staging = 4 * self.consumers() * SLICE_ROWS * columns * 4;
        let barriers = if self.ping_pong { 2 * 8 } else { 0 };
        let lines = self.multiplied(problem).iter().sum::<i64>();
        let ones = if problem.summed().is_some() { 8 * 32 } else { 0 };
        stages * (lines * 128 + 2 * 8) + barriers + staging + ones
    }
}

impl Schedule {
    /// The schedule of values in the order of [`KNOBS`].
    ///
    /// # Errors
    /// Where the settings exceed a limit of the device or do not fit the problem.
    pub(super) fn new(
        problem: &Problem<'_>,
        operands: &WgmmaOperands,
        target: &Target,
        [cluster, cta_m, cta_n, k, m, group, ping_pong, raster, split_k, stages]: [i64; 10],
    ) -> Result<Schedule, Refusal> {
        let tile = Tile { cta: [cta_m, cta_n], ping_pong: ping_pong == 1 };
        tile.check(problem)?;
        if !operands.k_major[1] && cta_n % 64 != 0 {
            return Err(Refusal::SwizzleAtoms);
        }
        if problem.summed() == Some(Reduced::B) && cta_n % WGMMA_M != 0 {
            return Err(Refusal::SummedColumns);
        }
        let shared_bytes = tile.shared_bytes(problem, stages);
        let available = i64::from(target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(Refusal::SharedBytes { needed: shared_bytes, available });
        }
        let cta_k = operands.cta_k();
        let [dynamic_k, dynamic_m] = [k, m].map(|knob| knob == 1);
        if split_k > 1 && tile.ping_pong {
            return Err(Refusal::PingPongSplitK);
        }
        let rasterization = Rasterization::from_knobs(group, raster);
        let cta_m = cluster * cta_m;
        let tiling = Tiling { cta_m, cta_n, cta_k, rasterization, split_k, dynamic_k, dynamic_m };
        tiling.check(problem, cluster)?;
        check_workspace(problem, split_k, [SLICE_ROWS, tile.warp_n(problem)])?;
        Ok(Schedule { tiling, tile, stages, cluster, shared_bytes })
    }

    /// Threads per block, including the producer warpgroup.
    pub(super) fn threads(&self) -> i64 {
        (self.tile.consumers() + 1) * WARPGROUP
    }

    /// Work of the kernels.
    pub(super) fn work(
        &self,
        problem: &Problem<'_>,
        demand: &Demand,
        operands: &WgmmaOperands,
    ) -> Vec<KernelWork> {
        let (threads, stages) = (self.threads(), self.stages);
        let registers = REGISTERS_SM / threads / 8 * 8;
        let epilogue_tile = [SLICE_ROWS, self.tile.warp_n(problem)];
        let block =
            Block { threads, registers, shared_bytes: self.shared_bytes, stages, epilogue_tile };
        let math_path = MathPath::Tensor(operands.work(self.tile.multiplied(problem)));
        let mut work = demand.work(problem, &self.tiling, block, math_path);
        // The tiling is per cluster.
        work[0].blocks *= self.cluster as u64;
        work[0].in_flight_bytes /= self.cluster as f64;
        work
    }
}
