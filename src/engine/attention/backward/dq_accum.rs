//! dQ in workspace, which blocks of keys add to, and the kernel that converts it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::access::{GRID_MAX, ceil_div, tensor_bytes};
use crate::engine::attention::backward::kernels::{Launch, delta_work, kernel, names};
use crate::engine::attention::backward::operands::{OPERAND_TILE, partial_bytes};
use crate::engine::attention::backward::parameters::{type_of, with_workspace};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::backward::workspace::Workspace;
use crate::engine::attention::parameters::{ProblemParameters, listing, literal};
use crate::engine::attention::schedule::MMA_M;
use crate::engine::attention::score::Source;
use crate::engine::{KernelWork, TensorWork};
use crate::graph::AttentionShape;
use crate::kernel::KernelPlan;
use crate::target::Target;

/// The first architecture with reductions of four floats in L2.
const VECTORS_CAPABILITY: u16 = 90;

/// Threads of the kernel that converts dQ, each of which has 8 columns of two rows.
const CONVERT_THREADS: i64 = 256;

/// The share of L2 for what blocks of keys that run at the same time read and add to.
const L2_SHARE: f64 = 0.625;

/// Clocks from a block's last addition to a tile of dQ until the next one knows that it is its
/// turn: write, count and read through L2, as the exchange by counters of recurrent layers.
const TURN_CLOCKS: f64 = 1500.0;

/// Bytes that an addition in L2 counts for, of each byte: L2 reads and writes it.
const ADDITION: f64 = 2.0;

/// Values of the knob `dq`: blocks of keys add to dQ in order; they add to it in any order.
pub(super) const ORDERED: i64 = 1;
pub(super) const UNORDERED: i64 = 2;

/// dQ in workspace (`attention/dq_accum.cuh`).
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct DqAccum {
    /// Queries of a tile.
    step_q: i64,
    /// Whether blocks add in order, and count who has.
    ordered: bool,
    /// Whether an addition is of four elements or more.
    vectors: bool,
}

/// How blocks of keys add to dQ (`attention/dq_order.cuh`).
#[derive(Debug, Serialize)]
pub(super) struct AddedDq {
    ordered: bool,
    vectors: bool,
    raster_pairs: i64,
}

/// Blocks of keys that add to dQ.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyBlocks {
    /// Keys of a block.
    pub(super) cta_k: i64,
    /// All of them, and those that an SM holds.
    pub(super) count: i64,
    pub(super) resident: f64,
    /// Tiles of queries that all of them take, and the clocks of one of them.
    pub(super) steps: f64,
    pub(super) step_clocks: f64,
}

#[derive(Serialize)]
struct ConvertParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    listing: Vec<String>,
    accum: DqAccum,
    scale: Option<String>,
    dq_type: &'static str,
    dq_access: i64,
    threads: i64,
}

/// Columns of dQ: whole MMAs.
fn columns(problem: &BackwardProblem<'_>) -> i64 {
    ceil_div(problem.forward.shape.depth, MMA_M) * MMA_M
}

/// Pairs of a sequence and a KV head whose blocks of keys run at the same time, where they add to
/// dQ in order: blocks of one pair follow each other by a step, so the fewer of one pair run the
/// less they wait. L2 holds what a pair reads, and its dQ.
fn raster_pairs(problem: &BackwardProblem<'_>, target: &Target) -> i64 {
    let AttentionShape { queries, depth, width, .. } = problem.forward.shape;
    let element = problem.forward.tensor("q").dtype.bytes() as i64;
    let of_query = (depth + width) * element + columns(problem) * 4;
    let rows = queries.saturating_mul(problem.forward.shape.group());
    let bytes = rows.saturating_mul(of_query).max(1);
    ((target.l2_bytes as f64 * L2_SHARE) as i64 / bytes).clamp(1, 1 << 10)
}

impl DqAccum {
    pub(super) fn of(target: &Target, step_q: i64, ordered: bool) -> DqAccum {
        DqAccum { step_q, ordered, vectors: target.arch.capability >= VECTORS_CAPABILITY }
    }

    /// Its workspace besides delta.
    pub(super) fn workspace(self) -> &'static [Workspace] {
        match self.ordered {
            true => &[Workspace::DqAccum, Workspace::Semaphores],
            false => &[Workspace::DqAccum],
        }
    }

    /// What the kernel of delta sets to 0: numbers that are added to before one is stored.
    pub(super) fn cleared(self) -> Workspace {
        if self.ordered { Workspace::Semaphores } else { Workspace::DqAccum }
    }

    /// How blocks of keys add to it.
    pub(super) fn added(self, problem: &BackwardProblem<'_>, target: &Target) -> AddedDq {
        let DqAccum { ordered, vectors, .. } = self;
        AddedDq { ordered, vectors, raster_pairs: raster_pairs(problem, target) }
    }

    /// # Errors
    /// Why it cannot be converted.
    pub(super) fn check(self, problem: &BackwardProblem<'_>) -> Result<(), String> {
        let blocks = self.convert_blocks(problem);
        match blocks > GRID_MAX {
            true => Err(format!("needs {blocks} blocks, more than a grid has")),
            false => Ok(()),
        }
    }

    /// Its rows: whole tiles of all heads.
    fn rows(self, problem: &BackwardProblem<'_>) -> i64 {
        problem.forward.blocks(self.step_q).saturating_mul(self.step_q)
    }

    fn bytes(self, problem: &BackwardProblem<'_>) -> i64 {
        self.rows(problem).saturating_mul(columns(problem) * 4)
    }

    /// Bytes of the ticket and of the counters of tiles.
    fn semaphore_bytes(self, problem: &BackwardProblem<'_>) -> i64 {
        match self.ordered {
            true => (problem.forward.blocks(self.step_q).saturating_add(1)).saturating_mul(4),
            false => 0,
        }
    }

    /// Blocks of the kernel that converts it.
    fn convert_blocks(self, problem: &BackwardProblem<'_>) -> i64 {
        let chunks = ceil_div(problem.forward.shape.depth, 8);
        ceil_div((self.rows(problem) / 2).saturating_mul(chunks), CONVERT_THREADS)
    }

    /// The kernel that scales and rounds it, of which each thread has 8 columns of two rows.
    pub(super) fn convert_kernel(
        self,
        problem: &BackwardProblem<'_>,
        target: &Target,
    ) -> KernelPlan {
        let forward = &problem.forward;
        let lengths = ["query_lengths", "key_lengths", "query_offsets", "key_offsets", "dq"];
        let all = forward.passed();
        let passed: Vec<_> = all.filter(|(slot, _)| lengths.contains(slot)).collect();
        let workspace = self.workspace();
        let scale = forward.op.scale_of(forward.shape.depth);
        let is_scaled = problem.gradient(Source::Score).is_none();
        let parameters = ConvertParameters {
            problem: with_workspace(problem, &passed, BTreeSet::new(), workspace),
            listing: listing(forward, vec!["dq[b, h, i] = dq_accum[b, h, i], scaled".to_owned()]),
            accum: self,
            scale: is_scaled.then(|| literal(forward, scale)),
            dq_type: type_of(problem, "dq"),
            dq_access: forward.access("dq", 8),
            threads: CONVERT_THREADS,
        };
        let template = "attention/sm80_attention_backward_convert.cu";
        let names = names(problem, "sm80", "convert", template, "attention_backward_convert");
        let blocks = self.convert_blocks(problem);
        let launch = Launch { blocks, threads: CONVERT_THREADS, shared_bytes: 0 };
        kernel(problem, target, names, &parameters, &passed, workspace, launch)
    }

    /// Work of the kernel that converts it.
    pub(super) fn convert_work(self, problem: &BackwardProblem<'_>) -> KernelWork {
        let read = self.bytes(problem) as f64;
        let written = tensor_bytes(problem.forward.tensor("dq"));
        KernelWork {
            blocks: self.convert_blocks(problem) as u64,
            threads: CONVERT_THREADS as u32,
            registers: 40,
            dram_bytes: read + written,
            l2_bytes: read + written,
            in_flight_bytes: (CONVERT_THREADS * 64) as f64,
            round_trips: 1.0,
            lane_instructions: read,
            ..delta_work(problem)
        }
    }

    /// The work of blocks of keys that add to it, by that without.
    pub(super) fn added_work(
        self,
        problem: &BackwardProblem<'_>,
        target: &Target,
        blocks: &KeyBlocks,
        base: KernelWork,
    ) -> KernelWork {
        let added = blocks.steps * (self.step_q * columns(problem) * 4) as f64;
        let slots = f64::from(target.sm_count) * blocks.resident;
        let of_slot = (blocks.steps / slots.min(blocks.count as f64).max(1.0)).max(1.0);
        let waits = 1.0 + self.steps_waited(problem, target, blocks) / of_slot;
        let tensor = base.tensor.map(|of| TensorWork { efficiency: of.efficiency / waits, ..of });
        KernelWork {
            dram_bytes: base.dram_bytes + self.bytes(problem) as f64,
            l2_bytes: base.l2_bytes + ADDITION * added,
            tensor,
            ..base
        }
    }

    /// Steps that the last of the blocks that start together waits until it may add to its first
    /// tile. A block follows that before it by a step, and by the time that a turn takes to be
    /// passed on. Blocks that start with their own first query, as those of a causal mask do, are
    /// apart from the start.
    fn steps_waited(
        self,
        problem: &BackwardProblem<'_>,
        target: &Target,
        blocks: &KeyBlocks,
    ) -> f64 {
        if !self.ordered {
            return 0.0;
        }
        let behind = (TURN_CLOCKS / blocks.step_clocks).max(1.0);
        let apart = match problem.forward.op.band.right {
            Some(_) => blocks.cta_k as f64 / self.step_q as f64,
            None => 0.0,
        };
        let slots = f64::from(target.sm_count) * blocks.resident;
        let AttentionShape { batches, kv_heads, .. } = problem.forward.shape;
        let pairs = (batches * kv_heads).max(1);
        let pairs_together = raster_pairs(problem, target).min(pairs);
        let together = (slots.min(blocks.count as f64) / pairs_together as f64).ceil();
        let of_pair = blocks.count as f64 / pairs as f64;
        (together.min(of_pair) - 1.0) * (behind - apart).max(0.0)
    }
}

/// Bytes of all workspace, in the order of [`Workspace`].
pub(super) fn workspace_bytes(
    problem: &BackwardProblem<'_>,
    target: &Target,
    accum: Option<DqAccum>,
) -> Vec<u64> {
    let delta = problem.rows().saturating_mul(problem.accumulator_bytes());
    let added = accum.map_or([0, 0], |of| [of.bytes(problem), of.semaphore_bytes(problem)]);
    let partials = partial_bytes(problem, target, OPERAND_TILE);
    [delta, added[0], added[1], partials].map(|bytes| bytes as u64).to_vec()
}
