//! Attention by `mma.sync` for a given tiling: limits and kernels.

use std::collections::BTreeSet;

use kiln_machine::Operands;
use kiln_sass::TileOrder;
use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::attention::parameters::{
    AttentionParameters, ProblemParameters, attention_parameters, literal, numbers,
    problem_parameters,
};
use crate::engine::attention::problem::Problem;
use crate::engine::attention::tile_order::tile_order;
use crate::engine::attention::work::{Block, MathPath, work};
use crate::engine::header::KernelNames;
use crate::engine::instruction::{AMPERE, MmaInstruction, mma_sm};
use crate::engine::signature::{arguments, ctype, refuse_older};
use crate::engine::{KernelWork, NumericalNote, TensorWork};
use crate::error::{Error, Result};
use crate::graph::{Attention, AttentionShape, CanonicalGraph, MatmulMath};
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

/// The first architecture with `ldmatrix` and MMAs of f16.
const CAPABILITY_MIN: u16 = 75;

const THREADS_MAX: i64 = 256;

/// Maximum head dimension; the largest in use are 576 and 512 of DeepSeek's MLA.
const ELEMENTS_MAX: i64 = 1024;

/// M of one MMA, and N of a pair.
pub(super) const MMA_M: i64 = 16;

/// Maximum columns of O per warp.
pub(super) const WIDTH_WARP_MAX: i64 = 256;

/// Registers for addresses, bounds and fragments, and for the rows of each MMA tile.
const REGISTERS_OTHER: i64 = 40;
const REGISTERS_TILE: i64 = 20;

/// Registers per thread for the key bounds of an MMA tile's rows: two rows of two.
const BOUND_REGISTERS: i64 = 4;

/// Registers per thread for what a score program reads: 30 in attention with slopes, sinks and
/// dropout, by NVRTC's report.
const SCORE_REGISTERS: i64 = 32;

/// Magnitude from which scores are rounded to multiples of a power of two
/// (`attention/online_softmax.cuh`).
const FAR: f64 = (1 << 27) as f64;

/// Threads per block of the combine kernel, a warp per row.
const COMBINE_THREADS: i64 = 128;

/// Maximum bytes of split-KV partials.
const PARTIALS_BYTES_MAX: i64 = 1 << 40;

/// A problem that tensor cores can compute.
#[derive(Debug)]
pub(super) struct Matrices<'a> {
    pub(super) problem: Problem<'a>,
    pub(super) target: &'a Target,
    pub(super) element: DType,
}

/// Tile sizes of blocks and warps, and how the keys are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    /// Keys per tile.
    pub(super) cta_k: i64,
    /// Rows per block.
    pub(super) cta_q: i64,
    /// Whether warps keep Q in registers.
    pub(super) hold_q: bool,
    /// Rows per warp.
    pub(super) warp_q: i64,
    /// Whether all query heads that share K and V are packed into one tile.
    pub(super) packs: bool,
    /// Splits of the keys.
    pub(super) split: i64,
    /// Cluster size: all splits of a tile, which combine in distributed shared memory, or 1 if the
    /// combine kernel does.
    pub(super) cluster: i64,
}

/// Everything derived from a legal tiling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    tiling: Tiling,
    threads: i64,
    registers: i64,
    shared_bytes: i64,
    pub(super) blocks: i64,
}

impl<'a> Matrices<'a> {
    /// # Errors
    /// `NotSupported` for old devices and for types without an MMA.
    pub(super) fn of(graph: CanonicalGraph<'a>, target: &'a Target) -> Result<Matrices<'a>> {
        let capability = target.arch.capability;
        let unsupported = |text: String| Err(Error::not_supported(text));
        refuse_older(capability, CAPABILITY_MIN)?;
        let problem = Problem::of(graph, capability)?;
        if problem.op.math == MatmulMath::F64 {
            return unsupported("tensor cores are not used for f64".to_owned());
        }
        let types = ["q", "k", "v"].map(|slot| problem.tensor(slot).dtype);
        let element = Attention::product_dtype(types);
        // Operands arrive in the type of the MMA or one half as wide.
        let widens = |dtype: DType| dtype == element || 2 * dtype.bytes() == element.bytes();
        let rounds = types.contains(&DType::F32);
        let has_mma = match element {
            DType::F16 | DType::Bf16 => true,
            DType::F32 => !rounds || problem.op.math == MatmulMath::Tf32,
            _ => false,
        };
        if !has_mma || !types.into_iter().all(widens) {
            let [q, k, v] = types;
            return unsupported(format!(
                "q is {q}, k is {k} and v is {v}: tensor cores take f16, bf16 or f8, or f32 next \
                 to f16 and bf16 where math is tf32"
            ));
        }
        if element != DType::F16 {
            refuse_older(capability, AMPERE)?;
        }
        let AttentionShape { depth, width, .. } = problem.shape;
        if depth.max(width) > ELEMENTS_MAX {
            let text = format!("heads of {depth} and {width} elements, more than {ELEMENTS_MAX}");
            return unsupported(text);
        }
        Ok(Matrices { problem, target, element })
    }

    /// Whether the MMA's operands are tf32.
    pub(super) fn is_tf32(&self) -> bool {
        self.element == DType::F32
    }

    /// Type of an operand that is widened for the MMA.
    pub(super) fn narrow_type(&self, slot: &str) -> Option<&'static str> {
        let dtype = self.problem.tensor(slot).dtype;
        (dtype != self.element).then(|| ctype(dtype))
    }

    /// K of one MMA: 32 bytes.
    fn mma_k(&self) -> i64 {
        32 / self.element.bytes() as i64
    }

    /// Bytes per row of a tile in shared memory.
    pub(super) fn line_bytes(&self, elements: i64) -> i64 {
        line_bytes(self.element, elements)
    }

    /// Numerical notes.
    pub(super) fn notes(&self) -> Vec<NumericalNote> {
        let slots = ["q", "k", "v"];
        let rounds = slots.iter().any(|slot| self.problem.tensor(slot).dtype == DType::F32);
        let rounded = rounds.then_some(NumericalNote::DownConvertInputs);
        std::iter::once(NumericalNote::TensorCore).chain(rounded).collect()
    }

    /// Number of row tiles, for each sequence and key head.
    pub(super) fn blocks(&self, tiling: &Tiling) -> i64 {
        let AttentionShape { batches, kv_heads, heads, queries, .. } = self.problem.shape;
        let (leads, rows) = match tiling.packs {
            true => (kv_heads, queries.saturating_mul(self.problem.shape.group())),
            false => (heads, queries),
        };
        [leads, ceil_div(rows, tiling.cta_q), tiling.split]
            .into_iter()
            .fold(batches, i64::saturating_mul)
    }

    /// # Errors
    /// The limit of the device that the tiling exceeds.
    pub(super) fn schedule(&self, tiling: Tiling) -> Result<Schedule, String> {
        let shape = &self.problem.shape;
        let Tiling { cta_k, cta_q, warp_q, split, cluster, .. } = tiling;
        if cluster > 1 && cluster != split {
            return Err(format!("a cluster of {cluster} blocks for {split} splits"));
        }
        let threads = cta_q / warp_q * 32 * warps_v(shape);
        if threads == 0 || threads > THREADS_MAX {
            return Err(format!("needs {threads} threads, a block has 32 to {THREADS_MAX}"));
        }
        let tile = |rows: i64, elements: i64| rows * self.line_bytes(elements);
        // K of the next tile; narrow elements arrive beside the buffer that they are widened into.
        let narrow = |elements: i64| match self.is_tf32() {
            true => tile(cta_k, elements) / 2,
            false => cta_k * ceil_div(elements, MMA_M) * MMA_M,
        };
        let next_k = match self.narrow_type("k") {
            Some(_) => narrow(shape.depth),
            None => tile(cta_k, shape.depth),
        };
        let width = padded_width(shape);
        let narrow_v = self.narrow_type("v").map_or(0, |_| narrow(width));
        let of_k = tile(cta_k, shape.depth) + next_k;
        let tiles = tile(cta_q, shape.depth) + of_k + tile(cta_k, width) + narrow_v;
        let shared_bytes = match cluster {
            1 => tiles,
            // O of the rows reuses the memory of the tiles (`attention/partial.cuh`).
            _ => tiles.max(cta_q * (ceil_div(width, 32) * 32 + 8 + 2) * 4),
        };
        let available = i64::from(self.target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(format!(
                "needs {shared_bytes} bytes of shared memory, a block has {available}"
            ));
        }
        let program = self.bound_registers(&tiling) + self.score_registers();
        let registers = tiling.registers(shape, self.element) + program;
        if registers > REGISTERS_THREAD_MAX {
            return Err(format!(
                "needs about {registers} registers, a thread has {REGISTERS_THREAD_MAX}"
            ));
        }
        let blocks = self.blocks(&tiling);
        if blocks > GRID_MAX {
            return Err(format!("needs {blocks} blocks, more than a grid has"));
        }
        let bytes = self.partial_bytes(&tiling).into_iter().fold(0, i64::saturating_add);
        if bytes > PARTIALS_BYTES_MAX {
            return Err(format!("needs {bytes} bytes of split-KV partials"));
        }
        Ok(Schedule { tiling, threads, registers, shared_bytes, blocks })
    }

    /// Registers for the first and last key of each row, where they differ by row.
    fn bound_registers(&self, tiling: &Tiling) -> i64 {
        let op = self.problem.op;
        let own = op.band.left.is_some() || op.intervals || op.query_lengths;
        if own { tiling.warp_q / MMA_M * BOUND_REGISTERS } else { 0 }
    }

    /// Registers for operands and coordinates of the score program, and for random numbers.
    fn score_registers(&self) -> i64 {
        let own = self.problem.score.reads_tensors() || self.problem.op.dropout.is_some();
        if own { SCORE_REGISTERS } else { 0 }
    }

    /// Bytes of the partial O, row_max and row_sum; 0 without a split.
    fn partial_bytes(&self, tiling: &Tiling) -> [i64; 3] {
        let AttentionShape { batches, heads, queries, width, .. } = self.problem.shape;
        let splits = if tiling.needs_combine() { tiling.split } else { 0 };
        let rows = [heads, queries, splits, 4].into_iter().fold(batches, i64::saturating_mul);
        [rows.saturating_mul(width), rows, rows]
    }

    /// The order of tiles; `None` also where several blocks share the keys of a tile.
    pub(super) fn tile_order(&self, schedule: &Schedule) -> Option<TileOrder> {
        let Tiling { cta_k, cta_q, packs, split, .. } = schedule.tiling;
        let order = || tile_order(&self.problem, self.target, [cta_q, cta_k], packs, None);
        if split == 1 { order() } else { None }
    }

    pub(super) fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let Schedule { tiling, threads, registers, shared_bytes, blocks } = *schedule;
        let Tiling { cta_k, cta_q, hold_q, warp_q, packs, split, cluster } = tiling;
        // Cycles of an SM per warp, 16 keys and 16 of K: 1024 multiply-adds of 16 bits, or 128
        // bytes of shared memory, take one each.
        let bytes = self.element.bytes() as i64;
        let products = (warp_q * MMA_M * MMA_M * bytes / 2) as f64 / 1024.0;
        let of_q = if hold_q { 0 } else { warp_q * MMA_M / cta_k * MMA_M };
        let reads = ((MMA_M * MMA_M + of_q) * bytes) as f64 / 128.0;
        // All warps that share rows compute all of their scores.
        let AttentionShape { depth, width, .. } = self.problem.shape;
        let repeated = (depth * warps_v(&self.problem.shape) + width) as f64;
        let efficiency =
            products / (products + reads) * (depth + width).max(1) as f64 / repeated.max(1.0);
        let operands = if self.is_tf32() { Operands::Tf32 } else { Operands::Half };
        let tensor = TensorWork { operands, operations: 2.0, efficiency, block_clocks: 0.0 };
        let pack = if packs { self.problem.shape.group() } else { 1 };
        let block =
            Block { cta_q, cta_k, pack, blocks, threads, registers, shared_bytes, stages: 2 };
        let mut kernels = vec![work(&self.problem, block, MathPath::Tensor(tensor))];
        // A cluster barrier takes about as long as memory, twice.
        kernels[0].round_trips += if cluster > 1 { 2.0 } else { 0.0 };
        if tiling.needs_combine() {
            let bytes: f64 = self.partial_bytes(&tiling).iter().map(|bytes| *bytes as f64).sum();
            kernels[0].l2_bytes += bytes;
            kernels.push(KernelWork {
                blocks: self.combine_blocks() as u64,
                threads: COMBINE_THREADS as u32,
                registers: 40,
                shared_bytes: 0,
                // The partials are still in L2.
                dram_bytes: 0.0,
                l2_bytes: bytes,
                in_flight_bytes: (COMBINE_THREADS * 4 * split) as f64,
                round_trips: 2.0,
                lane_instructions: bytes,
                f64_instructions: 0.0,
                tensor: None,
            });
        }
        kernels
    }

    fn combine_blocks(&self) -> i64 {
        let AttentionShape { batches, heads, queries, .. } = self.problem.shape;
        let rows = batches.saturating_mul(heads).saturating_mul(queries);
        ceil_div(rows, COMBINE_THREADS / 32)
    }

    /// The attention kernel, and the combine kernel if the keys are split.
    pub(super) fn lowering(&self, schedule: &Schedule, name: &str) -> Lowering {
        let Schedule { tiling, threads, shared_bytes, blocks, .. } = *schedule;
        let passed: Vec<_> = self.problem.passed().collect();
        let (attention, functions) = attention_parameters(&self.problem, self.target, tiling.packs);
        let sm = mma_sm(self.target.arch);
        let names = self.names(sm, name, "attention/sm75_attention_mma.cu");
        let parameters = self.mma_parameters(
            schedule,
            self.problem_parameters(&tiling, &passed, tiling.packs, functions),
            attention,
        );
        let mut attention = self.kernel(names, &parameters, &passed);
        attention.launch.grid = self.grid(blocks);
        attention.launch.threads = threads as u32;
        attention.launch.shared_bytes = shared_bytes as u32;
        if !tiling.needs_combine() {
            return Lowering::from(attention);
        }
        let names = KernelNames {
            entry: "attention_combine",
            ..self.names("sm75", "combine", "attention/sm75_attention_combine.cu")
        };
        let parameters = CombineParameters {
            problem: self.problem_parameters(&tiling, &passed, false, BTreeSet::new()),
            o_type: ctype(self.problem.tensor("o").dtype),
            split: tiling.split,
            cluster: tiling.cluster,
            threads: COMBINE_THREADS,
        };
        let mut combine = self.kernel(names, &parameters, &passed);
        combine.launch.grid = self.grid(self.combine_blocks());
        combine.launch.threads = COMBINE_THREADS as u32;
        for kernel in [&mut attention, &mut combine] {
            kernel.launch.arguments.extend([0, 1, 2].map(Argument::Scratch));
        }
        let scratch = self.partial_bytes(&tiling).map(|bytes| bytes as u64).to_vec();
        Lowering { kernels: vec![attention, combine], scratch }
    }

    fn mma_parameters(
        &self,
        schedule: &Schedule,
        problem: ProblemParameters,
        attention: AttentionParameters,
    ) -> MmaParameters {
        let Schedule { tiling, shared_bytes, .. } = *schedule;
        let Tiling { cta_k, cta_q, hold_q, warp_q, split, cluster, .. } = tiling;
        let operand = if self.is_tf32() { "tf32" } else { self.element.name() };
        // Elements that a thread copies at once (`attention/tile.cuh`).
        let chunk = 16 / self.element.bytes() as i64;
        MmaParameters {
            problem,
            attention,
            softmax: self.softmax_parameters(warps_v(&self.problem.shape), split),
            mma: MmaInstruction::new(self.mma_k(), [operand; 2]).on(self.target.arch),
            mma_k: self.mma_k(),
            transposes: false,
            q_access: self.problem.access("q", chunk),
            k_access: self.problem.access("k", chunk),
            v_access: self.problem.access("v", chunk),
            narrow_kv: ["k", "v"].iter().any(|slot| self.narrow_type(slot).is_some()),
            narrow_q: self.narrow_type("q"),
            narrow_k: self.narrow_type("k"),
            narrow_v: self.narrow_type("v"),
            cta_q,
            cta_k,
            warp_q,
            hold_q,
            cluster,
            shared_bytes,
        }
    }

    fn problem_parameters(
        &self,
        tiling: &Tiling,
        passed: &[(&'static str, usize)],
        packs: bool,
        functions: BTreeSet<&'static str>,
    ) -> ProblemParameters {
        let mut parameters = problem_parameters(&self.problem, passed, packs, functions);
        if tiling.needs_combine() {
            parameters.scratch = vec!["float* partial", "float* partial_max", "float* partial_sum"];
        }
        parameters
    }

    fn grid(&self, blocks: i64) -> Grid {
        Grid::fixed(if self.problem.is_empty() { 0 } else { blocks as u32 })
    }

    /// Parameters of the online softmax, where `warps_v` warps share rows and `split` blocks keys.
    pub(super) fn softmax_parameters(&self, warps_v: i64, split: i64) -> SoftmaxParameters {
        let problem = &self.problem;
        let scale = problem.op.scale_of(problem.shape.depth);
        let scale = if problem.score.is_modified() { 1.0 } else { scale };
        let scale_log2 = scale * std::f64::consts::LOG2_E;
        let scale_log2_far = scale_log2.log2().floor().exp2();
        // Neither of the two makes the smallest row_max infinite.
        let least = if scale > 1.0 { 2.0 * scale_log2_far } else { 1.0 };
        let is_half = problem.tensor("o").dtype.bytes() == 2;
        SoftmaxParameters {
            element: ctype(self.element),
            tf32: self.is_tf32(),
            scale: literal(problem, scale),
            scale_log2: literal(problem, scale_log2),
            scale_log2_far: literal(problem, scale_log2_far),
            far_max: literal(problem, (FAR / scale).min(f32::MAX.into())),
            row_max_init: literal(problem, -f64::from(f32::MAX) / least),
            chunked_o: is_half,
            o_access: self.problem.access("o", if is_half { 8 } else { 2 }),
            warps_v,
            split,
        }
    }

    /// Names of an attention kernel.
    pub(super) fn names(&self, sm: &str, name: &str, template: &'static str) -> KernelNames {
        let stem = format!("{sm}_attention_{}_{name}", self.problem.tensor("o").dtype);
        KernelNames { stem, template, entry: "attention" }
    }

    /// A kernel with these tensors as parameters, without grid and threads.
    pub(super) fn kernel(
        &self,
        names: KernelNames,
        parameters: &impl Serialize,
        passed: &[(&'static str, usize)],
    ) -> KernelPlan {
        KernelPlan {
            spec: names.spec(self.target.arch, parameters),
            launch: LaunchPlan {
                grid: Grid::fixed(0),
                threads: 0,
                shared_bytes: 0,
                cooperative: false,
                arguments: arguments(self.problem.graph, passed.iter().map(|(_, at)| at)),
                maps: Vec::new(),
                numbers: numbers(&self.problem),
            },
        }
    }
}

/// Parameters of the online softmax (`attention/online_softmax.cuh`).
#[derive(Serialize)]
pub(super) struct SoftmaxParameters {
    element: &'static str,
    /// Whether the MMA's operands are tf32.
    tf32: bool,
    /// Scale of scores: as exponents of e, of 2, and of 2 for scores beyond `far_max`.
    scale: String,
    scale_log2: String,
    scale_log2_far: String,
    far_max: String,
    row_max_init: String,
    /// Whether O is stored in chunks of 8 elements, else of 2; bytes per access.
    chunked_o: bool,
    o_access: i64,
    /// Warps that share rows.
    warps_v: i64,
    split: i64,
}

#[derive(Serialize)]
struct MmaParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    attention: AttentionParameters,
    #[serde(flatten)]
    softmax: SoftmaxParameters,
    mma: MmaInstruction,
    mma_k: i64,
    transposes: bool,
    /// Bytes per access.
    q_access: i64,
    k_access: i64,
    v_access: i64,
    /// Whether K or V is narrower than the MMA's operands, and the types of those that are.
    narrow_kv: bool,
    narrow_q: Option<&'static str>,
    narrow_k: Option<&'static str>,
    narrow_v: Option<&'static str>,
    cta_q: i64,
    cta_k: i64,
    warp_q: i64,
    hold_q: bool,
    cluster: i64,
    shared_bytes: i64,
}

#[derive(Serialize)]
struct CombineParameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    o_type: &'static str,
    split: i64,
    cluster: i64,
    threads: i64,
}

/// Bytes per row of a tile in shared memory: whole swizzle atoms of 128, or one smaller atom.
pub(super) fn line_bytes(element: DType, elements: i64) -> i64 {
    match elements * element.bytes() as i64 {
        0..=32 if element != DType::F32 => 32,
        33..=64 if element != DType::F32 => 64,
        bytes => ceil_div(bytes.max(1), 128) * 128,
    }
}

/// Warps that share rows, each with its own columns of O.
fn warps_v(shape: &AttentionShape) -> i64 {
    ceil_div(shape.width, WIDTH_WARP_MAX).max(1)
}

/// Columns of V, padded to whole swizzle atoms per warp.
fn padded_width(shape: &AttentionShape) -> i64 {
    match warps_v(shape) {
        1 => shape.width,
        warps => ceil_div(shape.width, 64 * warps) * 64 * warps,
    }
}

impl Tiling {
    /// Whether the combine kernel is needed.
    fn needs_combine(&self) -> bool {
        self.split > 1 && self.cluster == 1
    }

    /// Estimated registers per thread: O, S, P of one MMA, Q.
    fn registers(self, shape: &AttentionShape, element: DType) -> i64 {
        let tiles = self.warp_q / MMA_M;
        let held = i64::from(self.hold_q) * ceil_div(shape.depth * element.bytes() as i64, 32) * 4;
        let width = ceil_div(padded_width(shape) / warps_v(shape), MMA_M) * MMA_M;
        let accumulators = (width + self.cta_k) / 2;
        tiles * (accumulators + held + REGISTERS_TILE) + REGISTERS_OTHER
    }
}
