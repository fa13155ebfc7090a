//! Work of GEMM kernels for the cost model, for any engine.

use kiln_sass::{Architecture, SCHEDULERS};

use crate::engine::access::{ceil_div, tensor_bytes};
use crate::engine::cost::{INSTRUCTIONS_OPERATION, OPERATIONS_DRAW};
use crate::engine::gemm::combine::Combine;
use crate::engine::gemm::fusion::Fusion;
use crate::engine::gemm::problem::{Operand, Problem};
use crate::engine::gemm::split_k::{SplitKReduction, THREADS};
use crate::engine::gemm::tiling::{Tiling, partial_bytes};
use crate::engine::{KernelWork, TensorWork};

/// Resources of one block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    pub(super) threads: i64,
    /// Registers of a thread, estimated.
    pub(super) registers: i64,
    pub(super) shared_bytes: i64,
    /// Pipeline stages that are loaded ahead.
    pub(super) stages: i64,
    /// Rows and columns that a warp passes through the epilogue at once.
    pub(super) epilogue_tile: [i64; 2],
}

/// Instructions of an element that passes through registers into shared memory, and of what a
/// prologue computes of it there: a function, another operation. In all 4.4 of a ReLU and 20 to 24
/// of a GELU by tanh, by estimates of GEMMs of 8192 x 4096 x 4096 on A100 and H200.
const INSTRUCTIONS_STAGED: f64 = 3.0;
const INSTRUCTIONS_FUNCTION: f64 = 20.0;
const INSTRUCTIONS_OTHER: f64 = 2.0;

/// Instructions of a prologue on an element.
fn instructions_of(prologue: &Fusion) -> f64 {
    let own = prologue.program.program.instructions().iter().map(|instruction| {
        match instruction.op.mode.is_function() {
            true => INSTRUCTIONS_FUNCTION,
            false => INSTRUCTIONS_OTHER,
        }
    });
    let draws = prologue.program.positions().count() as f64;
    let draws = draws * OPERATIONS_DRAW * INSTRUCTIONS_OPERATION;
    match own.sum::<f64>() + draws {
        0.0 => 0.0,
        computed => INSTRUCTIONS_STAGED + computed,
    }
}

/// The hardware that executes the multiply-adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MathPath {
    /// FP32 or integer instructions per multiply-add.
    Fp32(f64),
    /// FP64 instructions per multiply-add.
    F64(f64),
    /// Tensor cores; `operations` is that of one multiply-add, `block_clocks` of one K step.
    Tensor(TensorWork),
}

/// Work of a problem that does not depend on the tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Demand {
    /// Bytes read per element of A and of B, including the operands of their prologues.
    read: [f64; 2],
    /// Bytes of all tensors in memory.
    stored: f64,
    /// Bytes of the epilogue's tensors.
    rest: f64,
    /// Elements of the GEMM result.
    elements: f64,
    /// Instructions of all epilogues.
    instructions: f64,
    /// Instructions that an element of A and of B takes on its way through registers.
    passed: [f64; 2],
}

/// A pipeline step of a block whose warps multiply by `mma.sync`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MmaStep {
    pub(super) warps: f64,
    /// MMAs of a warp.
    pub(super) mmas: f64,
    /// Bytes of shared memory that a warp reads, and of its share of the copies.
    pub(super) bytes: f64,
    /// Results of a warp: its tile's, as a share of a step.
    pub(super) results: f64,
    /// Instructions of elements on their way through registers, of all threads together.
    pub(super) passed: f64,
    /// Words of fragments that are rounded to tf32, of all threads together.
    pub(super) rounded: f64,
}

/// Clocks of a pipeline step in which none of its block's warps multiplies, as all wait for copies,
/// for each other and for their first fragments: 200 of blocks of one warp, 310 of blocks of 8, by
/// estimates of f16 GEMMs and convolutions on A100.
const STEP_CLOCKS: f64 = 260.0;

/// Bytes that the memory pipe passes for a result: an accumulator into shared memory and out of it,
/// and what is stored. By estimates of f16 convolutions of few K steps on H200.
const RESULT_BYTES: f64 = 12.0;

/// Instructions that round a word.
const ROUNDING: f64 = 2.0;

/// Threads of a warp.
const WARP_SIZE: f64 = 32.0;

/// Bytes of shared memory that an SM reads or writes in a clock.
const SHARED_BYTES_CLOCK: f64 = 128.0;

impl MmaStep {
    /// Clocks of a block alone on an SM.
    pub(super) fn clocks(&self, of: &Architecture) -> f64 {
        let products = (self.warps / SCHEDULERS).max(1.0) * self.mmas * of.tensor;
        let moved = self.warps * self.bytes / SHARED_BYTES_CLOCK;
        // No warp multiplies before its share of the next step is computed.
        products.max(moved) + self.passed_clocks() + STEP_CLOCKS
    }

    /// Clocks in which the SM issues what elements take on their way through registers.
    fn passed_clocks(&self) -> f64 {
        self.passed / (WARP_SIZE * SCHEDULERS)
    }

    /// The share of tensor cores' full rate with so many blocks on an SM, which hide each other's
    /// waits, but not what elements take on their way.
    pub(super) fn efficiency(&self, blocks: f64, of: &Architecture) -> f64 {
        let warps = blocks * self.warps;
        let mmas = warps / SCHEDULERS * self.mmas;
        let moved = warps * (self.bytes + self.results * RESULT_BYTES) / SHARED_BYTES_CLOCK;
        // MMAs of 8 clocks and more leave room for it.
        let is_seen = of.tensor > of.tensor_asynchronous;
        let rounded = if is_seen { ROUNDING * self.rounded } else { 0.0 };
        let issued = blocks * (self.passed_clocks() + rounded / (WARP_SIZE * SCHEDULERS));
        let clocks = self.clocks(of).max(mmas * of.tensor + issued).max(moved);
        mmas * of.tensor_asynchronous / clocks
    }
}

impl Demand {
    pub(super) fn of(problem: &Problem<'_>) -> Demand {
        let tensors = &problem.graph.tensors;
        let bytes = |at: &usize| tensor_bytes(&tensors[*at]);
        // Operands of a prologue are read for every tile, as those of the GEMM are.
        let read = |of: &Operand| {
            let sizes = of.prologue.program.sources.len().max(1) as f64;
            sizes * tensors[of.tensor].dtype.bytes() as f64
        };
        let elements = problem.element_count();
        let program = &problem.epilogue.program;
        let draws = program.positions().count() as f64 * OPERATIONS_DRAW;
        let operations = program.program.instructions().len() as f64 + draws;
        Demand {
            read: [read(&problem.a), read(&problem.b)],
            stored: problem.passed().iter().map(bytes).sum(),
            rest: problem.passed_to_epilogue().iter().map(bytes).sum(),
            elements,
            instructions: elements * operations * INSTRUCTIONS_OPERATION,
            passed: [&problem.a, &problem.b].map(|of| instructions_of(&of.prologue)),
        }
    }

    /// The same where loading an element of A and of B takes instructions of its own.
    pub(super) fn loading(self, [a, b]: [f64; 2]) -> Demand {
        Demand { passed: [self.passed[0] + a, self.passed[1] + b], ..self }
    }

    /// Instructions of a block's elements in a step, on their way through registers.
    pub(super) fn passed_instructions(&self, problem: &Problem<'_>, tiling: &Tiling) -> f64 {
        let [a, b] = self.passed;
        let columns = (tiling.cta_n * problem.gemm_count()) as f64;
        (tiling.cta_m as f64 * a + columns * b) * tiling.cta_k as f64
    }

    /// Work of the GEMM, the split-K reduction and the combine kernels.
    pub(super) fn work(
        &self,
        problem: &Problem<'_>,
        tiling: &Tiling,
        block: Block,
        math_path: MathPath,
    ) -> Vec<KernelWork> {
        let Demand { stored, rest, instructions, .. } = *self;
        let Tiling { cta_m, cta_n, cta_k, split_k, .. } = *tiling;
        let [tiles, steps] = problem.tiles_and_steps([cta_m, cta_n, cta_k]);
        let k = (ceil_div(problem.k, cta_k) * cta_k) as f64;
        let gemm_count = problem.gemm_count();
        let multiplications = steps * (cta_m * cta_n * cta_k * gemm_count) as f64;
        let [read_a, read_b] = self.read;
        let step_bytes =
            (cta_m as f64 * read_a + (cta_n * gemm_count) as f64 * read_b) * cta_k as f64;
        let reduction = (split_k > 1).then(|| SplitKReduction::of(problem));
        let epilogue_tile = reduction.as_ref().map_or(block.epilogue_tile, |of| of.epilogue_tile);
        let combined = problem.combined().into_iter();
        let combines = combined.map(|of| Combine::of(problem, of, split_k, epilogue_tile));
        let combines: Vec<Combine<'_>> = combines.collect();
        let partials = combines.iter().map(|combine| combine.bytes() as f64).sum::<f64>();
        let (own, whole, partial) = match split_k {
            1 => (stored, instructions, partials),
            _ => (stored - rest, 0.0, partial_bytes(problem, split_k) as f64),
        };
        let (mut lanes, mut f64_lanes, mut tensor) = (whole, 0.0, None);
        lanes += steps * self.passed_instructions(problem, tiling);
        match math_path {
            MathPath::Fp32(each) => lanes += each * multiplications,
            MathPath::F64(each) => f64_lanes = each * multiplications,
            MathPath::Tensor(one) => {
                tensor = Some(TensorWork {
                    operations: 2.0 * multiplications,
                    block_clocks: one.block_clocks * steps / (tiles * split_k as f64).max(1.0),
                    ..one
                });
            }
        }
        let gemm = KernelWork {
            blocks: (tiles * split_k as f64) as u64,
            threads: block.threads as u32,
            registers: block.registers as u32,
            shared_bytes: block.shared_bytes as u32,
            dram_bytes: own + partial,
            l2_bytes: steps * step_bytes + rest + partial,
            in_flight_bytes: step_bytes * block.stages as f64,
            // K steps, as many at a time as are loaded ahead, then the epilogue.
            round_trips: 1.0 + k / (split_k * cta_k * block.stages) as f64,
            lane_instructions: lanes,
            f64_instructions: f64_lanes,
            tensor,
        };
        let reduction = reduction.map(|of| self.split_k_reduction(problem, &of, tiling, partials));
        let combines = combines.iter().map(Combine::work);
        std::iter::once(gemm).chain(reduction).chain(combines).collect()
    }

    /// Work of the split-K reduction.
    fn split_k_reduction(
        &self,
        problem: &Problem<'_>,
        of: &SplitKReduction<'_>,
        tiling: &Tiling,
        partials: f64,
    ) -> KernelWork {
        let ([rows, columns], split_k) = (of.epilogue_tile, tiling.split_k as f64);
        KernelWork {
            blocks: of.blocks() as u64,
            threads: THREADS as u32,
            registers: 40,
            shared_bytes: 0,
            // The partial accumulators are still in L2.
            dram_bytes: self.rest + partials,
            l2_bytes: self.rest + partials + partial_bytes(problem, tiling.split_k) as f64,
            in_flight_bytes: (THREADS * 16) as f64 * split_k,
            round_trips: (rows * columns / (32 * of.vector)) as f64,
            lane_instructions: self.instructions + self.elements * split_k,
            f64_instructions: 0.0,
            tensor: None,
        }
    }
}
