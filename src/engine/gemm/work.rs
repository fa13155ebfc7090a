//! What products ask of a GPU, whatever computes them.

use crate::engine::access::ceil_div;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::tiling::Tiling;
use crate::engine::{KernelWork, TensorWork};
use crate::tensor::TensorDesc;

/// What one block of a product is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    pub(super) threads: i64,
    /// Of a thread, estimated.
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
    /// Steps of the depth that are loaded ahead.
    pub(super) stages: i64,
}

/// How its multiplications are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Units {
    /// Instructions of single precision or integers for each multiplication.
    Lanes(f64),
    /// Instructions of double precision for each.
    F64(f64),
    /// Tensor cores, described for one operation.
    Tensor(TensorWork),
}

/// Instructions of an operation of a prologue or an epilogue on one element.
pub(super) const INSTRUCTIONS_OPERATION: f64 = 8.0;

/// The kernels of a product, the one that adds up parts of the depth last.
pub(super) fn work(
    problem: &Problem<'_>,
    tiling: &Tiling,
    block: Block,
    units: Units,
) -> Vec<KernelWork> {
    let Tiling { cta_m, cta_n, cta_k, split_k, .. } = *tiling;
    let tensors = &problem.graph.tensors;
    let bytes =
        |tensor: &TensorDesc| tensor.elements().unwrap_or(0) as f64 * tensor.dtype.bytes() as f64;
    let tiles = tiling.tiles(problem) as f64;
    let depth = (ceil_div(problem.k, cta_k) * cta_k) as f64;
    let multiplications = tiles * (cta_m * cta_n) as f64 * depth;
    // Operands of a prologue are read for every tile, as the operands of the product are.
    let read = |of: &Operand| {
        let sizes = of.part.program.sources.len().max(1) as f64;
        sizes * tensors[of.tensor].dtype.bytes() as f64
    };
    let step_bytes =
        (cta_m as f64 * read(&problem.a) + cta_n as f64 * read(&problem.b)) * cta_k as f64;
    let stored: f64 = problem.passed().iter().map(|at| bytes(&tensors[*at])).sum();
    let rest: f64 = problem.passed_to_epilogue().iter().map(|at| bytes(&tensors[*at])).sum();
    let partial = match split_k {
        1 => 0.0,
        _ => tiling.partials(problem) as f64 * problem.matmul.math.dtype().bytes() as f64,
    };
    let elements = (problem.m * problem.n) as f64 * problem.batch_count() as f64;
    let after = elements
        * problem.epilogue.program.program.instructions().len() as f64
        * INSTRUCTIONS_OPERATION;
    let (whole, last) = if split_k == 1 { (after, 0.0) } else { (0.0, after) };
    let (mut lanes, mut f64_lanes, mut tensor) = (whole, 0.0, None);
    match units {
        Units::Lanes(each) => lanes += each * multiplications,
        Units::F64(each) => f64_lanes = each * multiplications,
        Units::Tensor(one) => {
            tensor = Some(TensorWork { operations: 2.0 * multiplications, ..one });
        }
    }
    let product = KernelWork {
        blocks: (tiles * split_k as f64) as u64,
        threads: block.threads as u32,
        registers: block.registers as u32,
        shared_bytes: block.shared_bytes as u32,
        dram_bytes: stored - if split_k == 1 { 0.0 } else { rest } + partial,
        l2_bytes: tiles * step_bytes * depth / cta_k as f64 + rest + partial,
        in_flight_bytes: step_bytes * block.stages as f64,
        // The steps of the depth, as many at a time as are loaded ahead, then the epilogue.
        round_trips: 1.0 + depth / (split_k * cta_k * block.stages) as f64,
        lane_instructions: lanes,
        f64_instructions: f64_lanes,
        tensor,
    };
    if split_k == 1 {
        return vec![product];
    }
    let threads = 128;
    let reduce = KernelWork {
        blocks: (elements / f64::from(threads * 4)).ceil() as u64,
        threads,
        registers: 40,
        shared_bytes: 0,
        // Partial sums have just been written: the second cache has them.
        dram_bytes: rest,
        l2_bytes: rest + partial,
        in_flight_bytes: f64::from(threads) * 16.0 * split_k as f64,
        round_trips: 1.0,
        lane_instructions: last + elements * split_k as f64,
        f64_instructions: 0.0,
        tensor: None,
    };
    vec![product, reduce]
}
