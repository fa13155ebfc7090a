//! The kernel that adds up the parts of a product whose depth was split, in their order.

use serde_json::json;

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::gemm::parameters::{Context, functions, merged};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::{Tiling, epilogue_vector};
use crate::engine::signature::arguments;
use crate::engine::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::error::{Error, Result};
use crate::target::Arch;

const THREADS: i64 = 128;

/// The lowering of a kernel that leaves parts of the depth, or of one that leaves none.
///
/// # Errors
/// `NotSupported` for more blocks than a grid has.
pub(super) fn lowering(
    context: &Context<'_>,
    tiling: &Tiling,
    kernel: KernelPlan,
    arch: Arch,
) -> Result<Lowering> {
    let problem = context.problem;
    if tiling.split_k == 1 {
        return Ok(Lowering::from(kernel));
    }
    let bytes = tiling.partials(problem).saturating_mul(context.sum().bytes() as i64);
    let chunks = ceil_div(problem.n, epilogue_vector(problem, context.sum()))
        .saturating_mul(problem.m)
        .saturating_mul(problem.batch_count());
    if ceil_div(chunks, THREADS) > GRID_MAX || bytes > 1 << 40 {
        return Err(Error::not_supported(format!(
            "the parts of the product take {bytes} bytes; use split_k=1"
        )));
    }
    let reduce = reduce(context, tiling, ceil_div(chunks, THREADS), arch);
    Ok(Lowering { kernels: vec![kernel, reduce], scratch: vec![bytes as u64] })
}

fn reduce(context: &Context<'_>, tiling: &Tiling, blocks: i64, arch: Arch) -> KernelPlan {
    let problem = context.problem;
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
    let parameters = merged(context.shared(&passed, tiling), parameters);
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
            numbers: Vec::new(),
        },
    }
}

/// The type of the first output, in names of kernels.
pub(super) fn output_name(problem: &Problem<'_>) -> &'static str {
    let output = problem.outputs().next().expect("a graph stores something");
    problem.graph.tensors[output].dtype.name()
}
