//! The kernels of a problem: the one that multiplies; where the depth is split the one that adds up
//! the parts, in their order; one for each reduction of what follows, which joins its parts.

use serde_json::{Value as Json, json};

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::join::with_joins;
use crate::engine::gemm::parameters::{Context, functions};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::epilogue_vector;
use crate::engine::signature::{arguments, merged};
use crate::engine::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::error::{Error, Result};
use crate::target::Arch;

/// Threads of a block of the kernel that adds up parts.
const THREADS: i64 = 128;

/// Bytes of partial sums beyond which nothing is split.
pub(super) const PARTIALS_BYTES_MAX: i64 = 1 << 40;

/// What tells the kernel of one engine from that of another.
pub(super) struct Variant {
    /// The oldest architecture, as in `sm80`.
    pub(super) sm: &'static str,
    pub(super) name: &'static str,
    pub(super) template: &'static str,
    pub(super) threads: i64,
    pub(super) shared_bytes: i64,
    /// Rows and columns that a warp finishes at once.
    pub(super) finished: [i64; 2],
    pub(super) operands: [Json; 2],
    /// What only its template knows.
    pub(super) parameters: Json,
}

/// The kernels of a problem.
///
/// # Errors
/// `NotSupported` for partial sums that take too many blocks or bytes.
pub(super) fn lowering(context: &Context<'_>, variant: Variant, arch: Arch) -> Result<Lowering> {
    let Context { problem, tiling, .. } = context;
    let finished = variant.finished;
    let kernel = multiply(context, variant, arch);
    if tiling.split_k == 1 {
        return with_joins(Lowering::from(kernel), context, finished, arch);
    }
    let bytes = tiling.partials(problem).saturating_mul(context.sum().bytes() as i64);
    let chunks = ceil_div(problem.n, epilogue_vector(problem, context.sum()))
        .saturating_mul(problem.m)
        .saturating_mul(problem.batch_count());
    if ceil_div(chunks, THREADS) > GRID_MAX || bytes > PARTIALS_BYTES_MAX {
        return Err(Error::not_supported(format!(
            "the parts of the product take {bytes} bytes; use split_k=1"
        )));
    }
    let reduce = reduce(context, ceil_div(chunks, THREADS), arch);
    Ok(Lowering { kernels: vec![kernel, reduce], scratch: vec![bytes as u64] })
}

fn multiply(context: &Context<'_>, variant: Variant, arch: Arch) -> KernelPlan {
    let Context { problem, tiling, .. } = context;
    let Variant { sm, name, template, threads, shared_bytes, operands, parameters, .. } = variant;
    let epilogue = context.epilogue(epilogue_vector(problem, context.sum()));
    let stem = format!("{sm}_gemm_{}_{name}", output_name(problem));
    let entry = "gemm";
    let own = json!({
        "stem": stem,
        "entry": entry,
        "arch": arch.to_string(),
        "listing": context.listing(),
        "functions": functions(&[&operands[0], &operands[1], &epilogue]),
        "transposes": operands.iter().any(|operand| operand["transposed"] == true),
        "operands": operands,
        "epilogue": epilogue,
        "cta_m": tiling.cta_m,
        "cta_n": tiling.cta_n,
        "cta_k": tiling.cta_k,
        "group": tiling.group,
    });
    let passed = problem.passed();
    let parameters =
        merged(merged(context.shared(&passed, 0..problem.exits.len()), own), parameters);
    let mut arguments = arguments(problem.graph, passed.iter());
    match tiling.split_k {
        1 => arguments.extend((0..problem.exits.len()).map(Argument::Scratch)),
        _ => arguments.push(Argument::Scratch(0)),
    }
    KernelPlan {
        spec: KernelSpec { stem, template, entry, arch, parameters },
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

fn reduce(context: &Context<'_>, blocks: i64, arch: Arch) -> KernelPlan {
    let Context { problem, tiling, .. } = context;
    let passed = problem.passed_to_epilogue();
    let epilogue = context.epilogue(epilogue_vector(problem, context.sum()));
    let entry = "gemm_reduce";
    let stem = format!("sm75_gemm_{}_reduce", output_name(problem));
    let parameters = json!({
        "stem": stem,
        "entry": entry,
        "arch": arch.to_string(),
        "listing": problem.epilogue.program.program.to_string().lines().collect::<Vec<_>>(),
        "functions": functions(&[&epilogue]),
        "epilogue": epilogue,
        "threads": THREADS,
    });
    let parameters = merged(context.shared(&passed, 0..0), parameters);
    let template = "gemm/sm75_gemm_reduce.cu";
    let mut arguments = arguments(problem.graph, passed.iter());
    arguments.push(Argument::Scratch(0));
    KernelPlan {
        spec: KernelSpec { stem, template, entry, arch, parameters },
        launch: LaunchPlan {
            grid: Grid::Fixed(if problem.is_empty() { 0 } else { blocks as u32 }),
            threads: THREADS as u32,
            shared_bytes: 0,
            cooperative: false,
            arguments,
            maps: Vec::new(),
            numbers: tiling.numbers(problem),
        },
    }
}

/// The type of the first output, in names of kernels.
pub(super) fn output_name(problem: &Problem<'_>) -> &'static str {
    let output = problem.outputs().chain(problem.exits.iter().map(|exit| exit.result)).next();
    let output = output.expect("a graph stores something");
    problem.graph.tensors[output].dtype.name()
}
