//! The kernels of a problem: the GEMM, the split-K reduction if K is split, and a combine kernel
//! for each epilogue reduction.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::gemm::combine::{check_combines, combined_bytes, with_combines};
use crate::engine::gemm::context::{
    AccumulatorParameters, Context, OperandSums, ProblemParameters,
};
use crate::engine::gemm::epilogue::EpilogueParameters;
use crate::engine::gemm::lane_columns::LaneColumns;
use crate::engine::gemm::operand::OperandParameters;
use crate::engine::gemm::partials::PARTIALS_BYTES_MAX;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::split_k::SplitKReduction;
use crate::engine::gemm::tiling::{Refusal, partial_bytes};
use crate::engine::header::KernelNames;
use crate::engine::signature::arguments;
use crate::error::Result;
use crate::kernel::{KernelPlan, LaunchPlan, Lowering};
use crate::target::Arch;

/// What is specific to an engine's kernel.
pub(super) struct Variant<P> {
    /// Minimum architecture, as in `sm80`.
    pub(super) sm: &'static str,
    pub(super) name: &'static str,
    pub(super) template: &'static str,
    pub(super) threads: i64,
    pub(super) shared_bytes: i64,
    /// Rows and columns that a warp passes through the epilogue at once.
    pub(super) epilogue_tile: [i64; 2],
    pub(super) operands: [OperandParameters; 2],
    /// Parameters of its template alone.
    pub(super) own: P,
}

/// What the templates of blocks that compute one tile each read (`gemm/tiles.cuh`).
#[derive(Serialize)]
struct Parameters<P> {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    accumulators: AccumulatorParameters,
    adds_partials: bool,
    epilogue: EpilogueParameters,
    operands: [OperandParameters; 2],
    /// Whether an operand's bytes are transposed, elements are found one by one, and lanes go
    /// along rows to find them.
    transposes: bool,
    finds: bool,
    strips: bool,
    /// What ends the K of a batch, if it has one of its own.
    k_limit: Option<String>,
    /// Where the rows of a phase end, where phases differ.
    phase_rows: Option<String>,
    cta_m: i64,
    cta_n: i64,
    cta_k: i64,
    group: i64,
    by_columns: bool,
    slice_rows: i64,
    operand_sums: Option<OperandSums>,
    #[serde(flatten)]
    own: P,
}

/// The kernels of a problem.
pub(super) fn lowering<P: Serialize>(
    context: &Context<'_>,
    variant: Variant<P>,
    arch: Arch,
) -> Lowering {
    let epilogue_tile = variant.epilogue_tile;
    with_reductions(gemm_kernel(context, variant, arch), context, epilogue_tile, arch)
}

/// Checks that the partials fit memory and the kernels that read them a grid; `epilogue_tile` is
/// that of the GEMM kernel.
pub(super) fn check_workspace(
    problem: &Problem<'_>,
    split_k: i64,
    epilogue_tile: [i64; 2],
) -> Result<(), Refusal> {
    if split_k == 1 {
        return check_combines(problem, split_k, epilogue_tile);
    }
    let (reduction, bytes) = (SplitKReduction::of(problem), partial_bytes(problem, split_k));
    match reduction.fits_grid() && bytes <= PARTIALS_BYTES_MAX {
        true => check_combines(problem, split_k, reduction.epilogue_tile),
        false => Err(Refusal::Partials { bytes }),
    }
}

/// The GEMM kernel and the kernels that read its partials.
pub(super) fn with_reductions(
    gemm: KernelPlan,
    context: &Context<'_>,
    epilogue_tile: [i64; 2],
    arch: Arch,
) -> Lowering {
    let Context { problem, tiling, .. } = context;
    let scratch = scratch(problem, tiling.split_k, epilogue_tile);
    let mut lowering = Lowering { kernels: vec![gemm], scratch };
    if tiling.split_k == 1 {
        return with_combines(lowering, context, epilogue_tile, arch);
    }
    let reduction = SplitKReduction::of(problem);
    lowering.kernels.push(reduction.kernel(context, arch));
    with_combines(lowering, context, reduction.epilogue_tile, arch)
}

/// Sizes of the partials: of split K, and of reductions; `epilogue_tile` is that of the GEMM
/// kernel.
pub(super) fn scratch(problem: &Problem<'_>, split_k: i64, epilogue_tile: [i64; 2]) -> Vec<u64> {
    let reduction = (split_k > 1).then(|| SplitKReduction::of(problem));
    let tile = reduction.map_or(epilogue_tile, |reduction| reduction.epilogue_tile);
    let partials = (split_k > 1).then(|| partial_bytes(problem, split_k) as u64);
    partials.into_iter().chain(combined_bytes(problem, split_k, tile)).collect()
}

fn gemm_kernel<P: Serialize>(context: &Context<'_>, variant: Variant<P>, arch: Arch) -> KernelPlan {
    let Context { problem, tiling, .. } = context;
    let Variant { sm, name, template, threads, shared_bytes, operands, own, .. } = variant;
    let [slice_rows, warp_n] = variant.epilogue_tile;
    let epilogue = context.epilogue(LaneColumns::staged(problem, context.accumulator(), warp_n));
    let stem = format!("{sm}_gemm_{}_{name}", problem.output_name());
    let mut functions: BTreeSet<&'static str> =
        operands.iter().flat_map(OperandParameters::functions).collect();
    if tiling.split_k == 1 {
        functions.extend(&epilogue.functions);
    }
    let (passed, written) = (context.passed(), context.gemm_workspace());
    let mut arguments = arguments(problem.graph.graph(), passed.iter());
    arguments.extend(context.scratch(&written));
    let parameters = Parameters {
        problem: context.problem_parameters(&passed, written, context.listing(), functions),
        accumulators: context.accumulator_parameters(),
        adds_partials: false,
        epilogue,
        transposes: operands.iter().any(|operand| operand.transposed),
        finds: operands.iter().any(|operand| operand.scattered),
        strips: operands.iter().any(|operand| operand.strips),
        operands,
        k_limit: context.k_limit(),
        phase_rows: context.phase_rows(),
        cta_m: tiling.cta_m,
        cta_n: tiling.cta_n,
        cta_k: tiling.cta_k,
        group: tiling.rasterization.group,
        by_columns: tiling.rasterization.columns,
        slice_rows,
        operand_sums: context.operand_sums(),
        own,
    };
    KernelPlan {
        spec: KernelNames { stem, template, entry: "gemm" }.spec(arch, &parameters),
        launch: LaunchPlan {
            grid: tiling.grid(problem),
            threads: threads as u32,
            shared_bytes: shared_bytes as u32,
            cooperative: false,
            arguments,
            maps: Vec::new(),
            numbers: tiling.numbers(problem),
        },
    }
}
