//! Attention on the FP32 cores, for every type and architecture.

use serde::Serialize;

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::attention::parameters::{
    AttentionParameters, ProblemParameters, attention_parameters, literal, numbers,
    problem_parameters,
};
use crate::engine::attention::problem::Problem;
use crate::engine::attention::work::{Block, GAIN_MIN, MathPath, work};
use crate::engine::header::KernelNames;
use crate::engine::signature::arguments;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::{AttentionShape, CanonicalGraph};
use crate::kernel::{Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "attention_simt";

const THREADS: i64 = 128;

/// Threads per row of scores, and rows of threads per block.
const LANES: i64 = 16;
const LINES: i64 = THREADS / LANES;

/// Maximum number of accumulator and score words per thread.
const WORDS_MAX: i64 = 128;

/// Accumulator words per thread beyond which a smaller tile is preferred: fewer than four blocks
/// would fit an SM.
const WORDS_GOOD: i64 = 64;

/// Maximum elements per slice of a head: the smallest tile fits on every architecture, in f64 too.
const SLICE_MAX: i64 = 256;

/// The settings with the lowest requirements.
const LEAST: Settings = Settings { cta_k: 16, cta_q: 8 };

/// The engine `attention_simt`: FMA units instead of tensor cores, for every type and architecture.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct SimtEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Simt<'a> {
    problem: Problem<'a>,
    target: &'a Target,
    /// Slices of heads that are too long; `None` if heads are not sliced.
    slices: Option<Slices>,
}

/// Elements of Q and K that are loaded at a time, and columns of O per block.
#[derive(Debug, Clone, Copy, Serialize)]
struct Slices {
    depth: i64,
    width: i64,
}

impl Slices {
    fn of(shape: &AttentionShape) -> Slices {
        Slices { depth: shape.depth.min(SLICE_MAX), width: shape.width.min(SLICE_MAX) }
    }
}

impl Simt<'_> {
    /// Elements and columns per block.
    fn held(&self) -> Slices {
        let AttentionShape { depth, width, .. } = self.problem.shape;
        self.slices.unwrap_or(Slices { depth, width })
    }

    /// Accumulator and score words per thread.
    fn words(&self, Settings { cta_k, cta_q }: Settings) -> i64 {
        let columns = ceil_div(self.held().width, LANES) + cta_k / LANES;
        cta_q / LINES * columns * if self.problem.is_double() { 2 } else { 1 }
    }
}

impl Engine for SimtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = Problem::of(graph, target.arch.capability)?;
        let whole = Simt { problem, target, slices: None };
        let fits = whole.schedule(LEAST).is_ok();
        let slices = if fits { None } else { Some(Slices::of(&whole.problem.shape)) };
        Ok(Box::new(Tuned::of(Simt { slices, ..whole }, [LEAST])?))
    }
}

impl Tunable<2> for Simt<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Schedule;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let (keys, queries) = (vec![16, 32, 64], vec![8, 16, 32, 64]);
        [
            Knob {
                name: "cta_k",
                about: "keys of a kv step; changes the order of sums",
                values: keys,
            },
            Knob { name: "cta_q", about: "queries of a CTA", values: queries },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let Slices { depth, width } = self.held();
        let Settings { cta_k, cta_q } = settings;
        let q_line = depth | 1;
        let kv_line = depth.max(width) | 1;
        let p_line = cta_k / 32 * 32 + 16;
        let elements = cta_q * q_line + cta_k * kv_line + cta_q * p_line;
        let shared_bytes = elements * if self.problem.is_double() { 8 } else { 4 };
        let available = i64::from(self.target.shared_block_bytes_max);
        if shared_bytes > available {
            return Err(format!(
                "needs {shared_bytes} bytes of shared memory, a block has {available}"
            ));
        }
        let words = self.words(settings);
        if words > WORDS_MAX {
            return Err(format!(
                "needs {words} words of accumulators per thread, at most {WORDS_MAX}"
            ));
        }
        let slices = ceil_div(self.problem.shape.width, width.max(1));
        let blocks = self.problem.blocks(cta_q).saturating_mul(slices);
        if blocks > GRID_MAX {
            return Err(format!("needs {blocks} blocks, more than a grid has"));
        }
        Ok(Schedule { settings, shared_bytes, blocks, words, slices })
    }

    /// The largest tile with few enough registers that leaves no SM idle.
    fn best(&self) -> Settings {
        let sm_count = i64::from(self.target.sm_count);
        let queries = [64, 32, 16, 8].into_iter();
        let legal = |cta_q: i64| {
            let mut keys = [32, 16].into_iter().map(move |cta_k| Settings { cta_k, cta_q });
            keys.find(|settings| self.schedule(*settings).is_ok())
        };
        let good = |settings: &Settings| {
            let small = self.words(*settings) <= WORDS_GOOD;
            small && self.problem.blocks(settings.cta_q) >= sm_count
        };
        let all: Vec<Settings> = queries.filter_map(legal).collect();
        let chosen = all.iter().find(|settings| good(settings)).or(all.last());
        *chosen.expect("the least tile fits")
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { cta_k, cta_q } = self.best();
        let (blocks, sm_count) = (self.problem.blocks(cta_q), self.target.sm_count);
        vec![
            format!("cta_k={cta_k}: a step's keys and values fit beside another block's"),
            format!("cta_q={cta_q}: {blocks} blocks for {sm_count} SMs"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![Settings { cta_q: settings.cta_q / 2, ..settings }]
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        vec![schedule.work(&self.problem)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let problem = &self.problem;
        let Schedule { settings, shared_bytes, blocks, .. } = *schedule;
        let passed: Vec<_> = problem.passed().collect();
        let (attention, functions) = attention_parameters(problem, self.target, false);
        let parameters = Parameters {
            problem: problem_parameters(problem, &passed, false, functions),
            attention,
            cta_q: settings.cta_q,
            cta_k: settings.cta_k,
            scale: literal(problem, problem.op.scale_of(problem.shape.depth)),
            slices: self.slices,
        };
        let names = KernelNames {
            stem: format!("sm75_attention_{}_simt", problem.tensor("o").dtype),
            template: "attention/sm75_attention_simt.cu",
            entry: "attention",
        };
        Lowering::from(KernelPlan {
            spec: names.spec(self.target.arch, &parameters),
            launch: LaunchPlan {
                grid: Grid::fixed(if problem.is_empty() { 0 } else { blocks as u32 }),
                threads: THREADS as u32,
                shared_bytes: shared_bytes as u32,
                cooperative: false,
                arguments: arguments(problem.graph, passed.iter().map(|(_, at)| at)),
                maps: Vec::new(),
                numbers: numbers(problem),
            },
        })
    }
}

settings! { struct Settings { cta_k, cta_q } }

#[derive(Serialize)]
struct Parameters {
    #[serde(flatten)]
    problem: ProblemParameters,
    #[serde(flatten)]
    attention: AttentionParameters,
    cta_q: i64,
    cta_k: i64,
    scale: String,
    slices: Option<Slices>,
}

/// Everything derived from legal settings.
struct Schedule {
    settings: Settings,
    shared_bytes: i64,
    blocks: i64,
    words: i64,
    /// Blocks that share the columns of O of a tile; each computes all of its scores.
    slices: i64,
}

impl Schedule {
    fn work(&self, problem: &Problem<'_>) -> KernelWork {
        let Settings { cta_k, cta_q } = self.settings;
        let (rows, keys) = ((cta_q / LINES) as f64, (cta_k / LANES) as f64);
        // A multiply-add, and its share of the reads of both operands.
        let each = 1.0 + (rows + keys) / (rows * keys);
        let block = Block {
            cta_q,
            cta_k,
            pack: 1,
            blocks: self.blocks,
            threads: THREADS,
            registers: self.words + 40,
            shared_bytes: self.shared_bytes,
            stages: 1,
        };
        let path = if problem.is_double() { MathPath::F64(each) } else { MathPath::Fp32(each) };
        let mut work = work(problem, block, path);
        work.lane_instructions *= self.slices as f64;
        work.f64_instructions *= self.slices as f64;
        work
    }
}
