//! The kernel of a schedule: template parameters and launch.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::engine::gemm::axes::View;
use crate::engine::gemm::lowering::followed;
use crate::engine::gemm::parameters::{Context, functions, with};
use crate::engine::gemm::problem::Problem;
use crate::engine::gemm::tiling::epilogue_vector;
use crate::engine::gemm::wgmma::bulk::BulkOperand;
use crate::engine::gemm::wgmma::product::Product;
use crate::engine::gemm::wgmma::schedule::{SLICE_ROWS, Schedule};
use crate::engine::signature::{arguments, ctype, merged};
use crate::kernel::{Argument, Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Arch;

/// Maximum number of outputs stored by TMA: each warp has two boxes of shared memory.
const BULK_OUTPUTS_MAX: usize = 2;

/// Columns of an output's TMA box.
const BOX_COLUMNS: i64 = 64;

/// The kernels of a schedule.
pub(super) fn lowering(
    problem: &Problem<'_>,
    product: &Product,
    schedule: &Schedule,
    arch: Arch,
) -> Lowering {
    let context = Context::new(problem, schedule.tiling);
    let outputs = bulk_outputs(problem, schedule);
    let epilogue = epilogue(&context, outputs.as_deref());
    let stem = format!("sm90_gemm_{}_wgmma", problem.output_name());
    let entry = "gemm";
    let Schedule { tile, cluster, .. } = *schedule;
    let [cta_m, cta_n] = tile.cta;
    let stored = outputs.iter().flatten();
    let called = if schedule.tiling.split_k == 1 { functions(&[&epilogue]) } else { json!([]) };
    let own = json!({
        "stem": stem,
        "entry": entry,
        "arch": arch.to_string(),
        "listing": context.listing(),
        "functions": called,
        "epilogue": epilogue,
        "adds_parts": false,
        "operands": operands(&context, product, cluster),
        "loaded_ranks": BTreeSet::from([&product.a, &product.b].map(|of| of.tensor.rank())),
        "stored_ranks": stored.clone().map(|of| of.tensor.rank()).collect::<BTreeSet<_>>(),
        "products": [product.instruction(cta_n * problem.products()).parameters()],
        "cta_m": cta_m,
        "cta_n": cta_n,
        "cta_k": schedule.tiling.cta_k,
        "stages": schedule.stages,
        "cluster": cluster,
        "group": schedule.tiling.order.group,
        "by_columns": schedule.tiling.order.columns,
        "consumers": tile.consumers(),
        "turns": tile.turns,
        "warp_n": tile.warp_n(problem),
        "shared_bytes": schedule.shared_bytes,
    });
    let mut passed = match schedule.tiling.split_k {
        1 => problem.passed_to_epilogue(),
        _ => Vec::new(),
    };
    passed.retain(|at| !stored.clone().any(|output| output.at == *at));
    // Each block of a cluster multicasts its part of B: of the rows, or of K for N-major B.
    let lines = |rows: i64, depth_packed: bool| if depth_packed { rows } else { product.cta_k() };
    let [packed_a, packed_b] = product.depth_packed;
    let map_a = product.a.tensor.map(lines(cta_m, packed_a));
    let lines_b = lines(cta_n, packed_b) / cluster;
    let map_b = product.b.tensor.map(lines_b);
    let map_other = product.other.as_ref().map(|other| other.tensor.map(lines_b));
    let stored = stored.map(|output| output.tensor.map(SLICE_ROWS));
    let maps: Vec<_> = [map_a, map_b].into_iter().chain(map_other).chain(stored).collect();
    let mapped = (0..maps.len()).map(Argument::Map);
    let tensors = arguments(problem.graph, passed.iter());
    let left = context.left();
    let arguments = mapped.chain(tensors).chain(context.scratch(&left)).collect();
    let parameters = merged(context.shared(&passed, left), own);
    let launch = LaunchPlan {
        grid: Grid::Resident {
            blocks_max: schedule.blocks(problem) as u32,
            multiple_of: cluster as u32,
        },
        threads: schedule.threads() as u32,
        shared_bytes: schedule.shared_bytes as u32,
        cooperative: false,
        arguments,
        maps,
        numbers: schedule.tiling.numbers(problem),
    };
    let template = "gemm/sm90_gemm_wgmma.cu";
    let spec = KernelSpec { stem, template, entry, arch, parameters: parameters.into() };
    let finished = [SLICE_ROWS, tile.warp_n(problem)];
    followed(KernelPlan { spec, launch }, &context, finished, arch)
}

/// The outputs, if TMA can store all of them: the epilogue then runs on the pairs of columns of the
/// accumulator layout and stages 16-bit elements in swizzled boxes. Only profitable if no epilogue
/// operand must be loaded pair by pair.
fn bulk_outputs(problem: &Problem<'_>, schedule: &Schedule) -> Option<Vec<BulkOperand>> {
    let view = |at: usize| -> View { problem.epilogue.axes.view(&problem.graph.tensors[at]) };
    let is_matrix = |at: usize| {
        let View { row, column, .. } = view(at);
        !problem.is_product(at) && !problem.graph.tensors[at].by_value && row != 0 && column != 0
    };
    let fits = |at: usize| problem.graph.tensors[at].dtype.bytes() == 2 && view(at).column == 1;
    let refused = schedule.tiling.split_k > 1
        || schedule.tile.cta[1] % BOX_COLUMNS != 0
        || !problem.exits.is_empty()
        || problem.outputs().count() > BULK_OUTPUTS_MAX
        || !problem.outputs().all(fits)
        || problem.epilogue.inputs().any(is_matrix);
    if refused {
        return None;
    }
    problem.outputs().map(|at| BulkOperand::output(problem, at).ok()).collect()
}

/// Template parameters of the epilogue.
fn epilogue(context: &Context<'_>, bulk_outputs: Option<&[BulkOperand]>) -> Json {
    let Some(outputs) = bulk_outputs else {
        return context.epilogue(epilogue_vector(context.problem, context.sum()));
    };
    let mut epilogue = context.epilogue(2);
    for (at, output) in outputs.iter().enumerate() {
        epilogue["outputs"][at]["batch"] = json!(output.batch_arguments());
    }
    epilogue["stores"] = json!(false);
    let loaded = epilogue["loaded"].clone();
    with(epilogue, "tensors", loaded)
}

/// Template parameters of both operands.
fn operands(context: &Context<'_>, product: &Product, cluster: i64) -> [Json; 2] {
    let problem = context.problem;
    let operand = |name: &str, rows: &str, bulk: &BulkOperand, depth_packed: bool, parts: i64| {
        let tensor = &problem.graph.tensors[bulk.at];
        let text = context.text(bulk.at);
        json!({
            "title": format!(
                "{name}: {text}, loaded with TMA."
            ),
            "type": name,
            "element": ctype(tensor.dtype),
            "cta_rows": rows,
            "depth_packed": depth_packed,
            "parts": parts,
            "twinned": name == "B" && product.other.is_some(),
            "batch": bulk.batch_arguments(),
        })
    };
    let [packed_a, packed_b] = product.depth_packed;
    [
        operand("A", "CTA_M", &product.a, packed_a, 1),
        operand("B", "CTA_N", &product.b, packed_b, cluster),
    ]
}
