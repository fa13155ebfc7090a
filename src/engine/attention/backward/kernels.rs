//! What the kernels of all engines share: a tile of scores on FP32 cores, and the kernel of delta.

use serde::Serialize;

use crate::engine::KernelWork;
use crate::engine::access::ceil_div;
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::{literal, numbers};
use crate::engine::attention::work::instructions_score;
use crate::engine::header::KernelNames;
use crate::engine::signature::arguments;
use crate::graph::AttentionShape;
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan};
use crate::target::Target;

/// Threads of every kernel on FP32 cores: 8 rows of 16.
pub(super) const THREADS: i64 = 128;
pub(super) const LANES: i64 = 16;
pub(super) const LINES: i64 = THREADS / LANES;

/// Maximum elements of a head in shared memory, and of a row of results in registers.
const STEP_MAX: i64 = 128;

/// Bytes of the bounds of a query's keys.
const KEY_RANGE_BYTES: i64 = 8;

/// Workspace of most kernels.
pub(super) const DELTA: &[Workspace] = &[Workspace::Delta];

/// Results that no kernel reads.
pub(super) const RESULTS: [&str; 5] = ["dq", "dk", "dv", "dlse", "o"];

/// A tile of scores on FP32 cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    pub(super) cta_q: i64,
    pub(super) cta_k: i64,
}

/// Elements of a head that are in shared memory at a time, and how often.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps {
    pub(super) depth: i64,
    pub(super) width: i64,
    /// Slices of the columns of dK and dV, and of those of dQ, each of another block.
    pub(super) slices: [i64; 2],
}

impl Steps {
    pub(super) fn of(shape: &AttentionShape) -> Steps {
        let [depth, width] = [shape.depth, shape.width].map(|elements| elements.min(STEP_MAX));
        let (of_depth, of_width) = (ceil_div(shape.depth, depth), ceil_div(shape.width, width));
        Steps { depth, width, slices: [of_depth.max(of_width), of_depth] }
    }
}

/// What a tile of scores on FP32 cores takes (`attention/score_tile_simt.cuh`).
#[derive(Serialize)]
pub(super) struct TileParameters {
    cta_q: i64,
    cta_k: i64,
    scale: String,
    depth_step: i64,
    width_step: i64,
    /// Whether rows of scores are those of keys.
    keys_own: bool,
}

impl Tile {
    pub(super) fn parameters(
        self,
        problem: &BackwardProblem<'_>,
        keys_own: bool,
    ) -> TileParameters {
        let shape = &problem.forward.shape;
        let Steps { depth, width, .. } = Steps::of(shape);
        TileParameters {
            cta_q: self.cta_q,
            cta_k: self.cta_k,
            scale: literal(&problem.forward, problem.forward.op.scale_of(shape.depth)),
            depth_step: depth,
            width_step: width,
            keys_own,
        }
    }

    /// Shared memory of a block, with keys or queries as rows of scores.
    pub(super) fn shared_bytes(self, problem: &BackwardProblem<'_>, keys_own: bool) -> i64 {
        let Tile { cta_q, cta_k } = self;
        let Steps { depth, width, .. } = Steps::of(&problem.forward.shape);
        let line = depth.max(width) | 1;
        let (rows, columns) = if keys_own { (cta_k, cta_q) } else { (cta_q, cta_k) };
        let p_line = columns / 32 * 32 + 16;
        let elements = (cta_q + cta_k) * line + 2 * rows * p_line + 2 * cta_q;
        elements * problem.accumulator_bytes() + cta_q * KEY_RANGE_BYTES
    }
}

/// A kernel of gradients with its grid.
pub(super) struct Launch {
    pub(super) blocks: i64,
    pub(super) threads: i64,
    pub(super) shared_bytes: i64,
}

/// A kernel to which these tensors are passed, and this workspace.
pub(super) fn kernel(
    problem: &BackwardProblem<'_>,
    target: &Target,
    names: KernelNames,
    parameters: &impl Serialize,
    passed: &[(&'static str, usize)],
    workspace: &[Workspace],
    launch: Launch,
) -> KernelPlan {
    let scratch = workspace.iter().map(|piece| Argument::Scratch(*piece as usize));
    let tensors = arguments(problem.forward.graph, passed.iter().map(|(_, at)| at));
    KernelPlan {
        spec: names.spec(target.arch, parameters),
        launch: LaunchPlan {
            grid: Grid::fixed(launch.blocks as u32),
            threads: launch.threads as u32,
            shared_bytes: launch.shared_bytes as u32,
            cooperative: false,
            arguments: tensors.into_iter().chain(scratch).collect(),
            maps: Vec::new(),
            numbers: numbers(&problem.forward),
        },
    }
}

/// Names of a kernel.
pub(super) fn names(
    problem: &BackwardProblem<'_>,
    sm: &str,
    name: &str,
    template: &'static str,
    entry: &'static str,
) -> KernelNames {
    let dtype = problem.forward.tensor("dq").dtype;
    KernelNames { stem: format!("{sm}_attention_backward_{dtype}_{name}"), template, entry }
}

/// Work of the kernel that computes delta.
pub(super) fn delta_work(problem: &BackwardProblem<'_>) -> KernelWork {
    let elements = (problem.rows() * problem.forward.shape.width) as f64;
    let bytes = ["o", "do"].map(|slot| problem.forward.tensor(slot).dtype.bytes() as f64);
    let is_double = problem.forward.is_double();
    KernelWork {
        blocks: ceil_div(problem.rows(), THREADS / 32) as u64,
        threads: THREADS as u32,
        registers: 32,
        shared_bytes: 0,
        dram_bytes: elements * bytes.iter().sum::<f64>(),
        l2_bytes: elements * bytes.iter().sum::<f64>(),
        in_flight_bytes: THREADS as f64 * bytes.iter().sum::<f64>(),
        round_trips: 2.0,
        lane_instructions: if is_double { 0.0 } else { 4.0 * elements },
        f64_instructions: if is_double { elements } else { 0.0 },
        tensor: None,
    }
}

/// Work of a kernel on FP32 cores that computes `products` products of tiles.
pub(super) fn simt_work(
    problem: &BackwardProblem<'_>,
    tile: Tile,
    blocks: i64,
    products: i64,
    keys_own: bool,
) -> KernelWork {
    let Tile { cta_q, cta_k } = tile;
    let AttentionShape { batches, heads, depth, width, .. } = problem.forward.shape;
    let tiles = (batches * heads) as f64 * problem.forward.tiles(cta_q, cta_k);
    let scores = tiles * (cta_q * cta_k) as f64;
    let elements = (products * (depth + width) / 2) as f64;
    let (rows, columns) = match keys_own {
        true => (cta_k / LINES, cta_q / LANES),
        false => (cta_q / LINES, cta_k / LANES),
    };
    // A multiply-add, and its share of the reads of both operands.
    let each = 1.0 + (rows + columns) as f64 / (rows * columns) as f64;
    let instructions = scores * (instructions_score(&problem.forward) + elements * each);
    let bytes = ["q", "k", "v", "do"].map(|slot| problem.forward.tensor(slot));
    let dram: f64 = bytes.iter().map(|tensor| crate::engine::access::tensor_bytes(tensor)).sum();
    let element = problem.forward.tensor("q").dtype.bytes() as f64;
    let step_bytes = ((cta_q + cta_k) * (depth + width)) as f64 * element;
    let is_double = problem.forward.is_double();
    KernelWork {
        blocks: blocks as u64,
        threads: THREADS as u32,
        registers: 128,
        shared_bytes: tile.shared_bytes(problem, keys_own) as u32,
        dram_bytes: dram,
        l2_bytes: dram + tiles * step_bytes,
        in_flight_bytes: step_bytes / 4.0,
        round_trips: 1.0 + 4.0 * tiles / (blocks as f64).max(1.0),
        lane_instructions: if is_double { 0.0 } else { instructions },
        f64_instructions: if is_double { instructions } else { 0.0 },
        tensor: None,
    }
}
