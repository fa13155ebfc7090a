//! Persistent engines for recurrent layers: weights stay on chip for all steps (Diamos et al. 2016,
//! "Persistent RNNs").
//!
//! Each block owns a slice of the hidden units for one batch tile. A warp holds all gate rows of
//! its groups of 8 units as the stationary A operand, so after the MMA every lane's accumulators
//! hold all gates of the units whose cell it computes. The blocks of a group, which share a batch
//! tile, exchange h once per GEMM.

mod cell_struct;
mod constants;
mod elements;
mod heuristic;
mod layer;
mod parameters;
mod refusal;
mod schedule;
mod step;
mod step_buffers;
mod step_gemm;
mod step_kernels;
mod variables;
mod variant;
mod work;

pub(super) use step::StepEngine;

use crate::engine::config::combinations;
use crate::engine::rnn::heuristic::Decision;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::refusal::Refusal;
use crate::engine::rnn::schedule::{MathPath, Schedule, Settings};
use crate::engine::rnn::variant::{Exchange, REGISTERS_STEP, Variant};
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, NumericalNote, Supported};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::kernel::Lowering;
use crate::target::Target;

/// A persistent engine for recurrent layers.
pub(super) struct RnnEngine {
    variant: Variant,
}

/// `rnn_cta`: one block owns all hidden units of a batch tile.
pub(super) const CTA: RnnEngine = RnnEngine {
    variant: Variant { engine: "rnn_cta", exchanges: &[Exchange::None], streams: false },
};

/// Exchanges through distributed shared memory.
const IN_CLUSTER: &[Exchange] = &[Exchange::Cluster, Exchange::ReduceScatter];

/// `rnn_cluster`: the blocks of a cluster share the hidden units (from sm_90).
pub(super) const CLUSTER: RnnEngine =
    RnnEngine { variant: Variant { engine: "rnn_cluster", exchanges: IN_CLUSTER, streams: false } };

/// Exchanges through global memory.
const THROUGH_MEMORY: &[Exchange] = &[Exchange::Counter, Exchange::Words];

/// `rnn_grid`: blocks of the whole device share the hidden units.
pub(super) const GRID: RnnEngine = RnnEngine {
    variant: Variant { engine: "rnn_grid", exchanges: THROUGH_MEMORY, streams: false },
};

/// `rnn_stream`: as `rnn_grid`; weights that do not fit on chip are streamed at every step.
pub(super) const STREAM: RnnEngine = RnnEngine {
    variant: Variant { engine: "rnn_stream", exchanges: THROUGH_MEMORY, streams: true },
};

impl RnnEngine {
    fn layer<'a>(&self, graph: CanonicalGraph<'a>, target: &Target) -> Result<Layer<'a>> {
        let capability = target.arch.capability;
        if self.variant.exchange() == Exchange::Cluster && capability < 90 {
            let text = format!("sm_{capability} has no clusters");
            return Err(Error::not_supported(text));
        }
        let layer = Layer::of(graph)?;
        if layer.layer_norms_max() > 0 && self.variant.exchange().through_memory() {
            let text = "layer norms need all hidden units of a row in one block or cluster";
            return Err(Error::not_supported(text));
        }
        Ok(layer)
    }
}

impl Engine for RnnEngine {
    fn name(&self) -> &'static str {
        self.variant.engine
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let layer = self.layer(graph, target)?;
        let decision = Decision::of(&layer, target, self.variant)
            .map_err(|refusal| Error::not_supported(refusal.to_string()))?;
        let bytes = work::bytes(&layer);
        Ok(Box::new(Tuned(Rnn { variant: self.variant, layer, decision, bytes, target })))
    }
}

/// A layer as this engine runs it.
#[derive(Debug, Clone)]
struct Rnn<'a> {
    variant: Variant,
    layer: Layer<'a>,
    decision: Decision,
    /// Bytes of all tensors.
    bytes: f64,
    target: &'a Target,
}

impl Tunable<7> for Rnn<'_> {
    const KNOBS: [&'static str; 7] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = Refusal;

    fn name(&self) -> &'static str {
        self.variant.engine
    }

    fn all_knobs(&self) -> [Knob; 7] {
        self.variant.knobs()
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, Refusal> {
        Schedule::new(&self.layer, self.target, self.variant, settings)
    }

    fn best(&self) -> Settings {
        self.decision.settings
    }

    fn reasons(&self) -> Vec<String> {
        self.decision.reasons()
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        // Weights that leave registers move to shared memory, where they must fit.
        let fewer = (0..settings.weight_registers / REGISTERS_STEP).rev();
        let with = |steps| Settings { weight_registers: steps * REGISTERS_STEP, ..settings };
        fewer.map(with).collect()
    }

    /// Settings that differ in the exchange through memory share a schedule; of those with equal
    /// schedules, one.
    fn ranked_work(&self) -> Vec<(Settings, Vec<KernelWork>)> {
        let Rnn { variant, layer, target, .. } = self;
        let [tiles, _, group_ctas, smem_percent, warps_k, warps_n, registers] = variant.knobs();
        let (outer, inner) = ([tiles, group_ctas, warps_n], [smem_percent, warps_k, registers]);
        let mut all = Vec::new();
        for [batch_tile, group_ctas, warps_n] in combinations(&outer) {
            let schedule = |exchange: i64, [smem_percent, warps_k, weight_registers]: [i64; 3]| {
                let settings = Settings {
                    batch_tile,
                    exchange,
                    group_ctas,
                    smem_percent,
                    warps_k,
                    warps_n,
                    weight_registers,
                };
                let schedule = Schedule::new(layer, target, *variant, settings).ok()?;
                (!schedule.is_repeated(*variant)).then_some(schedule)
            };
            let mut schedules: Vec<Schedule> = Vec::new();
            for (exchange, kind) in (0..).zip(variant.exchanges) {
                if exchange == 0 || kind.in_cluster() {
                    let of = |settings| schedule(exchange, settings);
                    schedules = combinations(&inner).filter_map(of).collect();
                }
                all.extend(schedules.iter_mut().map(|schedule| {
                    schedule.set_exchange(*variant, exchange);
                    (schedule.settings, self.work(schedule))
                }));
            }
        }
        all
    }

    fn notes(&self, _settings: Settings) -> Notes {
        let tensor = MathPath::of(&self.layer, self.target) != MathPath::Simt;
        let rounds = tensor && self.layer.op.math == MatmulMath::Tf32;
        let numerical = [
            tensor.then_some(NumericalNote::TensorCore),
            rounds.then_some(NumericalNote::DownConvertInputs),
            self.layer.op.has_fast_activations().then_some(NumericalNote::FastActivations),
        ];
        // The exchange needs a workspace and co-resident blocks.
        let memory = self.variant.exchange().through_memory();
        let behavior = [
            Some(BehaviorNote::RuntimeCompilation),
            memory.then_some(BehaviorNote::Workspace),
            memory.then_some(BehaviorNote::Cooperative),
        ];
        Notes {
            numerical: numerical.into_iter().flatten().collect(),
            behavior: behavior.into_iter().flatten().collect(),
        }
    }

    /// Predicted clocks per step.
    fn expected_clocks(&self) -> Option<f64> {
        Some(self.decision.clocks)
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        vec![work::of(&self.layer, schedule, self.bytes)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        parameters::lowering(&self.layer, schedule, self.target.arch)
    }

    fn scratch(&self, schedule: &Schedule) -> Vec<u64> {
        parameters::scratch(&self.layer, schedule)
    }
}
