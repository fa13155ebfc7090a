//! What products ask of a GPU, whatever computes them.

use crate::engine::access::ceil_div;
use crate::engine::cost::INSTRUCTIONS_OPERATION;
use crate::engine::gemm::join::Join;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::sum::{Sum, THREADS};
use crate::engine::gemm::tiling::{Tiling, partial_bytes};
use crate::engine::{KernelWork, TensorWork};

/// What one block of a product is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    pub(super) threads: i64,
    /// Registers of a thread, estimated.
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
    /// Steps of the depth that are loaded ahead.
    pub(super) stages: i64,
    /// Rows and columns that a warp finishes at once.
    pub(super) finished: [i64; 2],
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

/// What a problem asks of a GPU, however it is cut into tiles.
pub(super) struct Demand<'a> {
    problem: &'a Problem<'a>,
    /// Bytes of an element of A's rows and of B's columns, with all that they are computed from.
    read: [f64; 2],
    /// Bytes of all tensors.
    stored: f64,
    /// Bytes of the tensors of the epilogue.
    rest: f64,
    /// Elements of the product.
    elements: f64,
    /// Instructions of the epilogue.
    instructions: f64,
}

impl<'a> Demand<'a> {
    pub(super) fn of(problem: &'a Problem<'a>) -> Demand<'a> {
        let tensors = &problem.graph.tensors;
        let bytes = |at: &usize| {
            let tensor = &tensors[*at];
            tensor.elements().unwrap_or(0) as f64 * tensor.dtype.bytes() as f64
        };
        // Operands of a prologue are read for every tile, as the operands of the product are.
        let read = |of: &Operand| {
            let sizes = of.part.program.sources.len().max(1) as f64;
            sizes * tensors[of.tensor].dtype.bytes() as f64
        };
        let elements = (problem.m * problem.n) as f64 * problem.batch_count() as f64;
        let operations = problem.epilogue.program.program.instructions().len() as f64;
        Demand {
            problem,
            read: [read(&problem.a), read(&problem.b)],
            stored: problem.passed().iter().map(bytes).sum(),
            rest: problem.passed_to_epilogue().iter().map(bytes).sum(),
            elements,
            instructions: elements * operations * INSTRUCTIONS_OPERATION,
        }
    }

    /// The kernels: the one that multiplies, the one that adds up parts of the depth, those that
    /// join parts of reductions.
    pub(super) fn work(&self, tiling: &Tiling, block: Block, units: Units) -> Vec<KernelWork> {
        let Demand { problem, stored, rest, instructions, .. } = *self;
        let Tiling { cta_m, cta_n, cta_k, split_k, .. } = *tiling;
        let tiles = tiling.tiles(problem) as f64;
        let depth = (ceil_div(problem.k, cta_k) * cta_k) as f64;
        let products = problem.products();
        let multiplications = tiles * (cta_m * cta_n * products) as f64 * depth;
        let [read_a, read_b] = self.read;
        let step_bytes =
            (cta_m as f64 * read_a + (cta_n * products) as f64 * read_b) * cta_k as f64;
        let sum = (split_k > 1).then(|| Sum::of(problem));
        let finished = sum.as_ref().map_or(block.finished, |sum| sum.finished);
        let joins = (0..problem.exits.len()).map(|at| Join::of(problem, at, finished));
        let joins: Vec<Join<'_>> = joins.collect();
        let parts = joins.iter().map(|join| join.bytes() as f64).sum::<f64>();
        let (own, whole, partial) = match split_k {
            1 => (stored, instructions, parts),
            _ => (stored - rest, 0.0, partial_bytes(problem, split_k) as f64),
        };
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
            dram_bytes: own + partial,
            l2_bytes: tiles * step_bytes * depth / cta_k as f64 + rest + partial,
            in_flight_bytes: step_bytes * block.stages as f64,
            // The steps of the depth, as many at a time as are loaded ahead, then the epilogue.
            round_trips: 1.0 + depth / (split_k * cta_k * block.stages) as f64,
            lane_instructions: lanes,
            f64_instructions: f64_lanes,
            tensor,
        };
        let sum = sum.map(|sum| self.sum(&sum, tiling, parts));
        let joins = joins.iter().map(Join::work);
        std::iter::once(product).chain(sum).chain(joins).collect()
    }

    /// The kernel that adds up parts of the depth.
    fn sum(&self, sum: &Sum<'_>, tiling: &Tiling, parts: f64) -> KernelWork {
        let ([rows, columns], split_k) = (sum.finished, tiling.split_k as f64);
        KernelWork {
            blocks: sum.blocks() as u64,
            threads: THREADS as u32,
            registers: 40,
            shared_bytes: 0,
            // Partial sums have just been written: the second cache has them.
            dram_bytes: self.rest + parts,
            l2_bytes: self.rest + parts + partial_bytes(self.problem, tiling.split_k) as f64,
            in_flight_bytes: (THREADS * 16) as f64 * split_k,
            round_trips: (rows * columns / (32 * sum.vector)) as f64,
            lane_instructions: self.instructions + self.elements * split_k,
            f64_instructions: 0.0,
            tensor: None,
        }
    }
}
