//! Gradients of attention on the FP32 cores, for every type and architecture.

use serde::Serialize;

use crate::engine::access::{GRID_MAX, ceil_div};
use crate::engine::attention::backward::delta::delta;
use crate::engine::attention::backward::kernels::{
    DELTA, LANES, LINES, Launch, Steps, THREADS, Tile, TileParameters, delta_work, kernel, names,
    simt_work,
};
use crate::engine::attention::backward::operands::{
    check_optional, optional, optional_work, partial_bytes, passed,
};
use crate::engine::attention::backward::parameters::{
    GradientParameters, gradient_parameters, type_of,
};
use crate::engine::attention::backward::problem::BackwardProblem;
use crate::engine::attention::score::Source;
use crate::engine::attention::work::GAIN_MIN;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::{AttentionShape, CanonicalGraph};
use crate::kernel::{KernelPlan, Lowering};
use crate::target::Target;

const NAME: &str = "attention_backward_simt";

/// Maximum accumulator words per thread.
const WORDS_MAX: i64 = 128;

/// Accumulator words per thread beyond which a smaller tile is preferred: fewer than four blocks
/// would fit an SM.
const WORDS_GOOD: i64 = 80;

/// The settings with the lowest requirements.
const LEAST: Settings = Settings { cta_k: 16, cta_q: 16 };

/// The engine `attention_backward_simt`: FMA units instead of tensor cores, for every type and
/// architecture.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct BackwardSimtEngine;

/// A graph as this engine runs it.
#[derive(Debug)]
struct Simt<'a> {
    problem: BackwardProblem<'a>,
    target: &'a Target,
}

impl Engine for BackwardSimtEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = BackwardProblem::of(graph, target.arch.capability)?;
        Ok(Box::new(Tuned::of(Simt { problem, target }, [LEAST])?))
    }
}

impl Simt<'_> {
    /// Accumulator words per thread: dK and dV, and the scores of a tile.
    fn words(&self, Settings { cta_k, cta_q }: Settings) -> i64 {
        let Steps { depth, width, .. } = Steps::of(&self.problem.forward.shape);
        let columns = ceil_div(depth, LANES) + ceil_div(width, LANES);
        let of_keys = cta_k / LINES * (columns + 2 * cta_q / LANES);
        let of_queries = cta_q / LINES * (ceil_div(depth, LANES) + 2 * cta_k / LANES);
        of_keys.max(of_queries) * self.problem.accumulator_bytes() / 4
    }

    /// Blocks of the kernel of dK and dV, and of that of dQ.
    fn blocks(&self, Settings { cta_k, cta_q }: Settings) -> [i64; 2] {
        let [of_keys, of_queries] = Steps::of(&self.problem.forward.shape).slices;
        [
            self.problem.key_tiles(cta_k).saturating_mul(of_keys),
            self.problem.forward.blocks(cta_q).saturating_mul(of_queries),
        ]
    }

    /// The kernel of dK and dV, a block per tile of keys of a KV head.
    fn of_keys(&self, settings: Settings) -> KernelPlan {
        let problem = &self.problem;
        let AttentionShape { heads, kv_heads, .. } = problem.forward.shape;
        let of_group = if heads == kv_heads { "i" } else { "i and the heads h of a group" };
        let lines = [
            format!("dk[b, h, j] = sum over {of_group} of ds[b, h, i, j] q[b, h, i], scaled"),
            format!("dv[b, h, j] = sum over {of_group} of p[b, h, i, j] do[b, h, i]"),
        ];
        let passed = passed(problem, &["dk", "dv"]);
        let parameters = KeyParameters {
            gradient: gradient_parameters(problem, &passed, Source::Score, lines.join("; "), DELTA),
            tile: settings.tile().parameters(problem, true),
            slices: Steps::of(&problem.forward.shape).slices[0],
            dk_type: type_of(problem, "dk"),
            dv_type: type_of(problem, "dv"),
        };
        let names = names(
            problem,
            "sm75",
            "simt_keys",
            "attention/sm75_attention_backward_keys.cu",
            "attention_backward_keys",
        );
        let launch = Launch {
            blocks: self.blocks(settings)[0],
            threads: THREADS,
            shared_bytes: settings.tile().shared_bytes(problem, true),
        };
        kernel(problem, self.target, names, &parameters, &passed, DELTA, launch)
    }

    /// The kernel of dQ, a block per tile of queries of a head.
    fn of_queries(&self, settings: Settings) -> KernelPlan {
        let problem = &self.problem;
        let passed = passed(problem, &["dq"]);
        let line = "dq[b, h, i] = sum over j of ds[b, h, i, j] k[b, h, j], scaled".to_owned();
        let parameters = QueryParameters {
            gradient: gradient_parameters(problem, &passed, Source::Score, line, DELTA),
            tile: settings.tile().parameters(problem, false),
            slices: Steps::of(&problem.forward.shape).slices[1],
            dq_type: type_of(problem, "dq"),
        };
        let names = names(
            problem,
            "sm75",
            "simt_queries",
            "attention/sm75_attention_backward_queries.cu",
            "attention_backward_queries",
        );
        let launch = Launch {
            blocks: self.blocks(settings)[1],
            threads: THREADS,
            shared_bytes: settings.tile().shared_bytes(problem, false),
        };
        kernel(problem, self.target, names, &parameters, &passed, DELTA, launch)
    }
}

impl Tunable<2> for Simt<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Refusal = String;
    type Schedule = Settings;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let sizes = vec![16, 32, 64];
        let keys = "keys of a tile; changes the order of sums of what is broadcast along keys";
        let queries = "queries of a tile; that of what is broadcast along queries";
        [
            Knob { name: "cta_k", about: keys, values: sizes.clone() },
            Knob { name: "cta_q", about: queries, values: sizes },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        let tile = settings.tile();
        let bytes = [true, false].map(|keys_own| tile.shared_bytes(&self.problem, keys_own));
        let (bytes, available) =
            (bytes[0].max(bytes[1]), i64::from(self.target.shared_block_bytes_max));
        if bytes > available {
            return Err(format!("needs {bytes} bytes of shared memory, a block has {available}"));
        }
        let words = self.words(settings);
        if words > WORDS_MAX {
            return Err(format!(
                "needs {words} words of accumulators per thread, at most {WORDS_MAX}"
            ));
        }
        let rows = ceil_div(self.problem.rows(), THREADS / 32);
        if let Some(blocks) =
            self.blocks(settings).into_iter().chain([rows]).find(|of| *of > GRID_MAX)
        {
            return Err(format!("needs {blocks} blocks, more than a grid has"));
        }
        check_optional(&self.problem, tile)?;
        Ok(settings)
    }

    /// The largest tile with few enough registers that leaves no SM idle.
    fn best(&self) -> Settings {
        let sm_count = i64::from(self.target.sm_count);
        let sizes = [64, 32, 16];
        let all = sizes
            .into_iter()
            .flat_map(|cta_q| sizes.into_iter().map(move |cta_k| Settings { cta_k, cta_q }));
        let legal: Vec<Settings> =
            all.filter(|of| of.cta_q == of.cta_k && self.schedule(*of).is_ok()).collect();
        let good = |settings: &&Settings| {
            let busy = self.blocks(**settings).into_iter().all(|blocks| blocks >= sm_count);
            busy && self.words(**settings) <= WORDS_GOOD
        };
        *legal.iter().find(good).or(legal.last()).expect("the least tile fits")
    }

    fn reasons(&self) -> Vec<String> {
        let settings = self.best();
        let ([of_keys, of_queries], sm_count) = (self.blocks(settings), self.target.sm_count);
        let Settings { cta_k, cta_q } = settings;
        vec![
            format!("cta_k={cta_k}: {of_keys} blocks of keys for {sm_count} SMs"),
            format!("cta_q={cta_q}: {of_queries} blocks of queries for {sm_count} SMs"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { cta_k, cta_q } = settings;
        vec![Settings { cta_k: cta_k / 2, ..settings }, Settings { cta_q: cta_q / 2, ..settings }]
    }

    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    fn notes(&self, _settings: Settings) -> Notes {
        let behavior = vec![BehaviorNote::RuntimeCompilation, BehaviorNote::Workspace];
        Notes { behavior, ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        let (problem, tile) = (&self.problem, settings.tile());
        let [of_keys, of_queries] = self.blocks(*settings);
        let slices = Steps::of(&problem.forward.shape).slices;
        let repeated = |mut work: KernelWork, slices: i64| {
            work.lane_instructions *= slices as f64;
            work.f64_instructions *= slices as f64;
            work
        };
        let mut kernels = vec![
            delta_work(problem),
            repeated(simt_work(problem, tile, of_queries, 3, false), slices[1]),
            repeated(simt_work(problem, tile, of_keys, 4, true), slices[0]),
        ];
        kernels.extend(optional_work(problem, self.target, tile));
        kernels
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let mut kernels = vec![
            delta(&self.problem, self.target, None),
            self.of_queries(*settings),
            self.of_keys(*settings),
        ];
        kernels.extend(optional(&self.problem, self.target, settings.tile()));
        let delta = self.problem.rows().saturating_mul(self.problem.accumulator_bytes());
        let partials = partial_bytes(&self.problem, self.target, settings.tile());
        // Blocks add to no dQ in workspace.
        Lowering { kernels, scratch: [delta, 0, 0, partials].map(|bytes| bytes as u64).to_vec() }
    }
}

settings! { struct Settings { cta_k, cta_q } }

impl Settings {
    fn tile(self) -> Tile {
        Tile { cta_q: self.cta_q, cta_k: self.cta_k }
    }
}

#[derive(Serialize)]
struct KeyParameters {
    #[serde(flatten)]
    gradient: GradientParameters,
    #[serde(flatten)]
    tile: TileParameters,
    slices: i64,
    dk_type: &'static str,
    dv_type: &'static str,
}

#[derive(Serialize)]
struct QueryParameters {
    #[serde(flatten)]
    gradient: GradientParameters,
    #[serde(flatten)]
    tile: TileParameters,
    slices: i64,
    dq_type: &'static str,
}
