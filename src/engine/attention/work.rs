//! Work of attention kernels for the cost model, for any engine.

use crate::engine::access::tensor_bytes;
use crate::engine::attention::problem::Problem;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::{KernelWork, TensorWork};
use crate::graph::AttentionShape;

/// Minimum gain of a setting by the cost model: it leaves out that the MMAs of one warp wait for
/// each other, which the rules avoid by more and smaller blocks.
pub(super) const GAIN_MIN: f64 = 1.3;

/// Instructions per score: exp2, max, two multiplications and their moves.
const INSTRUCTIONS_SCORE: f64 = 6.0;

/// Resources of one block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    pub(super) cta_q: i64,
    pub(super) cta_k: i64,
    /// Query heads packed into one tile.
    pub(super) pack: i64,
    /// Number of blocks.
    pub(super) blocks: i64,
    pub(super) threads: i64,
    /// Estimated registers per thread.
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
    /// Tiles of K or V that are loaded ahead.
    pub(super) stages: i64,
}

/// The hardware that executes the multiply-adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MathPath {
    /// FP32 instructions per multiply-add.
    Fp32(f64),
    /// FP64 instructions per multiply-add.
    F64(f64),
    /// Tensor cores; `operations` is that of one multiply-add.
    Tensor(TensorWork),
}

/// Instructions per score, including the score program.
pub(super) fn instructions_score(problem: &Problem<'_>) -> f64 {
    let operations = problem.score.program.instructions().len() as f64;
    INSTRUCTIONS_SCORE + operations * INSTRUCTIONS_OPERATION
}

/// Work of the attention kernel.
pub(super) fn work(problem: &Problem<'_>, block: Block, path: MathPath) -> KernelWork {
    let Block { cta_q, cta_k, pack, blocks, threads, registers, shared_bytes, stages } = block;
    let AttentionShape { batches, heads, depth, width, .. } = problem.shape;
    let bytes = |at: usize| tensor_bytes(&problem.graph.tensors[at]);
    let dram_bytes: f64 = problem.passed().map(|(_, at)| bytes(at)).sum();
    // Packed heads share the rows of a tile.
    let queries = (cta_q / pack).max(1);
    let tiles = (batches * heads) as f64 / pack as f64 * problem.tiles(queries, cta_k);
    let scores = tiles * (cta_q * cta_k) as f64;
    let multiplications = scores * (depth + width) as f64;
    let step_bytes = cta_k as f64
        * (depth as f64 * problem.tensor("k").dtype.bytes() as f64
            + width as f64 * problem.tensor("v").dtype.bytes() as f64);
    let each = instructions_score(problem);
    let (mut lanes, mut f64_lanes, mut tensor) = (0.0, 0.0, None);
    match path {
        MathPath::Fp32(cost) => lanes = scores * each + multiplications * cost,
        MathPath::F64(cost) => f64_lanes = scores * each + multiplications * cost,
        MathPath::Tensor(one) => {
            lanes = scores * each;
            tensor = Some(TensorWork { operations: 2.0 * multiplications, ..one });
        }
    }
    KernelWork {
        blocks: blocks as u64,
        threads: threads as u32,
        registers: registers as u32,
        shared_bytes: shared_bytes as u32,
        dram_bytes,
        l2_bytes: dram_bytes + tiles * step_bytes,
        in_flight_bytes: step_bytes * stages as f64 / 2.0,
        // Q, then K and V of every tile.
        round_trips: 1.0 + 2.0 * tiles / (blocks as f64).max(1.0) / stages as f64,
        lane_instructions: lanes,
        f64_instructions: f64_lanes,
        tensor,
    }
}
