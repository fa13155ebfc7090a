//! The split-K reduction kernel: adds up the partial accumulators in a fixed order, then runs the
//! epilogue. Each warp processes a few rows.

use serde_json::json;

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::parameters::{Context, functions};
use crate::engine::gemm::problem::Problem;
use crate::engine::signature::{arguments, merged};
use crate::kernel::{Grid, KernelPlan, KernelSpec, LaunchPlan};
use crate::target::Arch;

/// Warps per block.
const WARPS: i64 = 4;

/// Threads per block.
pub(super) const THREADS: i64 = 32 * WARPS;

/// Maximum number of columns per warp.
const COLUMNS_MAX: i64 = 64;

/// Minimum number of rows per warp with epilogue reductions, to limit the number of partials.
const REDUCED_ROWS: i64 = 8;

/// The split-K reduction kernel: sums partial accumulators in a fixed order, then runs the
/// epilogue.
pub(super) struct Sum<'a> {
    problem: &'a Problem<'a>,
    /// Rows and columns of the warp tile.
    pub(super) finished: [i64; 2],
    /// Columns per lane: 16 bytes of accumulators.
    pub(super) vector: i64,
}

impl<'a> Sum<'a> {
    pub(super) fn of(problem: &'a Problem<'a>) -> Sum<'a> {
        let vector = 16 / problem.matmul.math.dtype().bytes() as i64;
        let wanted = (problem.n.clamp(1, COLUMNS_MAX) as u64).next_power_of_two() as i64;
        let columns = wanted.max(vector);
        let rows = 32 / (columns / vector);
        let rows = if problem.exits.is_empty() { rows } else { rows.max(REDUCED_ROWS) };
        Sum { problem, finished: [rows, columns], vector }
    }

    /// Number of blocks.
    pub(super) fn blocks(&self) -> i64 {
        let [rows, columns] = self.finished;
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
        let epilogue = context.epilogue(self.vector);
        let entry = "gemm_sum";
        let stem = format!("sm75_gemm_{}_sum", problem.output_name());
        let [rows, columns] = self.finished;
        let own = json!({
            "stem": stem,
            "entry": entry,
            "arch": arch.to_string(),
            "listing": context.following(),
            "functions": functions(&[&epilogue]),
            "epilogue": epilogue,
            "adds_parts": true,
            "warps": WARPS,
            "slice_rows": rows,
            "warp_n": columns,
        });
        let (passed, taken) = (problem.passed_to_epilogue(), context.taken());
        let mut arguments = arguments(problem.graph, passed.iter());
        arguments.extend(context.scratch(&taken));
        let parameters = merged(context.shared(&passed, taken), own);
        let template = "gemm/sm75_gemm_sum.cu";
        KernelPlan {
            spec: KernelSpec { stem, template, entry, arch, parameters: parameters.into() },
            launch: LaunchPlan {
                grid: Grid::Fixed(if problem.is_empty() { 0 } else { self.blocks() as u32 }),
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
