//! The kernels that combine the partials of epilogue reductions, in an order that depends only on
//! the number of partials: one kernel for all reductions that keep the same dimensions, which also
//! computes what is made of their results.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;

use crate::engine::KernelWork;
use crate::engine::access::{GRID_MAX, ceil_div, tensor_bytes};
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::gemm::axes::coordinate;
use crate::engine::gemm::context::{Context, Emitted, ProblemParameters};
use crate::engine::gemm::epilogue_reduction::{EpilogueReduction, Kept, Reduced};
use crate::engine::gemm::lane_columns::LaneColumns;
use crate::engine::gemm::layout::{Layout, Matrix};
use crate::engine::gemm::partials::{PARTIALS_BYTES_MAX, Partials};
use crate::engine::gemm::phases::Phases;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::Refusal;
use crate::engine::header::KernelNames;
use crate::engine::program::Source;
use crate::engine::reduce::{finished, op_name};
use crate::engine::signature::{Indent, Width, arguments, ctype, list};
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
    for reductions in context.problem.combined() {
        let split_k = context.tiling.split_k;
        let combine = Combine::of(context.problem, reductions, split_k, epilogue_tile);
        lowering.kernels.push(combine.kernel(context, epilogue_tile, arch));
    }
    lowering
}

/// Sizes of the partials of all reductions.
pub(super) fn combined_bytes(
    problem: &Problem<'_>,
    split_k: i64,
    epilogue_tile: [i64; 2],
) -> Vec<u64> {
    let all = problem.combined();
    let each = |reductions| Combine::of(problem, reductions, split_k, epilogue_tile);
    all.into_iter()
        .flat_map(|reductions| each(reductions).bytes_of_each().collect::<Vec<_>>())
        .collect()
}

/// Checks that the partials fit memory and the combine kernels a grid.
pub(super) fn check_combines(
    problem: &Problem<'_>,
    split_k: i64,
    epilogue_tile: [i64; 2],
) -> Result<(), Refusal> {
    for reductions in problem.combined() {
        let combine = Combine::of(problem, reductions, split_k, epilogue_tile);
        let bytes = combine.bytes();
        if bytes > PARTIALS_BYTES_MAX
            || ceil_div(combine.results, combine.results_per_block()) > GRID_MAX
        {
            return Err(Refusal::ReductionPartials { bytes });
        }
    }
    Ok(())
}

/// The kernel that combines the partials of reductions that keep the same dimensions.
pub(super) struct Combine<'a> {
    problem: &'a Problem<'a>,
    /// Which reductions of the problem's.
    reductions: Range<usize>,
    /// Results of each.
    results: i64,
    /// Partial results of each result.
    partials: i64,
}

impl<'a> Combine<'a> {
    /// The combine kernel of these reductions, one at least; a partial covers `rows` x `columns`
    /// elements of C, or an operand's rows in one of `split_k` splits.
    pub(super) fn of(
        problem: &'a Problem<'_>,
        reductions: Range<usize>,
        split_k: i64,
        [rows, columns]: [i64; 2],
    ) -> Combine<'a> {
        let EpilogueReduction { kept, keeps_batches, reduced, .. } =
            problem.reductions[reductions.start];
        let [partials_m, partials_n] = [ceil_div(problem.m, rows), ceil_div(problem.n, columns)];
        let (lines, partials) = match kept {
            Kept::Rows => (problem.m, partials_n),
            Kept::Columns => (problem.n, partials_m),
            Kept::Neither => (1, partials_m.saturating_mul(partials_n)),
        };
        let partials = if reduced == Reduced::Epilogue { partials } else { split_k };
        let batches = problem.batch_count();
        let (results, partials) = match keeps_batches {
            true => (lines.saturating_mul(batches), partials),
            false => (lines, partials.saturating_mul(batches)),
        };
        Combine { problem, reductions, results, partials }
    }

    fn reductions(&self) -> &'a [EpilogueReduction] {
        &self.problem.reductions[self.reductions.clone()]
    }

    /// What its reductions keep.
    fn first(&self) -> &'a EpilogueReduction {
        &self.problem.reductions[self.reductions.start]
    }

    /// Bytes of the type of each reduction.
    fn sizes(&self) -> impl Iterator<Item = i64> + '_ {
        self.reductions().iter().map(|of| of.op.math.dtype().bytes() as i64)
    }

    /// Bytes of the partials of each reduction.
    fn bytes_of_each(&self) -> impl Iterator<Item = u64> + '_ {
        let count = self.results.saturating_mul(self.partials);
        self.sizes().map(move |size| count.saturating_mul(size) as u64)
    }

    /// Bytes of all partial results of all results.
    pub(super) fn bytes(&self) -> i64 {
        let each = self.bytes_of_each().map(|bytes| bytes as i64);
        each.fold(0, i64::saturating_add)
    }

    /// Results per block, independent of the number of rows.
    fn results_per_block(&self) -> i64 {
        match self.first().kept {
            Kept::Rows => RESULTS_MAX,
            _ => (self.results.max(1) as u64).next_power_of_two().min(RESULTS_MAX as u64) as i64,
        }
    }

    /// The tensors that it reads and stores, but for partials.
    fn passed(&self) -> Vec<usize> {
        let graph = self.problem.graph.graph();
        let mut seen = BTreeSet::new();
        let results = self.reductions().iter().map(|of| of.result);
        let read = self.problem.finish.inputs();
        let all = read.chain(results).chain(self.problem.finish.program.outputs.iter().copied());
        all.filter(|at| !graph.tensors[*at].is_virtual && seen.insert(*at)).collect()
    }

    /// Work for the cost model; the partials are still in L2.
    pub(super) fn work(&self) -> KernelWork {
        let ranks = THREADS / self.results_per_block();
        let size: i64 = self.sizes().sum();
        let operations = self.problem.finish.program.program.instructions().len() as f64;
        let each = (self.partials * self.reductions.len() as i64) as f64;
        let tensors = &self.problem.graph.tensors;
        KernelWork {
            blocks: ceil_div(self.results, self.results_per_block()) as u64,
            threads: THREADS as u32,
            registers: 32,
            shared_bytes: (THREADS * size) as u32,
            dram_bytes: self.passed().iter().map(|at| tensor_bytes(&tensors[*at])).sum(),
            l2_bytes: self.bytes() as f64,
            in_flight_bytes: (THREADS * ROUND * size) as f64,
            round_trips: ceil_div(self.partials, ranks * ROUND).max(1) as f64,
            lane_instructions: self.results as f64 * (each + operations * INSTRUCTIONS_OPERATION),
            f64_instructions: 0.0,
            tensor: None,
        }
    }

    fn kernel(&self, context: &Context<'_>, epilogue_tile: [i64; 2], arch: Arch) -> KernelPlan {
        let Context { problem, tiling, .. } = context;
        let dtype = problem.graph.tensors[self.first().result].dtype;
        let names = KernelNames {
            stem: format!("sm75_gemm_{dtype}_combine"),
            template: "gemm/sm75_gemm_combine.cu",
            entry: "gemm_combine",
        };
        let partials = Partials { accumulators: false, reductions: self.reductions.clone() };
        let passed = self.passed();
        let mut arguments = arguments(problem.graph.graph(), passed.iter());
        arguments.extend(context.scratch(&partials));
        let listing = self.reductions().iter().map(|of| context.reduction_listing(of));
        let text = problem.finish.program.program.to_string();
        let listing = listing.chain(text.lines().map(str::to_owned)).collect();
        let finish = self.finish(context);
        let functions = finish.as_ref().map(|of| of.functions.clone()).unwrap_or_default();
        let phases = problem.phases.as_ref().and_then(Phases::rows_table).into_iter().collect();
        let parameters = Parameters {
            problem: context
                .problem_parameters(&passed, partials, listing, functions)
                .with_phases(phases)
                .reducing(self.reductions()),
            phase_rows: context.phase_rows(),
            threads: THREADS,
            results: self.results_per_block(),
            splits: (self.first().reduced != Reduced::Epilogue).then_some(tiling.split_k),
            partial_rows: epilogue_tile[0],
            partial_columns: epilogue_tile[1],
            kept: self.first().kept.name(),
            keeps_batches: self.first().keeps_batches,
            layouts: Layouts {
                tensors: passed
                    .iter()
                    .filter(|at| !problem.graph.tensors[**at].by_value)
                    .map(|at| context.layout(*at, &matrix(context)))
                    .collect(),
            },
            combined: self.reductions().iter().map(|of| combined(context, of)).collect(),
            finish,
        };
        KernelPlan {
            spec: names.spec(arch, &parameters),
            launch: LaunchPlan {
                grid: Grid::fixed(ceil_div(self.results, self.results_per_block()) as u32),
                threads: THREADS as u32,
                shared_bytes: 0,
                cooperative: false,
                arguments,
                maps: Vec::new(),
                numbers: tiling.numbers(problem),
            },
        }
    }

    /// What is computed of the results, if anything is.
    fn finish(&self, context: &Context<'_>) -> Option<FinishParameters> {
        let Problem { finish, graph, .. } = context.problem;
        if finish.program.outputs.is_empty() {
            return None;
        }
        let tensors = &graph.tensors;
        let Emitted { text, outputs, parameters, mut arguments } =
            context.emit(finish, &|source, register| match source {
                Source::Tensor(at) if self.reductions().iter().any(|of| of.result == *at) => {
                    let (name, dtype) = (&context.names[*at], tensors[*at].dtype);
                    match tensors[*at].is_virtual {
                        true => format!("{name}_all"),
                        false => format!("widen(Narrow<{}>::from({name}_all))", ctype(dtype)),
                    }
                }
                Source::Tensor(at) if tensors[*at].by_value => {
                    format!("{register}(t.{})", context.names[*at])
                }
                Source::Tensor(at) => {
                    let name = &context.names[*at];
                    format!("widen(t.{name}[Result::{name}_layout::at(batch, row, column)])")
                }
                Source::Position(_) => unreachable!("random numbers are refused"),
                Source::Coordinate(axis) => {
                    let at = axis.and_then(|axis| finish.axes.coordinate(axis));
                    format!("{register}({})", coordinate(at, ["row", "column"]))
                }
            });
        arguments.extend(outputs.iter().map(|name| format!("{name}_value")));
        let stored = outputs.into_iter().zip(&finish.program.outputs).zip(&text.outputs);
        let stored = stored.map(|((name, at), output)| FinishedParameters {
            name,
            ctype: output.ctype,
            stored: ctype(tensors[*at].dtype),
        });
        Some(FinishParameters {
            outputs: stored.collect(),
            parameters,
            arguments: list(&arguments, Indent(8), Width(78)),
            lines: text.lines,
            functions: text.functions,
        })
    }
}

/// The results, which step evenly over rows and columns.
fn matrix<'a>(context: &'a Context<'_>) -> Matrix<'a> {
    Matrix { window: None, ..context.epilogue_matrix(LaneColumns::blocked(1)) }
}

fn combined(context: &Context<'_>, of: &EpilogueReduction) -> CombinedParameters {
    let EpilogueReduction { op, result, kept, keeps_batches, .. } = *of;
    let all_rows = context.problem.phases.as_ref().map(Phases::all_rows);
    let rows = (kept != Kept::Rows)
        .then(|| all_rows.map_or_else(|| "rows".to_owned(), |count| count.to_string()));
    let columns = (kept != Kept::Columns).then(|| "N".to_owned());
    let batches = (!keeps_batches && all_rows.is_none()).then(|| "BATCHES".to_owned());
    let reduced: Vec<String> = rows.into_iter().chain(columns).chain(batches).collect();
    let (ctype_of, name) = (ctype(op.math.dtype()), context.names[result].clone());
    let count = format!("{ctype_of}(1ll * {})", reduced.join(" * "));
    let tensor = &context.problem.graph.tensors[result];
    let partial = format!("{name}_shared[0][lane]");
    CombinedParameters {
        op: op_name(op),
        ctype: ctype_of,
        stored: (!tensor.is_virtual).then(|| ctype(tensor.dtype)),
        finish: finished(op.op, &partial, &count).unwrap_or(partial),
        name,
    }
}

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    threads: i64,
    /// Results per block.
    results: i64,
    /// Partials of sums of an operand.
    splits: Option<i64>,
    /// Rows and columns of another partial.
    partial_rows: i64,
    partial_columns: i64,
    /// Where the rows of a phase end, where phases differ.
    phase_rows: Option<String>,
    /// `rows`, `columns` or `neither`.
    kept: &'static str,
    keeps_batches: bool,
    layouts: Layouts,
    combined: Vec<CombinedParameters>,
    finish: Option<FinishParameters>,
}

/// Where results are stored, and what is read beside them.
#[derive(Serialize)]
struct Layouts {
    tensors: Vec<Layout>,
}

/// A reduction whose partials are combined.
#[derive(Serialize)]
struct CombinedParameters {
    name: String,
    op: &'static str,
    ctype: &'static str,
    /// The type that the results are stored in, if they are.
    stored: Option<&'static str>,
    /// The result of all partials.
    finish: String,
}

/// A program of the results of one element.
#[derive(Serialize)]
struct FinishParameters {
    outputs: Vec<FinishedParameters>,
    parameters: String,
    arguments: String,
    lines: Vec<String>,
    #[serde(skip)]
    functions: BTreeSet<&'static str>,
}

/// What it stores.
#[derive(Serialize)]
struct FinishedParameters {
    name: String,
    ctype: &'static str,
    stored: &'static str,
}
