//! Gradients of attention on tensor cores by `mma.sync`, for 16-bit floats from sm_80 (Dao 2023,
//! "FlashAttention-2").
//!
//! A block of the kernel of dK and dV has a tile of keys, rows of S^T: P^T and dS^T are operands of
//! the next MMA in the registers that they are computed in. One of the kernel of dQ has a tile of
//! queries. The scores are computed in both: 7 GEMMs of tiles, and no sum of blocks.

use kiln_machine::Operands;
use serde::Serialize;

use crate::dtype::DType;
use crate::engine::access::{GRID_MAX, REGISTERS_THREAD_MAX, ceil_div};
use crate::engine::attention::backward::kernels::{
    Launch, Tile, check_optional, delta, delta_work, kernel, names, optional, optional_work,
    passed, simt_work,
};
use crate::engine::attention::backward::parameters::{GradientParameters, gradient_parameters};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::parameters::literal;
use crate::engine::attention::schedule::{MMA_M, line_bytes};
use crate::engine::attention::score::Source;
use crate::engine::attention::work::{GAIN_MIN, instructions_score};
use crate::engine::header::KernelNames;
use crate::engine::instruction::MmaInstruction;
use crate::engine::signature::ctype;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{
    BehaviorNote, Engine, KernelWork, Knob, Notes, NumericalNote, Supported, TensorWork,
};
use crate::error::{Error, Result};
use crate::graph::{AttentionShape, CanonicalGraph, MatmulMath};
use crate::kernel::{KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "attention_backward_mma";

/// The first architecture with `cp.async` and these MMAs.
const CAPABILITY_MIN: u16 = 80;

const THREADS_MAX: i64 = 256;

/// Maximum elements of a head: dK and dV of a warp's keys are in registers.
const ELEMENTS_MAX: i64 = 128;

/// K of one MMA: 32 bytes.
const MMA_K: i64 = 16;

/// Registers for addresses, coordinates and fragments, by NVRTC's report.
const REGISTERS_OTHER: i64 = 64;

/// Bytes of lse, delta and the bounds of the keys of a query.
const QUERY_BYTES: i64 = 16;

/// The tile of scores of the kernels on FP32 cores.
const OPERAND_TILE: Tile = Tile { cta_q: 32, cta_k: 32 };

/// The settings with the lowest requirements.
const LEAST: Settings = Settings { cta_k: 16, cta_q: 16, step_k: 16, step_q: 16 };

/// Rows of a block and of a step in the order in which they are tried: larger ones read what they
/// iterate over less often.
const TILES: [[i64; 2]; 7] =
    [[128, 64], [128, 32], [64, 64], [64, 32], [64, 16], [32, 16], [16, 16]];

/// The engine `attention_backward_mma`: gradients on `mma.sync` tensor cores.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct BackwardMmaEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Mma<'a> {
    problem: BackwardProblem<'a>,
    target: &'a Target,
    element: DType,
}

impl Engine for BackwardMmaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let unsupported = |text: String| Err(Error::not_supported(text));
        let capability = target.arch.capability;
        let problem = BackwardProblem::of(graph, capability)?;
        if capability < CAPABILITY_MIN {
            return unsupported(format!("sm_{capability} is older than sm_{CAPABILITY_MIN}"));
        }
        let forward = &problem.forward;
        let types = ["q", "k", "v", "do"].map(|slot| forward.tensor(slot).dtype);
        let [q, k, v, d_o] = types;
        let same = types.iter().all(|dtype| *dtype == q);
        if forward.op.math == MatmulMath::F64 || !same || !matches!(q, DType::F16 | DType::Bf16) {
            return unsupported(format!(
                "q is {q}, k is {k}, v is {v} and do is {d_o} in math {}: tensor cores take f16 \
                 or bf16 for all of them in f32 or tf32",
                forward.op.math.name()
            ));
        }
        let AttentionShape { depth, width, .. } = forward.shape;
        if depth.max(width) > ELEMENTS_MAX {
            return unsupported(format!(
                "heads of {depth} and {width} elements, more than {ELEMENTS_MAX}"
            ));
        }
        Ok(Box::new(Tuned::of(Mma { problem, target, element: q }, [LEAST])?))
    }
}

/// A kernel's tile: rows of a block, rows of a step of the other operand, and what they take.
#[derive(Debug, Clone, Copy)]
struct Half {
    rows: i64,
    step: i64,
    registers: i64,
    shared_bytes: i64,
    blocks: i64,
}

impl Half {
    fn threads(&self) -> i64 {
        self.rows / MMA_M * 32
    }
}

/// Everything derived from legal settings.
struct Schedule {
    of_keys: Half,
    of_queries: Half,
}

impl Mma<'_> {
    /// Head dimensions in whole MMAs.
    fn padded(&self) -> [i64; 2] {
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        [depth, width].map(|elements| ceil_div(elements, MMA_K) * MMA_K)
    }

    /// Registers for what a score is modified with and for random numbers. Programs of the scores
    /// of a step overlap: 17 registers in steps of 32, more than 60 in steps of 64.
    fn score_registers(&self, step: i64) -> i64 {
        match self.problem.forward.is_modified() {
            true => step * step / 64,
            false => 0,
        }
    }

    /// Bytes of tiles of the two operands of this many rows.
    fn tile_bytes(&self, rows: i64) -> i64 {
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        rows * (line_bytes(self.element, depth) + line_bytes(self.element, width))
    }

    fn of_keys(&self, cta_k: i64, step_q: i64) -> Half {
        let [depth, width] = self.padded();
        Half {
            rows: cta_k,
            step: step_q,
            registers: (depth + width) / 2
                + step_q
                + REGISTERS_OTHER
                + self.score_registers(step_q),
            shared_bytes: self.tile_bytes(cta_k)
                + 2 * (self.tile_bytes(step_q) + step_q * QUERY_BYTES),
            blocks: self.problem.key_tiles(cta_k),
        }
    }

    fn of_queries(&self, cta_q: i64, step_k: i64) -> Half {
        let [depth, _] = self.padded();
        Half {
            rows: cta_q,
            step: step_k,
            registers: depth / 2 + step_k + REGISTERS_OTHER + self.score_registers(step_k),
            shared_bytes: self.tile_bytes(cta_q) + 2 * self.tile_bytes(step_k),
            blocks: self.problem.forward.blocks(cta_q),
        }
    }

    /// # Errors
    /// The limit of the device that a kernel exceeds.
    fn check(&self, half: &Half) -> Result<(), String> {
        let threads = half.threads();
        if threads > THREADS_MAX || threads < half.step {
            return Err(format!(
                "needs {threads} threads for steps of {}, a block has up to {THREADS_MAX}",
                half.step
            ));
        }
        let available = i64::from(self.target.shared_block_bytes_max);
        let bytes = half.shared_bytes;
        if bytes > available {
            return Err(format!("needs {bytes} bytes of shared memory, a block has {available}"));
        }
        if half.registers > REGISTERS_THREAD_MAX {
            return Err(format!(
                "needs about {} registers, a thread has {REGISTERS_THREAD_MAX}",
                half.registers
            ));
        }
        match half.blocks > GRID_MAX {
            true => Err(format!("needs {} blocks, more than a grid has", half.blocks)),
            false => Ok(()),
        }
    }

    /// The first tile that fits and leaves no SM idle.
    fn first(&self, half: impl Fn(i64, i64) -> Half) -> Half {
        let all: Vec<Half> = TILES
            .into_iter()
            .map(|[rows, step]| half(rows, step))
            .filter(|half| self.check(half).is_ok())
            .collect();
        let busy = |half: &&Half| half.blocks >= i64::from(self.target.sm_count);
        *all.iter().find(busy).or(all.last()).expect("the least tile fits")
    }

    /// Parameters of a kernel on tensor cores that computes what `line` says.
    fn parameters(
        &self,
        passed: &[(&'static str, usize)],
        half: &Half,
        line: String,
    ) -> MmaParameters {
        let forward = &self.problem.forward;
        let access = |slot: &str| forward.access(slot, 8);
        MmaParameters {
            gradient: gradient_parameters(&self.problem, passed, Source::Score, line),
            mma: MmaInstruction::new(MMA_K, [self.element.name(); 2]),
            element: ctype(self.element),
            scale: literal(forward, forward.op.scale_of(forward.shape.depth)),
            transposes: false,
            tf32: false,
            narrow_kv: false,
            narrow_q: None,
            narrow_k: None,
            narrow_v: None,
            q_access: access("q"),
            k_access: access("k"),
            v_access: access("v"),
            do_access: access("do"),
            shared_bytes: half.shared_bytes,
        }
    }

    /// The kernel of dK and dV.
    fn key_kernel(&self, half: &Half) -> KernelPlan {
        let problem = &self.problem;
        let AttentionShape { heads, kv_heads, .. } = problem.forward.shape;
        let of_group = if heads == kv_heads { "i" } else { "i and the heads h of a group" };
        let line = format!(
            "dk[b, h, j] = sum over {of_group} of ds[b, h, i, j] q[b, h, i], dv[b, h, j] = that of \
             p[b, h, i, j] do[b, h, i]"
        );
        let passed = passed(problem, &["dk", "dv"]);
        let parameters = KeyParameters {
            mma: self.parameters(&passed, half, line),
            cta_k: half.rows,
            step_q: half.step,
            dk_access: problem.forward.access("dk", 2),
            dv_access: problem.forward.access("dv", 2),
        };
        let template = "attention/sm80_attention_backward_keys.cu";
        let names = names(problem, "sm80", "mma_keys", template, "attention_backward_keys");
        self.kernel(names, &parameters, &passed, half)
    }

    /// The kernel of dQ.
    fn query_kernel(&self, half: &Half) -> KernelPlan {
        let problem = &self.problem;
        let line = "dq[b, h, i] = sum over j of ds[b, h, i, j] k[b, h, j]".to_owned();
        let passed = passed(problem, &["dq"]);
        let parameters = QueryParameters {
            mma: self.parameters(&passed, half, line),
            cta_q: half.rows,
            step_k: half.step,
            dq_access: problem.forward.access("dq", 2),
        };
        let template = "attention/sm80_attention_backward_queries.cu";
        let names = names(problem, "sm80", "mma_queries", template, "attention_backward_queries");
        self.kernel(names, &parameters, &passed, half)
    }

    fn kernel(
        &self,
        names: KernelNames,
        parameters: &impl Serialize,
        passed: &[(&'static str, usize)],
        half: &Half,
    ) -> KernelPlan {
        let launch = Launch {
            blocks: half.blocks,
            threads: half.threads(),
            shared_bytes: half.shared_bytes,
        };
        kernel(&self.problem, self.target, names, parameters, passed, launch)
    }

    /// Work of a kernel of this many products of tiles.
    fn work_of(&self, half: &Half, products: i64, keys_own: bool) -> KernelWork {
        let AttentionShape { batches, heads, .. } = self.problem.forward.shape;
        let (cta_q, cta_k) = if keys_own { (half.step, half.rows) } else { (half.rows, half.step) };
        let tiles = (batches * heads) as f64 * self.problem.forward.tiles(cta_q, cta_k);
        let scores = tiles * (cta_q * cta_k) as f64;
        let [depth, width] = self.padded();
        let operations = scores * (products * (depth + width)) as f64;
        let tile = Tile { cta_q, cta_k };
        let base = simt_work(&self.problem, tile, half.blocks, products, keys_own);
        // A step reads its tiles for the block, and 16 rows of a warp read them twice.
        let efficiency = 0.5;
        KernelWork {
            threads: half.threads() as u32,
            registers: half.registers as u32,
            shared_bytes: half.shared_bytes as u32,
            l2_bytes: base.dram_bytes + tiles * self.tile_bytes(half.step) as f64,
            in_flight_bytes: self.tile_bytes(half.step) as f64,
            lane_instructions: scores * (2.0 + instructions_score(&self.problem.forward)),
            f64_instructions: 0.0,
            tensor: Some(TensorWork { operands: Operands::Half, operations, efficiency }),
            ..base
        }
    }
}

impl Tunable<4> for Mma<'_> {
    const KNOBS: [&'static str; 4] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Schedule;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 4] {
        let (sizes, steps) = (vec![16, 32, 64, 128], vec![16, 32, 64]);
        let step_k = "keys of a step of dQ; changes the order of sums";
        let step_q = "queries of a step of dK and dV; changes the order of sums";
        [
            Knob { name: "cta_k", about: "keys of a CTA of dK and dV", values: sizes.clone() },
            Knob { name: "cta_q", about: "queries of a CTA of dQ", values: sizes },
            Knob { name: "step_k", about: step_k, values: steps.clone() },
            Knob { name: "step_q", about: step_q, values: steps },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let Settings { cta_k, cta_q, step_k, step_q } = settings;
        let (of_keys, of_queries) = (self.of_keys(cta_k, step_q), self.of_queries(cta_q, step_k));
        self.check(&of_keys)?;
        self.check(&of_queries)?;
        check_optional(&self.problem, OPERAND_TILE)?;
        Ok(Schedule { of_keys, of_queries })
    }

    /// The largest legal tiles that leave no SM idle.
    fn best(&self) -> Settings {
        let of_keys = self.first(|rows, step| self.of_keys(rows, step));
        let of_queries = self.first(|rows, step| self.of_queries(rows, step));
        Settings {
            cta_k: of_keys.rows,
            cta_q: of_queries.rows,
            step_k: of_queries.step,
            step_q: of_keys.step,
        }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { cta_k, cta_q, step_k, step_q } = self.best();
        let sm_count = self.target.sm_count;
        let blocks = [self.of_keys(cta_k, step_q).blocks, self.of_queries(cta_q, step_k).blocks];
        let [of_keys, of_queries] = blocks;
        let AttentionShape { depth, width, .. } = self.problem.forward.shape;
        vec![
            format!("cta_k={cta_k}: {of_keys} blocks of keys for {sm_count} SMs"),
            format!("cta_q={cta_q}: {of_queries} blocks of queries for {sm_count} SMs"),
            format!("step_k={step_k}: scores and dQ of {depth} elements fit in registers"),
            format!("step_q={step_q}: scores, dK and dV of {depth} and {width} elements fit"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { cta_k, cta_q, step_k, step_q } = settings;
        vec![
            Settings { step_q: step_q / 2, ..settings },
            Settings { step_k: step_k / 2, ..settings },
            Settings { cta_k: cta_k / 2, ..settings },
            Settings { cta_q: cta_q / 2, ..settings },
        ]
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes {
            numerical: vec![NumericalNote::TensorCore],
            behavior: vec![BehaviorNote::RuntimeCompilation],
        }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        let mut kernels = vec![
            delta_work(&self.problem),
            self.work_of(&schedule.of_queries, 3, false),
            self.work_of(&schedule.of_keys, 4, true),
        ];
        kernels.extend(optional_work(&self.problem, OPERAND_TILE));
        kernels
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let mut kernels = vec![
            delta(&self.problem, self.target),
            self.query_kernel(&schedule.of_queries),
            self.key_kernel(&schedule.of_keys),
        ];
        kernels.extend(optional(&self.problem, self.target, OPERAND_TILE));
        let delta = self.problem.rows().saturating_mul(self.problem.accumulator_bytes());
        Lowering { kernels, scratch: vec![delta as u64] }
    }
}

settings! { struct Settings { cta_k, cta_q, step_k, step_q } }

/// Parameters of a kernel on tensor cores (`attention/tile.cuh`, `attention/backward_mma.cuh`).
#[derive(Serialize)]
struct MmaParameters {
    #[serde(flatten)]
    gradient: GradientParameters,
    mma: MmaInstruction,
    element: &'static str,
    scale: String,
    transposes: bool,
    tf32: bool,
    narrow_kv: bool,
    narrow_q: Option<&'static str>,
    narrow_k: Option<&'static str>,
    narrow_v: Option<&'static str>,
    /// Bytes per access.
    q_access: i64,
    k_access: i64,
    v_access: i64,
    do_access: i64,
    shared_bytes: i64,
}

#[derive(Serialize)]
struct KeyParameters {
    #[serde(flatten)]
    mma: MmaParameters,
    cta_k: i64,
    step_q: i64,
    dk_access: i64,
    dv_access: i64,
}

#[derive(Serialize)]
struct QueryParameters {
    #[serde(flatten)]
    mma: MmaParameters,
    cta_q: i64,
    step_k: i64,
    dq_access: i64,
}
