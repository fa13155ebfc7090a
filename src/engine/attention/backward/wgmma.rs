//! Gradients of attention on Hopper's tensor cores by `wgmma`, fed by TMA (Shah et al. 2024,
//! "FlashAttention-3").
//!
//! A block has a tile of keys, 64 for each of two warpgroups, whose dK and dV stay in registers,
//! and iterates over the queries that attend to them. Rows of scores are keys, as in
//! `attention_backward_mma`: P^T is an operand of the next MMA in registers. dS goes through shared
//! memory, for dK and for dQ, of which each warpgroup has a half; a warp of its own adds that to dQ
//! in workspace.

use std::collections::BTreeSet;

use kiln_machine::Operands;
use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_SM, ceil_div};
use crate::engine::attention::backward::delta::delta;
use crate::engine::attention::backward::dq_accum::{
    AddedDq, DqAccum, KeyBlocks, ORDERED, UNORDERED, workspace_bytes,
};
use crate::engine::attention::backward::kernels::{
    DELTA, Launch, Tile, delta_work, kernel, names, simt_work,
};
use crate::engine::attention::backward::operands::{
    OPERAND_TILE, check_optional, optional, optional_work, passed,
};
use crate::engine::attention::backward::parameters::{
    GradientParameters, gradient_parameters, key_line,
};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::parameters::literal;
use crate::engine::attention::schedule::MMA_M;
use crate::engine::attention::score::Source;
use crate::engine::attention::tma_operand::TmaOperand;
use crate::engine::attention::work::{GAIN_MIN, instructions_score};
use crate::engine::instruction::{
    WARPGROUP, WGMMA_M, WgmmaInstruction, WgmmaParameters, cycles, expect_wgmma,
};
use crate::engine::signature::ctype;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{
    BehaviorNote, Engine, KernelWork, Knob, Notes, NumericalNote, Supported, TensorWork,
};
use crate::error::{Error, Result};
use crate::graph::{AttentionShape, CanonicalGraph, MatmulMath};
use crate::kernel::{Argument, KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "attention_backward_wgmma";

/// Keys of a block: two consumer warpgroups, of which three would leave each too few registers.
const CTA_K: i64 = 128;

/// Consumer warpgroups.
const CONSUMERS: i64 = CTA_K / WGMMA_M;

/// Threads of a block, a producer warpgroup among them.
const THREADS: i64 = (CONSUMERS + 1) * WARPGROUP;

/// Steps whose Q and dO are in shared memory.
const STAGES: i64 = 2;

/// Maximum head dimension: dK, dV, S and dP of 64 keys are in the registers of a warpgroup.
const ELEMENTS_MAX: i64 = 128;

/// Elements of a line of a swizzle atom.
const ATOM: i64 = 64;

/// Queries whose scores a warp turns into gradients at once: a word has a bit of dropout for each.
const WARP_Q_MAX: i64 = 64;

/// Registers of a producer and of a consumer thread after `setmaxnreg`; multiples of 8 that add up
/// to those of the launch.
const REGISTERS: [i64; 2] = [40, 232];

/// Bytes of lse, delta and the bounds of the keys of a query.
const QUERY_BYTES: i64 = 16;

/// FP32 lanes per SM.
const LANES: f64 = 128.0;

/// The engine `attention_backward_wgmma`: gradients on Hopper's `wgmma`.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct BackwardWgmmaEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Wgmma<'a> {
    problem: BackwardProblem<'a>,
    target: &'a Target,
    element: DType,
    /// Q, K, V and dO.
    operands: [TmaOperand; 4],
}

settings! { struct Settings { dq } }

impl Engine for BackwardWgmmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let unsupported = |text: String| Err(Error::not_supported(text));
        let problem = BackwardProblem::of(graph, target.arch.capability)?;
        expect_wgmma(target.arch)?;
        let forward = &problem.forward;
        let types = ["q", "k", "v", "do"].map(|slot| forward.tensor(slot).dtype);
        let [q, k, v, d_o] = types;
        let is_half = matches!(q, DType::F16 | DType::Bf16);
        if !is_half || types.iter().any(|dtype| *dtype != q) || forward.op.math == MatmulMath::F64 {
            return unsupported(format!(
                "q is {q}, k is {k}, v is {v} and do is {d_o} in math {}: warpgroups take f16 or \
                 bf16 for all of them in f32 or tf32",
                forward.op.math.name()
            ));
        }
        let AttentionShape { depth, width, .. } = forward.shape;
        if depth.max(width) > ELEMENTS_MAX {
            return unsupported(format!(
                "heads of {depth} and {width} elements, more than {ELEMENTS_MAX}"
            ));
        }
        let [q_map, k_map, v_map, do_map] =
            ["q", "k", "v", "do"].map(|slot| TmaOperand::of(forward, slot));
        let operands = [q_map?, k_map?, v_map?, do_map?];
        let wgmma = Wgmma { problem, target, element: q, operands };
        Ok(Box::new(Tuned::of(wgmma, [Settings { dq: ORDERED }])?))
    }
}

impl Wgmma<'_> {
    /// Elements of a head of either kind, in whole MMAs.
    fn head(&self) -> i64 {
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        ceil_div(depth.max(width), MMA_M) * MMA_M
    }

    /// The same in shared memory: a swizzle atom for each warpgroup that shares dQ of a query.
    fn head_padded(&self) -> i64 {
        ATOM * CTA_K / self.step_q()
    }

    /// Columns of dQ, in whole MMAs.
    fn dq_head(&self) -> i64 {
        ceil_div(self.problem.forward.shape.depth, MMA_M) * MMA_M
    }

    /// Queries of a step: scores of as many as registers have room for beside dK and dV, and a
    /// score program.
    fn step_q(&self) -> i64 {
        let fits = self.head() <= ATOM && !self.problem.forward.score.is_modified();
        if fits { CTA_K } else { CTA_K / 2 }
    }

    /// Columns of dQ of a warpgroup, which has 64 queries of a step: all, or a swizzle atom.
    fn dq_columns(&self) -> i64 {
        if self.step_q() == CTA_K { self.dq_head() } else { ATOM }
    }

    fn accum(&self, settings: Settings) -> DqAccum {
        DqAccum::of(self.target, self.step_q(), settings.dq == ORDERED)
    }

    fn blocks(&self) -> i64 {
        self.problem.key_tiles(CTA_K)
    }

    /// Whether a step may have queries beyond a length, and the tile keys that are masked for all
    /// queries: those hold anything, and are multiplied by 0.
    fn clears(&self) -> [bool; 2] {
        let op = self.problem.forward.op;
        let of_queries = op.query_lengths || op.queries_max.is_some();
        let of_keys = op.key_lengths || op.keys_max.is_some();
        [of_queries, of_keys || op.band.left.or(op.band.right).is_some()]
    }

    fn shared_bytes(&self, settings: Settings) -> i64 {
        let (step_q, bytes) = (self.step_q(), self.element.bytes() as i64);
        let tiles = 2 * (CTA_K + STAGES * step_q) * self.head_padded() + 2 * CTA_K * step_q;
        let flag = if self.problem.forward.is_modified() { 0 } else { 4 };
        let of_steps = step_q * self.dq_head() * 4 + STAGES * (step_q * QUERY_BYTES + flag);
        let masked = i64::from(self.clears().contains(&true));
        let ticket = i64::from(settings.dq == ORDERED);
        tiles * bytes + of_steps + (1 + 2 * STAGES + 2 + 2 + masked + ticket) * 8
    }

    /// GEMMs as templates name them: scores, dV, dK and dQ.
    fn products(&self) -> [WgmmaParameters; 4] {
        let (head, step_q) = (self.head(), self.step_q());
        let product = |n: i64, k: i64, a_in_registers: bool, k_major: [bool; 2]| {
            let instruction = WgmmaInstruction {
                n,
                bytes: self.element.bytes() as i64,
                operands: [self.element.name(); 2],
                a_in_registers,
                k_major,
                steps: k / MMA_M,
            };
            instruction.parameters()
        };
        [
            product(step_q, head, false, [true, true]),
            product(head, step_q, true, [true, false]),
            product(head, step_q, false, [true, false]).named("wgmma_dk"),
            product(self.dq_columns(), CTA_K, false, [false, false]).named("wgmma_dq"),
        ]
    }

    /// The kernel of dQ, dK and dV.
    fn key_kernel(&self, settings: Settings) -> KernelPlan {
        let problem = &self.problem;
        let accum = self.accum(settings);
        let workspace = [DELTA, accum.workspace()].concat();
        let mut passed = passed(problem, &["dk", "dv"]);
        passed.retain(|(slot, _)| !["q", "k", "v", "do"].contains(slot));
        let line = key_line(problem, true);
        let gradient = gradient_parameters(problem, &passed, Source::Score, line, &workspace);
        let [q_batch, k_batch] = gradient.batches();
        let [q, k, v, d_o] = &self.operands;
        let [clears_q, clears_k] = self.clears();
        let shared_bytes = self.shared_bytes(settings);
        let parameters = Parameters {
            element: ctype(self.element),
            scale: literal(
                &problem.forward,
                problem.forward.op.scale_of(problem.forward.shape.depth),
            ),
            products: self.products(),
            loaded_ranks: self.operands.iter().map(|of| of.tensor.rank()).collect(),
            stored_ranks: [],
            cluster: 1,
            ping_pong: false,
            cta_k: CTA_K,
            step_q: self.step_q(),
            warp_q_max: WARP_Q_MAX,
            stages: STAGES,
            head: self.head(),
            head_padded: self.head_padded(),
            dq_columns: self.dq_columns(),
            q_coordinates: q.arguments("head", q_batch),
            do_coordinates: d_o.arguments("head", q_batch),
            k_coordinates: k.arguments("kv_head", k_batch),
            v_coordinates: v.arguments("kv_head", k_batch),
            clears_q,
            clears_k,
            dk_access: problem.forward.access("dk", 2),
            dv_access: problem.forward.access("dv", 2),
            accum: accum.added(problem, self.target),
            producer_registers: REGISTERS[0],
            consumer_registers: REGISTERS[1],
            shared_bytes,
            gradient,
        };
        let template = "attention/sm90_attention_backward_wgmma.cu";
        let names = names(problem, "sm90", "wgmma", template, "attention_backward_keys");
        let launch = Launch { blocks: self.blocks(), threads: THREADS, shared_bytes };
        let mut plan =
            kernel(problem, self.target, names, &parameters, &passed, &workspace, launch);
        let rows = [self.step_q(), CTA_K, CTA_K, self.step_q()];
        let maps = self.operands.iter().zip(rows);
        plan.launch.maps = maps.map(|(operand, rows)| operand.map(rows)).collect();
        plan.launch.arguments.splice(0..0, [0, 1, 2, 3].map(Argument::Map));
        plan
    }

    /// Clocks of a step: of its MMAs, and of all that it takes. An m64 MMA reads its operands from
    /// shared memory at 128 bytes per clock, and TMA, dS and dQ pass through it. While one
    /// warpgroup turns scores into gradients the MMAs of the other run.
    fn step_clocks(&self) -> [f64; 2] {
        let (head, step_q) = (self.head(), self.step_q());
        let steps = |k: i64| (k / MMA_M * CONSUMERS) as f64;
        let columns = self.dq_columns();
        let of_scores = 2.0 * steps(head) * cycles([WGMMA_M, step_q]);
        let of_gradients = 2.0 * steps(step_q) * cycles([WGMMA_M, head]);
        let of_dq = steps(CTA_K) * cycles([WGMMA_M, columns]);
        let products = of_scores + of_gradients + of_dq;
        let read = 2.0 * steps(head) * (WGMMA_M + step_q) as f64
            + steps(step_q) * (WGMMA_M + 2 * head) as f64
            + steps(CTA_K) * (WGMMA_M + columns) as f64;
        let moved = 2 * step_q * self.head_padded() * 2 + CTA_K * step_q * 2;
        let of_dq = 2 * step_q * self.dq_head() * 4;
        let shared = (read * 32.0 + (moved + of_dq) as f64) / 128.0;
        let scores = (CTA_K * step_q) as f64 * self.instructions_score() / LANES;
        [products, products.max(shared) + scores / CONSUMERS as f64]
    }

    /// Instructions of a score, of P and dS.
    fn instructions_score(&self) -> f64 {
        2.0 + instructions_score(&self.problem.forward)
    }

    /// Work of the kernel of dQ, dK and dV.
    fn key_work(&self, settings: Settings) -> KernelWork {
        let forward = &self.problem.forward;
        let AttentionShape { batches, heads, .. } = forward.shape;
        let (step_q, head) = (self.step_q(), self.head());
        let tile = Tile { cta_q: step_q, cta_k: CTA_K };
        let steps = (batches * heads) as f64 * forward.tiles(step_q, CTA_K);
        let scores = steps * (step_q * CTA_K) as f64;
        let [products, clocks] = self.step_clocks();
        let base = simt_work(&self.problem, tile, self.blocks(), 0, true);
        let step_bytes = (step_q * 2 * head) as f64 * self.element.bytes() as f64;
        let work = KernelWork {
            threads: THREADS as u32,
            registers: (REGISTERS_SM / THREADS / 8 * 8) as u32,
            shared_bytes: self.shared_bytes(settings) as u32,
            l2_bytes: base.dram_bytes + steps * step_bytes,
            in_flight_bytes: step_bytes * STAGES as f64,
            // K and V, then Q and dO of every step.
            round_trips: 1.0 + steps / (self.blocks() as f64).max(1.0),
            lane_instructions: scores * self.instructions_score(),
            f64_instructions: 0.0,
            tensor: Some(TensorWork {
                operands: Operands::Half,
                operations: 2.0 * scores * (4 * head + self.dq_columns() * CTA_K / step_q) as f64,
                efficiency: products / clocks,
                block_clocks: 0.0,
            }),
            ..base
        };
        let blocks = KeyBlocks {
            cta_k: CTA_K,
            count: self.blocks(),
            resident: 1.0,
            steps,
            step_clocks: clocks,
        };
        self.accum(settings).added_work(&self.problem, self.target, &blocks, work)
    }
}

impl Tunable<1> for Wgmma<'_> {
    const KNOBS: [&'static str; 1] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Settings;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 1] {
        let dq = "CTAs add to dQ 1: in order, 2: in any order";
        [Knob { name: "dq", about: dq, values: vec![ORDERED, UNORDERED] }]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        let bytes = self.shared_bytes(settings);
        let available = i64::from(self.target.shared_block_bytes_max);
        if bytes > available {
            return Err(format!("needs {bytes} bytes of shared memory, a block has {available}"));
        }
        let blocks = self.blocks();
        if blocks > GRID_MAX {
            return Err(format!("needs {blocks} blocks, more than a grid has"));
        }
        self.accum(settings).check(&self.problem)?;
        check_optional(&self.problem, OPERAND_TILE)?;
        Ok(settings)
    }

    /// The way of dQ that repeats bit by bit.
    fn best(&self) -> Settings {
        Settings { dq: ORDERED }
    }

    fn reasons(&self) -> Vec<String> {
        vec![format!("dq={ORDERED}: results repeat bit by bit")]
    }

    fn smaller(&self, _settings: Settings) -> Vec<Settings> {
        Vec::new()
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn pays(&self) -> bool {
        let AttentionShape { queries, keys, .. } = self.problem.forward.shape;
        queries.min(keys) >= WGMMA_M
    }

    fn notes(&self, settings: Settings) -> Notes {
        let any_order = (settings.dq == UNORDERED).then_some(NumericalNote::Nondeterministic);
        Notes {
            numerical: [NumericalNote::TensorCore].into_iter().chain(any_order).collect(),
            behavior: vec![BehaviorNote::RuntimeCompilation, BehaviorNote::Workspace],
        }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let accum = self.accum(*settings);
        let mut kernels = vec![
            delta_work(&self.problem),
            self.key_work(*settings),
            accum.convert_work(&self.problem),
        ];
        kernels.extend(optional_work(&self.problem, self.target, OPERAND_TILE));
        kernels
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let accum = self.accum(*settings);
        let mut kernels = vec![
            delta(&self.problem, self.target, Some(accum)),
            self.key_kernel(*settings),
            accum.convert_kernel(&self.problem, self.target),
        ];
        kernels.extend(optional(&self.problem, self.target, OPERAND_TILE));
        Lowering { kernels, scratch: workspace_bytes(&self.problem, self.target, Some(accum)) }
    }
}

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    gradient: GradientParameters,
    element: &'static str,
    scale: String,
    products: [WgmmaParameters; 4],
    /// Ranks of tensors that TMA loads, and stores.
    loaded_ranks: BTreeSet<usize>,
    stored_ranks: [usize; 0],
    cluster: i64,
    ping_pong: bool,
    cta_k: i64,
    step_q: i64,
    /// Queries whose scores a warp turns into gradients at once, at most.
    warp_q_max: i64,
    stages: i64,
    head: i64,
    head_padded: i64,
    /// Columns of dQ of a warpgroup.
    dq_columns: i64,
    /// Coordinates of boxes after that of the row.
    q_coordinates: String,
    do_coordinates: String,
    k_coordinates: String,
    v_coordinates: String,
    /// Whether a step may have queries beyond a length, and the tile keys masked for all.
    clears_q: bool,
    clears_k: bool,
    dk_access: i64,
    dv_access: i64,
    accum: AddedDq,
    /// Registers of a thread.
    producer_registers: i64,
    consumer_registers: i64,
    shared_bytes: i64,
}
