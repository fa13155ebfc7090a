//! Attention on the ordinary arithmetic units, for every type and architecture.

use serde_json::json;

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::attention::parameters;
use crate::engine::attention::problem::Problem;
use crate::engine::attention::tuned::{Tunable, Tuned, settings};
use crate::engine::attention::work::{Block, Units, work};
use crate::engine::signature::arguments;
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::{AttentionShape, CanonicalGraph};
use crate::kernel::{Grid, KernelPlan, KernelSpec, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "attention_simt";

const THREADS: i64 = 128;

/// Threads that share a row of scores, and rows that a block has a thread each for.
const LANES: i64 = 16;
const LINES: i64 = THREADS / LANES;

/// The most words of sums and scores of a thread.
const WORDS_MAX: i64 = 128;

/// Words of sums of a thread beyond which a smaller tile is expected to be faster: with more, fewer
/// than four blocks share a multiprocessor.
const WORDS_GOOD: i64 = 64;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct SimtEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Simt<'a> {
    problem: Problem<'a>,
    target: &'a Target,
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
        let least = Settings { cta_k: 16, cta_q: 8 };
        Ok(Box::new(Tuned::of(Simt { problem, target }, least)?))
    }
}

impl Tunable<2> for Simt<'_> {
    const NAME: &'static str = NAME;
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;

    fn all_knobs(&self) -> [Knob; 2] {
        let (keys, queries) = (vec![16, 32, 64], vec![8, 16, 32, 64]);
        [
            Knob {
                name: "cta_k",
                about: "keys of a step; changes the order of sums",
                values: keys,
            },
            Knob { name: "cta_q", about: "queries of a block", values: queries },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        let AttentionShape { depth, width, .. } = self.problem.shape;
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
        let words = settings.words(&self.problem);
        if words > WORDS_MAX {
            return Err(format!("leaves {words} words of sums to a thread, which has {WORDS_MAX}"));
        }
        let blocks = self.problem.blocks(cta_q);
        if blocks > GRID_MAX {
            return Err(format!("needs {blocks} blocks, more than a grid has"));
        }
        Ok(Schedule { settings, shared_bytes, blocks })
    }

    /// The largest tile that fits in few enough registers and leaves no multiprocessor idle.
    fn best(&self) -> Settings {
        let sm_count = i64::from(self.target.sm_count);
        let queries = [64, 32, 16, 8].into_iter();
        let legal = |cta_q: i64| {
            let mut keys = [32, 16].into_iter().map(move |cta_k| Settings { cta_k, cta_q });
            keys.find(|settings| self.schedule(*settings).is_ok())
        };
        let good = |settings: &Settings| {
            let small = settings.words(&self.problem) <= WORDS_GOOD;
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
            format!("cta_q={cta_q}: {blocks} blocks for {sm_count} multiprocessors"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![Settings { cta_q: settings.cta_q / 2, ..settings }]
    }

    fn notes(&self, _settings: Settings) -> Notes {
        Notes { behavior: vec![BehaviorNote::RuntimeCompilation], ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        vec![schedule.work(&self.problem)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let problem = &self.problem;
        let Schedule { settings, shared_bytes, blocks } = *schedule;
        let arch = self.target.arch;
        let stem = format!("sm75_attention_{}_simt", problem.tensor("o").dtype);
        let entry = "attention";
        let passed: Vec<_> = problem.passed().collect();
        let mut parameters = parameters::shared(problem, &passed);
        parameters["stem"] = json!(stem);
        parameters["entry"] = json!(entry);
        parameters["arch"] = json!(arch.to_string());
        parameters["cta_q"] = json!(settings.cta_q);
        parameters["cta_k"] = json!(settings.cta_k);
        parameters["packs"] = json!(false);
        Lowering::from(KernelPlan {
            spec: KernelSpec {
                stem,
                template: "attention/sm75_attention_simt.cu",
                entry,
                arch,
                parameters,
            },
            launch: LaunchPlan {
                grid: Grid::Fixed(if problem.is_empty() { 0 } else { blocks as u32 }),
                threads: THREADS as u32,
                shared_bytes: shared_bytes as u32,
                cooperative: false,
                arguments: arguments(problem.graph, passed.iter().map(|(_, at)| at)),
                maps: Vec::new(),
                numbers: Vec::new(),
            },
        })
    }
}

settings!(cta_k, cta_q);

impl Settings {
    /// Words of sums and scores of a thread.
    fn words(self, problem: &Problem<'_>) -> i64 {
        let rows = self.cta_q / LINES;
        let columns = ceil_div(problem.shape.width, LANES) + self.cta_k / LANES;
        rows * columns * if problem.is_double() { 2 } else { 1 }
    }
}

/// Settings that fit, and what follows from them.
struct Schedule {
    settings: Settings,
    shared_bytes: i64,
    blocks: i64,
}

impl Schedule {
    fn work(&self, problem: &Problem<'_>) -> KernelWork {
        let Settings { cta_k, cta_q } = self.settings;
        let (rows, keys) = ((cta_q / LINES) as f64, (cta_k / LANES) as f64);
        // A multiplication, and its share of the reads of both operands.
        let each = 1.0 + (rows + keys) / (rows * keys);
        let block = Block {
            cta_q,
            cta_k,
            pack: 1,
            blocks: self.blocks,
            threads: THREADS,
            registers: self.settings.words(problem) + 40,
            shared_bytes: self.shared_bytes,
            stages: 1,
        };
        let units = if problem.is_double() { Units::F64(each) } else { Units::Lanes(each) };
        work(problem, block, units)
    }
}
