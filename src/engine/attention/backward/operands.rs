//! The kernels of the results besides dQ, dK and dV: gradients of what a score is modified with, a
//! tile of scores on FP32 cores at a time, and of sinks.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::KernelWork;
use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::attention::backward::kernels::{
    DELTA, Launch, RESULTS, THREADS, Tile, TileParameters, delta_work, kernel, names, simt_work,
};
use crate::engine::attention::backward::parameters::{
    GradientParameters, gradient_parameters, type_of, with_workspace,
};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::{ProblemParameters, element, listing};
use crate::engine::attention::score::Source;
use crate::graph::AttentionShape;
use crate::kernel::KernelPlan;
use crate::target::Target;

/// The tile of scores of these kernels, where dQ, dK and dV have none on FP32 cores.
pub(super) const OPERAND_TILE: Tile = Tile { cta_q: 32, cta_k: 32 };

/// Blocks for an SM below which several share a tile of a result: as many as are resident.
const BLOCKS_SM: i64 = 4;

/// Maximum number of blocks that share a tile: a thread adds up their partials.
const SPLIT_MAX: i64 = 128;

/// Threads of the kernel of the gradient of sinks, whose blocks are only as many as heads.
const SINK_THREADS: i64 = 1024;

/// Dimensions that a result has, and is not summed over.
#[derive(Debug, Clone, Copy, Serialize)]
struct Kept {
    batch: bool,
    head: bool,
    query: bool,
    key: bool,
}

impl Kept {
    /// Extents of the dimensions in a kernel, with a coordinate's name, and whether they are kept.
    fn dims(self) -> [(&'static str, &'static str, bool); 4] {
        [
            ("t.batch_size", "batch", self.batch),
            ("HEADS", "head", self.head),
            ("SEQLEN_Q", "query", self.query),
            ("SEQLEN_K", "key", self.key),
        ]
    }

    /// The number of tiles of queries that are summed over.
    fn units(self) -> String {
        let factors =
            [("int(t.batch_size)", self.batch), ("HEADS", self.head), ("QUERY_TILES", self.query)];
        let summed: Vec<_> = factors.iter().filter(|(_, kept)| !kept).map(|(of, _)| *of).collect();
        summed.join(" * ")
    }

    /// The number of elements.
    fn elements(self) -> String {
        let of = self.dims().into_iter().filter(|(_, _, kept)| *kept).map(|(extent, ..)| extent);
        let all: Vec<_> = of.collect();
        if all.is_empty() { "1".to_owned() } else { all.join(" * ") }
    }

    /// The position of an element.
    fn element(self) -> String {
        let kept = self.dims().into_iter().filter(|(_, _, kept)| *kept);
        let add = |before: Option<String>, (extent, name, _): (&str, &str, bool)| {
            Some(match before {
                None => format!("i64({name})"),
                Some(before) if before.contains(' ') => format!("({before}) * {extent} + {name}"),
                Some(before) => format!("{before} * {extent} + {name}"),
            })
        };
        kept.fold(None, add).unwrap_or_else(|| "0".to_owned())
    }
}

#[derive(Serialize)]
struct OperandParameters {
    #[serde(flatten)]
    gradient: GradientParameters,
    #[serde(flatten)]
    tile: TileParameters,
    #[serde(flatten)]
    result: ResultParameters,
    /// The number of tiles of queries that it is broadcast along, in C++.
    units: String,
    /// The position of an element among all of the result, in C++.
    element: String,
}

/// A result, whose tiles `split` blocks share.
#[derive(Serialize)]
struct ResultParameters {
    result: &'static str,
    result_type: &'static str,
    kept: Kept,
    split: i64,
}

#[derive(Serialize)]
struct CombineParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    result: ResultParameters,
    listing: Vec<String>,
    /// The number of elements, in C++.
    elements: String,
    threads: i64,
}

#[derive(Serialize)]
struct SinkParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    listing: Vec<String>,
    sink: String,
    threads: i64,
    result_type: &'static str,
}

/// The kernels of the results besides dQ, dK and dV.
pub(super) fn optional(
    problem: &BackwardProblem<'_>,
    target: &Target,
    tile: Tile,
) -> Vec<KernelPlan> {
    let of = |(result, operand): (&'static str, &'static str)| match operand {
        "sinks" => vec![sinks(problem, target)],
        _ => of_operand(problem, target, tile, result, operand),
    };
    problem.op.optional().flat_map(of).collect()
}

/// Bytes of the partials of those kernels, which take turns with them.
pub(super) fn partial_bytes(problem: &BackwardProblem<'_>, target: &Target, tile: Tile) -> i64 {
    let of = |(result, operand): (&'static str, &'static str)| match operand {
        "sinks" => 0,
        _ => match split_of(problem, target, tile, result) {
            1 => 0,
            split => elements(problem, result) * split * problem.accumulator_bytes(),
        },
    };
    problem.op.optional().map(of).max().unwrap_or(0)
}

/// Elements of a result.
fn elements(problem: &BackwardProblem<'_>, result: &str) -> i64 {
    problem.forward.tensor(result).dims.iter().product()
}

/// Blocks that share a tile of a result: each adds up a part of the tiles of queries that it is
/// broadcast along, where its tiles alone would leave SMs idle.
fn split_of(problem: &BackwardProblem<'_>, target: &Target, tile: Tile, result: &str) -> i64 {
    let AttentionShape { batches, heads, queries, .. } = problem.forward.shape;
    let of_axis = [batches, heads, ceil_div(queries, tile.cta_q)];
    let dims = &problem.forward.tensor(result).dims;
    let summed = of_axis.iter().zip(dims).filter(|(_, dim)| **dim == 1).map(|(units, _)| *units);
    let units = summed.fold(1, i64::saturating_mul);
    let wanted = BLOCKS_SM * i64::from(target.sm_count);
    let split = (wanted / operand_blocks(problem, tile, result).max(1)).min(units).min(SPLIT_MAX);
    // Few different ones, each of which is a kernel.
    if split > 1 { 1 << split.ilog2() } else { 1 }
}

/// Blocks of the kernel of a result, a tile of it each.
fn operand_blocks(problem: &BackwardProblem<'_>, tile: Tile, result: &str) -> i64 {
    let dims = &problem.forward.tensor(result).dims;
    let tiles = [dims[0], dims[1], ceil_div(dims[2], tile.cta_q), ceil_div(dims[3], tile.cta_k)];
    tiles.into_iter().fold(1, i64::saturating_mul)
}

/// # Errors
/// Why the results besides dQ, dK and dV have no kernels with this tile.
pub(super) fn check_optional(problem: &BackwardProblem<'_>, tile: Tile) -> Result<(), String> {
    for result in problem.optional_results() {
        let blocks = operand_blocks(problem, tile, result);
        if blocks > GRID_MAX {
            return Err(format!("needs {blocks} blocks for {result}, more than a grid has"));
        }
    }
    Ok(())
}

/// The tensors that a kernel of scores is passed: all operands that it reads, and its results.
pub(super) fn passed(
    problem: &BackwardProblem<'_>,
    results: &[&'static str],
) -> Vec<(&'static str, usize)> {
    let mut without = RESULTS.to_vec();
    without.extend(problem.optional_results());
    without.push("sinks");
    without.retain(|slot| !results.contains(slot));
    problem.passed(&without)
}

/// The kernel of a gradient of something that scores are modified with, and that of its partials.
fn of_operand(
    problem: &BackwardProblem<'_>,
    target: &Target,
    tile: Tile,
    result: &'static str,
    operand: &'static str,
) -> Vec<KernelPlan> {
    let all_passed = passed(problem, &[result]);
    let split = split_of(problem, target, tile, result);
    // The partials are combined into the result.
    let own = |(slot, _): &(&'static str, usize)| split == 1 || *slot != result;
    let passed: Vec<_> = all_passed.iter().copied().filter(own).collect();
    let dims = &problem.forward.tensor(result).dims;
    let [batch, head, query, key] = [0, 1, 2, 3].map(|axis| dims[axis] != 1);
    let names_of = [(batch, "b"), (head, "h"), (query, "i"), (key, "j")];
    let listed = |kept: bool| {
        let of = names_of.iter().filter(|(own, _)| *own == kept).map(|(_, name)| *name);
        of.collect::<Vec<_>>().join(", ")
    };
    let (own, summed) = (listed(true), listed(false));
    let sum = if summed.is_empty() { String::new() } else { format!("sum over {summed} of ") };
    let line = format!("{result}[{own}] = {sum}ds[b, h, i, j] led back to {operand}");
    let kept = Kept { batch, head, query, key };
    let of_result =
        || ResultParameters { result, result_type: type_of(problem, result), kept, split };
    let workspace = if split > 1 { &[Workspace::Delta, Workspace::Partials][..] } else { DELTA };
    let of = Source::Tensor(operand);
    let listed_line = line.clone();
    let parameters = OperandParameters {
        gradient: gradient_parameters(problem, &passed, of, line, workspace),
        tile: tile.parameters(problem, false),
        result: of_result(),
        units: kept.units(),
        element: kept.element(),
    };
    let names = names(
        problem,
        "sm75",
        result,
        "attention/sm75_attention_backward_operand.cu",
        "attention_backward_operand",
    );
    let launch = Launch {
        blocks: operand_blocks(problem, tile, result) * split,
        threads: THREADS,
        shared_bytes: tile.shared_bytes(problem, false),
    };
    let mut kernels = vec![kernel(problem, target, names, &parameters, &passed, workspace, launch)];
    if split > 1 {
        kernels.push(combine(problem, target, of_result(), listed_line));
    }
    kernels
}

/// The kernel that adds up the partials of a result.
fn combine(
    problem: &BackwardProblem<'_>,
    target: &Target,
    result: ResultParameters,
    line: String,
) -> KernelPlan {
    let name = result.result;
    let passed: Vec<_> = problem.forward.passed().filter(|(slot, _)| *slot == name).collect();
    let workspace = &[Workspace::Partials];
    let parameters = CombineParameters {
        problem: with_workspace(problem, &passed, BTreeSet::new(), workspace),
        listing: listing(&problem.forward, vec![line]),
        elements: result.kept.elements(),
        threads: THREADS,
        result,
    };
    let template = "attention/sm75_attention_backward_combine.cu";
    let entry = "attention_backward_combine";
    let names = names(problem, "sm75", &format!("{name}_combine"), template, entry);
    let blocks = ceil_div(elements(problem, name), THREADS);
    let launch = Launch { blocks, threads: THREADS, shared_bytes: 0 };
    kernel(problem, target, names, &parameters, &passed, workspace, launch)
}

/// The kernel of the gradient of the sinks, a block per head.
fn sinks(problem: &BackwardProblem<'_>, target: &Target) -> KernelPlan {
    let reads = ["lse", "sinks", "dsinks", "query_lengths", "key_lengths"];
    let of_sequence = ["query_offsets", "key_offsets"];
    let all = problem.forward.passed();
    let passed: Vec<_> =
        all.filter(|(slot, _)| reads.contains(slot) || of_sequence.contains(slot)).collect();
    let lines = vec![
        "dsinks[h] = sum over b, i of -exp(sinks[h] - lse[b, h, i]) delta[b, h, i]".to_owned(),
    ];
    let parameters = SinkParameters {
        problem: with_workspace(problem, &passed, BTreeSet::new(), DELTA),
        listing: listing(&problem.forward, lines),
        sink: element(&problem.forward, "sinks"),
        threads: SINK_THREADS,
        result_type: type_of(problem, "dsinks"),
    };
    let template = "attention/sm75_attention_backward_sinks.cu";
    let names = names(problem, "sm75", "dsinks", template, "attention_backward_sinks");
    let blocks = problem.forward.tensor("dsinks").dims[1];
    let launch = Launch { blocks, threads: SINK_THREADS, shared_bytes: 0 };
    kernel(problem, target, names, &parameters, &passed, DELTA, launch)
}

/// Work of the kernels of the results besides dQ, dK and dV.
pub(super) fn optional_work(
    problem: &BackwardProblem<'_>,
    target: &Target,
    tile: Tile,
) -> Vec<KernelWork> {
    let of = |(result, operand): (&'static str, &'static str)| match operand {
        "sinks" => vec![KernelWork {
            blocks: problem.forward.shape.heads as u64,
            threads: SINK_THREADS as u32,
            dram_bytes: 8.0 * problem.rows() as f64,
            l2_bytes: 8.0 * problem.rows() as f64,
            ..delta_work(problem)
        }],
        _ => {
            let split = split_of(problem, target, tile, result);
            let blocks = operand_blocks(problem, tile, result) * split;
            let partials = (elements(problem, result) * split * problem.accumulator_bytes()) as f64;
            let mut kernels = vec![simt_work(problem, tile, blocks, 2, false)];
            if split > 1 {
                kernels.push(KernelWork {
                    blocks: ceil_div(elements(problem, result), THREADS) as u64,
                    dram_bytes: 0.0,
                    l2_bytes: partials,
                    in_flight_bytes: (THREADS * 4 * problem.accumulator_bytes()) as f64,
                    // Four partials at a time.
                    round_trips: split as f64 / 4.0,
                    lane_instructions: partials,
                    ..delta_work(problem)
                });
            }
            kernels
        }
    };
    problem.op.optional().flat_map(of).collect()
}
