//! The kernels that combine the partials of epilogue reductions, one per reduction, in an order
//! that depends only on the number of partials.

use serde_json::json;

use crate::engine::KernelWork;
use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::exits::{Exit, Kept};
use crate::engine::gemm::parameters::Context;
use crate::engine::gemm::partials::PARTIALS_BYTES_MAX;
use crate::engine::gemm::partials::Parts;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::Refusal;
use crate::engine::signature::{arguments, merged};
use crate::error::Result;
use crate::kernel::{Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Arch;

/// Threads per block.
const THREADS: i64 = 256;

/// Maximum number of results per block.
const LANES_MAX: i64 = 32;

/// Partials that a thread loads before it waits.
const ROUND: i64 = 4;

/// A kernel that writes partials of epilogue reductions, with the kernels that combine them.
pub(super) fn with_joins(
    mut lowering: Lowering,
    context: &Context<'_>,
    finished: [i64; 2],
    arch: Arch,
) -> Lowering {
    for at in 0..context.problem.exits.len() {
        let join = Join::of(context.problem, at, finished);
        lowering.kernels.push(join.kernel(context, finished, arch));
        lowering.scratch.push(join.bytes() as u64);
    }
    lowering
}

/// Whether parts of so many rows and columns fit memory, and the kernels that join them a grid.
pub(super) fn check_joins(problem: &Problem<'_>, finished: [i64; 2]) -> Result<(), Refusal> {
    for at in 0..problem.exits.len() {
        let join = Join::of(problem, at, finished);
        let bytes = join.bytes();
        if bytes > PARTIALS_BYTES_MAX || ceil_div(join.results, join.lanes()) > GRID_MAX {
            return Err(Refusal::ReducedParts { bytes });
        }
    }
    Ok(())
}

/// The kernel that combines the partials of one reduction.
pub(super) struct Join<'a> {
    exit: &'a Exit,
    /// Index of the reduction.
    at: usize,
    results: i64,
    /// Partial results of each result.
    parts: i64,
}

impl<'a> Join<'a> {
    /// The combine kernel of reduction `at`; a partial covers `rows` x `columns` elements.
    pub(super) fn of(problem: &'a Problem<'_>, at: usize, [rows, columns]: [i64; 2]) -> Join<'a> {
        let exit = &problem.exits[at];
        let [parts_m, parts_n] = [ceil_div(problem.m, rows), ceil_div(problem.n, columns)];
        let (lines, parts) = match exit.kept {
            Kept::Rows => (problem.m, parts_n),
            Kept::Columns => (problem.n, parts_m),
            Kept::Neither => (1, parts_m.saturating_mul(parts_n)),
        };
        let batches = problem.batch_count();
        let (results, parts) = match exit.keeps_batches {
            true => (lines.saturating_mul(batches), parts),
            false => (lines, parts.saturating_mul(batches)),
        };
        Join { exit, at, results, parts }
    }

    /// Bytes of all partial results of all results.
    pub(super) fn bytes(&self) -> i64 {
        let size = self.exit.op.math.dtype().bytes() as i64;
        self.results.saturating_mul(self.parts).saturating_mul(size)
    }

    /// Results per block, independent of the number of rows.
    fn lanes(&self) -> i64 {
        match self.exit.kept {
            Kept::Rows => LANES_MAX,
            _ => (self.results.max(1) as u64).next_power_of_two().min(LANES_MAX as u64) as i64,
        }
    }

    /// Work for the cost model; the partials are still in L2.
    pub(super) fn work(&self) -> KernelWork {
        let size = self.exit.op.math.dtype().bytes() as i64;
        let ranks = THREADS / self.lanes();
        KernelWork {
            blocks: ceil_div(self.results, self.lanes()) as u64,
            threads: THREADS as u32,
            registers: 32,
            shared_bytes: (THREADS * size) as u32,
            dram_bytes: (self.results * size) as f64,
            l2_bytes: self.bytes() as f64,
            in_flight_bytes: (THREADS * ROUND * size) as f64,
            round_trips: ceil_div(self.parts, ranks * ROUND).max(1) as f64,
            lane_instructions: self.results as f64 * self.parts as f64,
            f64_instructions: 0.0,
            tensor: None,
        }
    }

    fn kernel(&self, context: &Context<'_>, finished: [i64; 2], arch: Arch) -> KernelPlan {
        let Context { problem, tiling, .. } = context;
        let entry = "gemm_join";
        let dtype = problem.graph.tensors[self.exit.result].dtype;
        let stem = format!("sm75_gemm_{dtype}_join");
        let own = json!({
            "stem": stem,
            "entry": entry,
            "arch": arch.to_string(),
            "functions": [],
            "threads": THREADS,
            "lanes": self.lanes(),
            "part_rows": finished[0],
            "part_columns": finished[1],
        });
        let taken = Parts { sums: false, exits: self.at..self.at + 1 };
        let mut arguments = arguments(problem.graph, [self.exit.result].iter());
        arguments.extend(context.scratch(&taken));
        let shared = context.shared(&[self.exit.result], taken);
        let parameters = merged(merged(shared, context.joined(self.at)), own);
        let template = "gemm/sm75_gemm_join.cu";
        KernelPlan {
            spec: KernelSpec { stem, template, entry, arch, parameters: parameters.into() },
            launch: LaunchPlan {
                grid: Grid::Fixed(ceil_div(self.results, self.lanes()) as u32),
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
