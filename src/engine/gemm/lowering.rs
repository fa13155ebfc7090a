//! The kernels of a problem: the GEMM, the split-K reduction if K is split, and a combine kernel
//! for each epilogue reduction.

use serde_json::{Value as Json, json};

use crate::engine::gemm::join::{check_joins, with_joins};
use crate::engine::gemm::parameters::{Context, functions};
use crate::engine::gemm::partials::PARTIALS_BYTES_MAX;
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::sum::Sum;
use crate::engine::gemm::tiling::{Refusal, epilogue_vector, partial_bytes};
use crate::engine::signature::{arguments, merged};
use crate::error::Result;
use crate::kernel::{KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Arch;

/// What is specific to an engine's kernel.
pub(super) struct Variant {
    /// Minimum architecture, as in `sm80`.
    pub(super) sm: &'static str,
    pub(super) name: &'static str,
    pub(super) template: &'static str,
    pub(super) threads: i64,
    pub(super) shared_bytes: i64,
    /// Rows and columns that a warp passes through the epilogue at once.
    pub(super) finished: [i64; 2],
    pub(super) operands: [Json; 2],
    /// Parameters of its template alone.
    pub(super) parameters: Json,
}

/// The kernels of a problem.
pub(super) fn lowering(context: &Context<'_>, variant: Variant, arch: Arch) -> Lowering {
    let finished = variant.finished;
    followed(multiply(context, variant, arch), context, finished, arch)
}

/// Whether what one kernel leaves behind for others fits memory, and these a grid; `finished` is
/// what a warp of the first finishes at once.
pub(super) fn check_parts(
    problem: &Problem<'_>,
    split_k: i64,
    finished: [i64; 2],
) -> Result<(), Refusal> {
    if split_k == 1 {
        return check_joins(problem, finished);
    }
    let (sum, bytes) = (Sum::of(problem), partial_bytes(problem, split_k));
    match sum.fits_grid() && bytes <= PARTIALS_BYTES_MAX {
        true => check_joins(problem, sum.finished),
        false => Err(Refusal::Parts { bytes }),
    }
}

/// The GEMM kernel and the kernels that read its partials.
pub(super) fn followed(
    multiply: KernelPlan,
    context: &Context<'_>,
    finished: [i64; 2],
    arch: Arch,
) -> Lowering {
    let Context { problem, tiling, .. } = context;
    let mut lowering = Lowering::from(multiply);
    if tiling.split_k == 1 {
        return with_joins(lowering, context, finished, arch);
    }
    let (sum, bytes) = (Sum::of(problem), partial_bytes(problem, tiling.split_k));
    lowering.kernels.push(sum.kernel(context, arch));
    lowering.scratch.push(bytes as u64);
    with_joins(lowering, context, sum.finished, arch)
}

fn multiply(context: &Context<'_>, variant: Variant, arch: Arch) -> KernelPlan {
    let Context { problem, tiling, .. } = context;
    let Variant { sm, name, template, threads, shared_bytes, operands, parameters, .. } = variant;
    let epilogue = context.epilogue(epilogue_vector(problem, context.sum()));
    let stem = format!("{sm}_gemm_{}_{name}", problem.output_name());
    let entry = "gemm";
    let called = match tiling.split_k {
        1 => functions(&[&operands[0], &operands[1], &epilogue]),
        _ => functions(&[&operands[0], &operands[1]]),
    };
    let own = json!({
        "stem": stem,
        "entry": entry,
        "arch": arch.to_string(),
        "listing": context.listing(),
        "functions": called,
        "transposes": operands.iter().any(|operand| operand["transposed"] == true),
        "operands": operands,
        "epilogue": epilogue,
        "adds_parts": false,
        "cta_m": tiling.cta_m,
        "cta_n": tiling.cta_n,
        "cta_k": tiling.cta_k,
        "group": tiling.order.group,
        "by_columns": tiling.order.columns,
    });
    let (passed, left) = (context.passed(), context.left());
    let mut arguments = arguments(problem.graph, passed.iter());
    arguments.extend(context.scratch(&left));
    let parameters = merged(merged(context.shared(&passed, left), own), parameters);
    KernelPlan {
        spec: KernelSpec { stem, template, entry, arch, parameters: parameters.into() },
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
