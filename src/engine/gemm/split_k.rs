//! The split-K reduction kernel: adds up the partial accumulators in a fixed order, then runs the
//! epilogue. Each warp processes a few rows.

use serde::Serialize;

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::context::{AccumulatorParameters, Context, ProblemParameters};
use crate::engine::gemm::epilogue::EpilogueParameters;
use crate::engine::gemm::lane_columns::LaneColumns;
use crate::engine::gemm::problem::Problem;
use crate::engine::header::KernelNames;
use crate::engine::signature::arguments;
use crate::kernel::{Grid, KernelPlan, LaunchPlan};
use crate::target::Arch;

/// Warps per block.
const WARPS: i64 = 4;

/// Threads per block.
pub(super) const THREADS: i64 = 32 * WARPS;

/// Maximum number of columns per warp.
const COLUMNS_MAX: i64 = 64;

/// Minimum number of rows per warp with epilogue reductions, to limit the number of partials.
const REDUCTION_ROWS: i64 = 8;

/// The split-K reduction kernel: sums partial accumulators in a fixed order, then runs the
/// epilogue.
pub(super) struct SplitKReduction<'a> {
    problem: &'a Problem<'a>,
    /// Rows and columns of the warp tile.
    pub(super) epilogue_tile: [i64; 2],
    /// Columns per lane: 16 bytes of accumulators.
    pub(super) vector: i64,
}

impl<'a> SplitKReduction<'a> {
    pub(super) fn of(problem: &'a Problem<'a>) -> SplitKReduction<'a> {
        let vector = 16 / problem.matmul.math.dtype().bytes() as i64;
        let wanted = (problem.n.clamp(1, COLUMNS_MAX) as u64).next_power_of_two() as i64;
        let columns = wanted.max(vector);
        let rows = 32 / (columns / vector);
        let reduces = !problem.epilogue_reductions().is_empty();
        let rows = if reduces { rows.max(REDUCTION_ROWS) } else { rows };
        SplitKReduction { problem, epilogue_tile: [rows, columns], vector }
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> i64 {
        let [rows, columns] = self.epilogue_tile;
        let warps = ceil_div(self.problem.m, rows)
            .saturating_mul(ceil_div(self.problem.n, columns))
            .saturating_mul(self.problem.batch_count());
        ceil_div(warps, WARPS)
    }

    pub(super) fn fits_grid(&self) -> bool {
        self.blocks() <= GRID_MAX
    }

    pub(super) fn kernel(&self, context: &Context<'_>, arch: Arch) -> KernelPlan {
        let Context { problem, tiling, .. } = context;
        let epilogue = context.epilogue(LaneColumns::blocked(self.vector));
        let names = KernelNames {
            stem: format!("sm75_gemm_{}_splitk_reduce", problem.output_name()),
            template: "gemm/sm75_gemm_splitk_reduce.cu",
            entry: "gemm_splitk_reduce",
        };
        let (passed, partials) = (problem.passed_to_epilogue(), context.reduction_workspace());
        let mut arguments = arguments(problem.graph.graph(), passed.iter());
        arguments.extend(context.scratch(&partials));
        let (listing, functions) = (context.epilogue_listing(), epilogue.functions.clone());
        let [slice_rows, warp_n] = self.epilogue_tile;
        let parameters = Parameters {
            problem: context.problem_parameters(&passed, partials, listing, functions),
            accumulators: context.accumulator_parameters(),
            adds_partials: true,
            epilogue,
            warps: WARPS,
            slice_rows,
            warp_n,
        };
        KernelPlan {
            spec: names.spec(arch, &parameters),
            launch: LaunchPlan {
                grid: Grid::fixed(if problem.is_empty() { 0 } else { self.blocks() as u32 }),
                threads: THREADS as u32,
                shared_bytes: 0,
                cooperative: false,
                arguments,
                maps: Vec::new(),
                numbers: tiling.numbers(problem),
            },
        }
    }
}

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    accumulators: AccumulatorParameters,
    adds_partials: bool,
    epilogue: EpilogueParameters,
    warps: i64,
    /// Rows and columns of a warp tile.
    slice_rows: i64,
    warp_n: i64,
}
