//! The kernels that combine the partials of epilogue reductions, one per reduction, in an order
//! that depends only on the number of partials.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::KernelWork;
use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::context::{Context, ProblemParameters};
use crate::engine::gemm::epilogue_reduction::{EpilogueReduction, Kept};
use crate::engine::gemm::layout::{Layout, Matrix};
use crate::engine::gemm::partials::{PARTIALS_BYTES_MAX, Partials};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::Refusal;
use crate::engine::header::KernelNames;
use crate::engine::reduce::{finished, op_name};
use crate::engine::signature::{arguments, ctype};
use crate::error::Result;
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// Threads per block.
const THREADS: i64 = 256;

/// Maximum number of results per block.
const RESULTS_MAX: i64 = 32;

/// Partials that a thread loads before it waits.
const ROUND: i64 = 4;

/// A kernel that writes partials of epilogue reductions, with the kernels that combine them.
pub(super) fn with_combines(
    mut lowering: Lowering,
    context: &Context<'_>,
    epilogue_tile: [i64; 2],
    arch: Arch,
) -> Lowering {
    for at in 0..context.problem.reductions.len() {
        let combine = Combine::of(context.problem, at, epilogue_tile);
        lowering.kernels.push(combine.kernel(context, epilogue_tile, arch));
        lowering.scratch.push(combine.bytes() as u64);
    }
    lowering
}

/// Checks that the partials fit memory and the combine kernels a grid.
pub(super) fn check_combines(
    problem: &Problem<'_>,
    epilogue_tile: [i64; 2],
) -> Result<(), Refusal> {
    for at in 0..problem.reductions.len() {
        let combine = Combine::of(problem, at, epilogue_tile);
        let bytes = combine.bytes();
        if bytes > PARTIALS_BYTES_MAX
            || ceil_div(combine.results, combine.results_per_block()) > GRID_MAX
        {
            return Err(Refusal::ReductionPartials { bytes });
        }
    }
    Ok(())
}

/// The kernel that combines the partials of one reduction.
pub(super) struct Combine<'a> {
    reduction: &'a EpilogueReduction,
    /// Index of the reduction.
    at: usize,
    results: i64,
    /// Partial results of each result.
    partials: i64,
}

impl<'a> Combine<'a> {
    /// The combine kernel of reduction `at`; a partial covers `rows` x `columns` elements.
    pub(super) fn of(
        problem: &'a Problem<'_>,
        at: usize,
        [rows, columns]: [i64; 2],
    ) -> Combine<'a> {
        let reduction = &problem.reductions[at];
        let [partials_m, partials_n] = [ceil_div(problem.m, rows), ceil_div(problem.n, columns)];
        let (lines, partials) = match reduction.kept {
            Kept::Rows => (problem.m, partials_n),
            Kept::Columns => (problem.n, partials_m),
            Kept::Neither => (1, partials_m.saturating_mul(partials_n)),
        };
        let batches = problem.batch_count();
        let (results, partials) = match reduction.keeps_batches {
            true => (lines.saturating_mul(batches), partials),
            false => (lines, partials.saturating_mul(batches)),
        };
        Combine { reduction, at, results, partials }
    }

    /// Bytes of all partial results of all results.
    pub(super) fn bytes(&self) -> i64 {
        let size = self.reduction.op.math.dtype().bytes() as i64;
        self.results.saturating_mul(self.partials).saturating_mul(size)
    }

    /// Results per block, independent of the number of rows.
    fn results_per_block(&self) -> i64 {
        match self.reduction.kept {
            Kept::Rows => RESULTS_MAX,
            _ => (self.results.max(1) as u64).next_power_of_two().min(RESULTS_MAX as u64) as i64,
        }
    }

    /// Work for the cost model; the partials are still in L2.
    pub(super) fn work(&self) -> KernelWork {
        let size = self.reduction.op.math.dtype().bytes() as i64;
        let ranks = THREADS / self.results_per_block();
        KernelWork {
            blocks: ceil_div(self.results, self.results_per_block()) as u64,
            threads: THREADS as u32,
            registers: 32,
            shared_bytes: (THREADS * size) as u32,
            dram_bytes: (self.results * size) as f64,
            l2_bytes: self.bytes() as f64,
            in_flight_bytes: (THREADS * ROUND * size) as f64,
            round_trips: ceil_div(self.partials, ranks * ROUND).max(1) as f64,
            lane_instructions: self.results as f64 * self.partials as f64,
            f64_instructions: 0.0,
            tensor: None,
        }
    }

    fn kernel(&self, context: &Context<'_>, epilogue_tile: [i64; 2], arch: Arch) -> KernelPlan {
        let Context { problem, tiling, .. } = context;
        let result = self.reduction.result;
        let dtype = problem.graph.tensors[result].dtype;
        let names = KernelNames {
            stem: format!("sm75_gemm_{dtype}_combine"),
            template: "gemm/sm75_gemm_combine.cu",
            entry: "gemm_combine",
        };
        let partials = Partials { accumulators: false, reductions: self.at..self.at + 1 };
        let mut arguments = arguments(problem.graph.graph(), [result].iter());
        arguments.extend(context.scratch(&partials));
        let listing = vec![context.reduction_listing(self.reduction)];
        let functions = BTreeSet::new();
        let parameters = Parameters {
            problem: context.problem_parameters(&[result], partials, listing, functions),
            threads: THREADS,
            results: self.results_per_block(),
            partial_rows: epilogue_tile[0],
            partial_columns: epilogue_tile[1],
            reduction: self.reduction_parameters(context),
        };
        KernelPlan {
            spec: names.spec(arch, &parameters),
            launch: LaunchPlan {
                grid: Grid::Fixed(ceil_div(self.results, self.results_per_block()) as u32),
                threads: THREADS as u32,
                shared_bytes: 0,
                cooperative: false,
                arguments,
                maps: Vec::new(),
                numbers: tiling.numbers(problem),
            },
        }
    }

    fn reduction_parameters(&self, context: &Context<'_>) -> ReductionParameters {
        let EpilogueReduction { op, result, kept, keeps_batches, .. } = *self.reduction;
        let rows = (kept != Kept::Rows).then_some("rows");
        let columns = (kept != Kept::Columns).then_some("N");
        let batches = (!keeps_batches).then_some("BATCHES");
        let reduced: Vec<&str> = rows.into_iter().chain(columns).chain(batches).collect();
        let count = format!("Partial(1ll * {})", reduced.join(" * "));
        // What is reduced to steps evenly.
        let matrix = context.epilogue_matrix(1);
        ReductionParameters {
            name: context.names[result].clone(),
            op: op_name(op),
            ctype: ctype(op.math.dtype()),
            kept: kept.name(),
            keeps_batches,
            tensors: [context.layout(result, &Matrix { window: None, ..matrix })],
            stored: ctype(context.problem.graph.tensors[result].dtype),
            finish: finished(op.op, "all", &count).unwrap_or("all".to_owned()),
        }
    }
}

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    threads: i64,
    /// Results per block.
    results: i64,
    /// Rows and columns of a partial.
    partial_rows: i64,
    partial_columns: i64,
    reduction: ReductionParameters,
}

/// The reduction whose partials are combined.
#[derive(Serialize)]
struct ReductionParameters {
    name: String,
    op: &'static str,
    ctype: &'static str,
    /// `rows`, `columns` or `neither`.
    kept: &'static str,
    keeps_batches: bool,
    /// Where the results are stored, and their type.
    tensors: [Layout; 1],
    stored: &'static str,
    /// The result of all partials.
    finish: String,
}
