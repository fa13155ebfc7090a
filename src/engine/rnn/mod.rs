//! Persistent engines for recurrent layers: weights stay on chip for all steps (Diamos et al. 2016,
//! "Persistent RNNs").
//!
//! Each block owns a slice of hidden units for one batch tile. A warp holds all gate rows of its
//! 8-unit groups as the stationary A operand, so after the MMA every lane's accumulators hold all
//! gates of the units whose cell it computes. The blocks of a group, which share a batch tile,
//! exchange h once per GEMM.

mod elements;
mod heuristic;
mod layer;
mod members;
mod parameters;
mod refusal;
mod schedule;
mod step;
mod step_product;
mod work;

pub(super) use step::StepEngine;

use crate::engine::config::combinations;
use crate::engine::header::described;
use crate::engine::rnn::heuristic::Decision;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::refusal::Refusal;
use crate::engine::rnn::schedule::{Exchange, REGISTERS_STEP, Regime, Schedule, Settings, Units};
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Knob, Notes, NumericalNote, Setting, Supported, WorkOf,
};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::kernel::Lowering;
use crate::target::Target;

/// A persistent engine for recurrent layers.
pub(super) struct RnnEngine {
    regime: Regime,
}

/// `rnn_cta`: one block owns all hidden units of a batch tile.
pub(super) const CTA: RnnEngine = RnnEngine {
    regime: Regime { engine: "rnn_cta", exchanges: &[Exchange::None], streams: false },
};

/// `rnn_cluster`: the blocks of a cluster share the hidden units (from sm_90).
pub(super) const CLUSTER: RnnEngine = RnnEngine {
    regime: Regime { engine: "rnn_cluster", exchanges: &[Exchange::Cluster], streams: false },
};

/// Exchanges through global memory.
const THROUGH_MEMORY: &[Exchange] = &[Exchange::Counter, Exchange::Data];

/// `rnn_grid`: blocks of the whole device share the hidden units.
pub(super) const GRID: RnnEngine =
    RnnEngine { regime: Regime { engine: "rnn_grid", exchanges: THROUGH_MEMORY, streams: false } };

/// `rnn_stream`: as `rnn_grid`; weights that do not fit on chip are streamed at every step.
pub(super) const STREAM: RnnEngine =
    RnnEngine { regime: Regime { engine: "rnn_stream", exchanges: THROUGH_MEMORY, streams: true } };

impl RnnEngine {
    fn layer<'a>(&self, graph: CanonicalGraph<'a>, target: &Target) -> Result<Layer<'a>> {
        let capability = target.arch.capability;
        if self.regime.exchange() == Exchange::Cluster && capability < 90 {
            let text = format!("sm_{capability} has no clusters");
            return Err(Error::not_supported(text));
        }
        let layer = Layer::of(graph)?;
        if layer.moments() > 0 && self.regime.exchange().through_memory() {
            let text = "moments need all units of a row in one block or cluster";
            return Err(Error::not_supported(text));
        }
        Ok(layer)
    }
}

impl Engine for RnnEngine {
    fn name(&self) -> &'static str {
        self.regime.engine
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let layer = self.layer(graph, target)?;
        let decision = Decision::of(&layer, target, self.regime).map_err(Refusal::error)?;
        Ok(Box::new(Rnn { regime: self.regime, layer, decision, target }))
    }
}

/// A layer as this engine runs it.
#[derive(Debug, Clone)]
struct Rnn<'a> {
    regime: Regime,
    layer: Layer<'a>,
    decision: Decision,
    target: &'a Target,
}

impl Rnn<'_> {
    fn schedule(&self, config: &EngineConfig) -> Result<Schedule> {
        let settings = Settings::of(config)?;
        Schedule::new(&self.layer, self.target, self.regime, settings).map_err(Refusal::error)
    }
}

impl Supported for Rnn<'_> {
    fn knobs(&self) -> Vec<Knob> {
        self.regime.knobs().into()
    }

    fn heuristic(&self) -> EngineConfig {
        self.decision.settings.config(self.regime.engine)
    }

    fn reasons(&self) -> Vec<String> {
        self.decision.reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        // Weights that leave registers move to shared memory, where they must fit.
        let held = config.knob("registers").ok()?;
        let fewer = (0..held / REGISTERS_STEP).rev();
        let mut fewer = fewer.map(|steps| config.clone().with("registers", steps * REGISTERS_STEP));
        fewer.find(|config| self.schedule(config).is_ok())
    }

    fn settings(&self) -> Vec<Setting> {
        let Rnn { regime, layer, target, .. } = self;
        let bytes = work::bytes(layer);
        let [tiles, blocks, columns, exchanges, kept, parts, registers] = regime.knobs();
        let (outer, inner) = ([tiles, blocks, columns], [kept, parts, registers]);
        let mut all = Vec::new();
        for [batch_tile, blocks, columns] in combinations(&outer) {
            let schedule = |[kept, parts, registers]: [i64; 3]| {
                let settings =
                    Settings { batch_tile, blocks, columns, exchange: 0, kept, parts, registers };
                let schedule = Schedule::new(layer, target, *regime, settings).ok()?;
                (!schedule.is_repeated(*regime)).then_some(schedule)
            };
            let mut schedules: Vec<Schedule> = combinations(&inner).filter_map(schedule).collect();
            for exchange in &exchanges.values {
                all.extend(schedules.iter_mut().map(|schedule| {
                    schedule.set_exchange(*regime, *exchange);
                    let config = schedule.settings.config(regime.engine);
                    Setting { config, work: vec![work::of(layer, schedule, bytes)] }
                }));
            }
        }
        all
    }

    fn work_of(&self) -> WorkOf<'_> {
        let bytes = work::bytes(&self.layer);
        Box::new(move |config| {
            let schedule = self.schedule(config).ok()?;
            Some(vec![work::of(&self.layer, &schedule, bytes)])
        })
    }

    /// Predicted clocks per step.
    fn expected_clocks(&self) -> Option<f64> {
        Some(self.decision.clocks)
    }

    fn notes(&self, _config: &EngineConfig) -> Notes {
        let tensor = Units::of(&self.layer, self.target) != Units::Lanes;
        let rounds = tensor && self.layer.op.math == MatmulMath::Tf32;
        let numerical = [
            tensor.then_some(NumericalNote::TensorCore),
            rounds.then_some(NumericalNote::DownConvertInputs),
        ];
        // The exchange needs a workspace and co-resident blocks.
        let memory = self.regime.exchange().through_memory();
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

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        let knobs = self.regime.knobs();
        config.validate(&knobs)?;
        let schedule = self.schedule(config)?;
        let lowering = parameters::lowering(&self.layer, &schedule, self.target.arch);
        Ok(described(lowering, config, &knobs))
    }
}
