//! The kernel of a schedule: template parameters and launch.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::gemm::axes::View;
use crate::engine::gemm::context::{
    AccumulatorParameters, Context, OperandSums, ProblemParameters,
};
use crate::engine::gemm::epilogue::EpilogueParameters;
use crate::engine::gemm::lane_columns::LaneColumns;
use crate::engine::gemm::lowering::with_reductions;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::wgmma::operands::WgmmaOperands;
use crate::engine::gemm::wgmma::schedule::{SLICE_ROWS, Schedule};
use crate::engine::gemm::wgmma::tma::TmaOperand;
use crate::engine::header::KernelNames;
use crate::engine::instruction::WgmmaParameters;
use crate::engine::signature::{Indent, Width, arguments, ctype, list};
use crate::engine::tma::TmaTensor;
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering, TensorMap};
use crate::target::Arch;

/// Maximum number of outputs stored by TMA: each warp has two boxes of shared memory.
const TMA_OUTPUTS_MAX: usize = 2;

/// Columns of an output's TMA box.
const BOX_COLUMNS: i64 = 64;

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    accumulators: AccumulatorParameters,
    adds_partials: bool,
    epilogue: EpilogueParameters,
    operands: [OperandParameters; 2],
    /// Ranks of tensors that TMA loads, in boxes and in pixels, and stores.
    loaded_ranks: BTreeSet<usize>,
    pixel_ranks: BTreeSet<usize>,
    stored_ranks: BTreeSet<usize>,
    /// The GEMM's, and that of sums of an operand.
    products: Vec<WgmmaParameters>,
    cta_m: i64,
    cta_n: i64,
    cta_k: i64,
    stages: i64,
    cluster: i64,
    group: i64,
    by_columns: bool,
    /// Consumer warpgroups.
    consumers: i64,
    /// Ping-pong, else cooperative.
    ping_pong: bool,
    /// Columns that a warp stages at once.
    warp_n: i64,
    shared_bytes: i64,
    operand_sums: Option<OperandSums>,
    /// A word of ones.
    ones: &'static str,
}

/// An operand that TMA loads (`gemm/sm90_operand.cuh`).
#[derive(Serialize)]
struct OperandParameters {
    title: String,
    /// `A` or `B`.
    #[serde(rename = "type")]
    name: &'static str,
    element: &'static str,
    cta_rows: &'static str,
    k_major: bool,
    /// CTAs that load a share each and multicast it.
    shares: i64,
    /// Whether the tiles of two Bs are one behind the other.
    dual: bool,
    constants: Vec<Constant>,
    is_im2col: bool,
    /// Whether `arguments` name the row of an atom.
    is_placed: bool,
    /// The row where the last atom starts, if rows beyond it would be those of no tap.
    last_row: Option<i64>,
    /// Where a copy starts.
    arguments: String,
}

/// A constant of an operand.
#[derive(Serialize)]
struct Constant {
    name: String,
    value: i64,
}

/// The kernels of a schedule.
pub(super) fn lowering(
    problem: &Problem<'_>,
    operands: &WgmmaOperands,
    schedule: &Schedule,
    arch: Arch,
) -> Lowering {
    let context = Context::new(problem, schedule.tiling);
    let outputs = tma_outputs(problem, schedule);
    let mut passed = match schedule.tiling.split_k {
        1 => problem.passed_to_epilogue(),
        _ => Vec::new(),
    };
    passed.retain(|at| !outputs.iter().flatten().any(|output| output.at == *at));
    let maps = maps(operands, schedule, outputs.as_deref());
    let tensors = arguments(problem.graph.graph(), passed.iter());
    let mapped = (0..maps.len()).map(Argument::Map);
    let arguments = mapped.chain(tensors).chain(context.scratch(&context.gemm_workspace()));
    let launch = LaunchPlan {
        grid: Grid::Resident {
            blocks_max: schedule.tiling.launched(problem, schedule.cluster),
            multiple_of: schedule.cluster as u32,
        },
        threads: schedule.threads() as u32,
        shared_bytes: schedule.shared_bytes as u32,
        cooperative: false,
        arguments: arguments.collect(),
        maps,
        numbers: schedule.tiling.numbers(problem),
    };
    let names = KernelNames {
        stem: format!("sm90_gemm_{}_wgmma", problem.output_name()),
        template: "gemm/sm90_gemm_wgmma.cu",
        entry: "gemm",
    };
    let parameters = parameters(&context, operands, schedule, &passed, outputs.as_deref());
    let gemm = KernelPlan { spec: names.spec(arch, &parameters), launch };
    let epilogue_tile = [SLICE_ROWS, schedule.tile.warp_n(problem)];
    with_reductions(gemm, &context, epilogue_tile, arch)
}

fn parameters(
    context: &Context<'_>,
    operands: &WgmmaOperands,
    schedule: &Schedule,
    passed: &[usize],
    outputs: Option<&[TmaOperand]>,
) -> Parameters {
    let (problem, tile) = (context.problem, schedule.tile);
    let epilogue = epilogue(context, outputs, tile.warp_n(problem));
    let functions = match schedule.tiling.split_k {
        1 => epilogue.functions.clone(),
        _ => BTreeSet::new(),
    };
    let (listing, written) = (context.listing(), context.gemm_workspace());
    let [cta_m, cta_n] = tile.cta;
    let stored = outputs.into_iter().flatten();
    let product = operands.instruction(cta_n * problem.gemm_count()).parameters();
    let sums = problem.summed().map(|of| operands.summing(of).parameters().named("wgmma_sum"));
    Parameters {
        problem: context.problem_parameters(passed, written, listing, functions),
        accumulators: context.accumulator_parameters(),
        adds_partials: false,
        epilogue,
        operands: operand_parameters(context, operands, schedule.cluster),
        loaded_ranks: ranks(operands, false),
        pixel_ranks: ranks(operands, true),
        stored_ranks: stored.map(|of| of.tensor.rank()).collect(),
        products: std::iter::once(product).chain(sums).collect(),
        cta_m,
        cta_n,
        cta_k: schedule.tiling.cta_k,
        stages: schedule.stages,
        cluster: schedule.cluster,
        group: schedule.tiling.rasterization.group,
        by_columns: schedule.tiling.rasterization.columns,
        consumers: tile.consumers(),
        ping_pong: tile.ping_pong,
        warp_n: tile.warp_n(problem),
        shared_bytes: schedule.shared_bytes,
        operand_sums: context.operand_sums(),
        ones: operands.ones(),
    }
}

/// Ranks of the operands that are copied in im2col mode, or in boxes.
fn ranks(operands: &WgmmaOperands, im2col: bool) -> BTreeSet<usize> {
    let all = [&operands.a, &operands.b].into_iter().map(|of| &of.tensor);
    all.filter(|tensor| tensor.is_im2col() == im2col).map(TmaTensor::rank).collect()
}

/// The tensor maps: A, B, the other B, outputs.
fn maps(
    operands: &WgmmaOperands,
    schedule: &Schedule,
    outputs: Option<&[TmaOperand]>,
) -> Vec<TensorMap> {
    let [cta_m, cta_n] = schedule.tile.cta;
    // Each block of a cluster multicasts its share of B: of the rows, or of K for N-major B.
    let lines = |rows: i64, k_major: bool| if k_major { rows } else { operands.cta_k() };
    let [k_major_a, k_major_b] = operands.k_major;
    let map_a = operands.a.tensor.map(lines(cta_m, k_major_a));
    let lines_b = lines(cta_n, k_major_b) / schedule.cluster;
    let map_b = operands.b.tensor.map(lines_b);
    let map_other = operands.other.as_ref().map(|other| other.tensor.map(lines_b));
    let stored = outputs.into_iter().flatten().map(|output| output.tensor.map(SLICE_ROWS));
    [map_a, map_b].into_iter().chain(map_other).chain(stored).collect()
}

/// The outputs, if TMA can store all of them: the epilogue then runs on the pairs of columns of the
/// accumulator layout and stages 16-bit elements in swizzled boxes. Only profitable if no epilogue
/// operand must be loaded pair by pair.
fn tma_outputs(problem: &Problem<'_>, schedule: &Schedule) -> Option<Vec<TmaOperand>> {
    let view = |at: usize| -> View { problem.epilogue.axes.view(&problem.graph.tensors[at]) };
    let is_matrix = |at: usize| {
        let View { row, column, .. } = view(at);
        !problem.is_gemm(at) && !problem.graph.tensors[at].by_value && row != 0 && column != 0
    };
    let fits = |at: usize| problem.graph.tensors[at].dtype.bytes() == 2 && view(at).column == 1;
    let refused = schedule.tiling.split_k > 1
        || problem.result.is_some()
        || schedule.tile.cta[1] % BOX_COLUMNS != 0
        || !problem.epilogue_reductions().is_empty()
        || problem.outputs().count() > TMA_OUTPUTS_MAX
        || !problem.outputs().all(fits)
        || problem.epilogue.inputs().any(is_matrix);
    if refused {
        return None;
    }
    problem.outputs().map(|at| TmaOperand::output(problem, at).ok()).collect()
}

/// Template parameters of the epilogue.
fn epilogue(
    context: &Context<'_>,
    outputs: Option<&[TmaOperand]>,
    warp_n: i64,
) -> EpilogueParameters {
    match outputs {
        None => {
            let accumulator = context.accumulator();
            context.epilogue(LaneColumns::staged(context.problem, accumulator, warp_n))
        }
        Some(outputs) => {
            let batches = outputs.iter().map(TmaOperand::batch_arguments);
            context.epilogue(LaneColumns::blocked(2)).stored_by_tma(batches)
        }
    }
}

/// Template parameters of both operands.
fn operand_parameters(
    context: &Context<'_>,
    operands: &WgmmaOperands,
    cluster: i64,
) -> [OperandParameters; 2] {
    let problem = context.problem;
    let operand = |name, cta_rows, of: &TmaOperand, k_major: bool, shares: i64| OperandParameters {
        title: format!("{name}: {}, loaded with TMA.", context.text(of.at)),
        name,
        element: ctype(problem.graph.tensors[of.at].dtype),
        cta_rows,
        k_major,
        shares,
        dual: name == "B" && operands.other.is_some(),
        constants: constants(of),
        is_im2col: of.tensor.is_im2col(),
        is_placed: of.tiles.is_some(),
        last_row: of.tiles.as_ref().and_then(|tiles| tiles.last_row),
        arguments: list(&of.arguments(k_major), Indent(if k_major { 12 } else { 16 }), Width(56)),
    };
    let [k_major_a, k_major_b] = operands.k_major;
    [
        operand("A", "CTA_M", &operands.a, k_major_a, 1),
        operand("B", "CTA_N", &operands.b, k_major_b, cluster),
    ]
}

fn constants(of: &TmaOperand) -> Vec<Constant> {
    let constant = |(name, value): &(String, i64)| Constant { name: name.clone(), value: *value };
    of.tiles.iter().flat_map(|tiles| &tiles.constants).map(constant).collect()
}
