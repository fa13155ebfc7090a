//! Engines for recurrent layers: weights stay on chip for all steps.
//!
//! A block has some units of some rows of the batch. Each warp has the weights of some groups of 8
//! units, all gates of them, so that what a product gives to a unit's gates is in the lanes that
//! compute its cell: the layout of a matrix product's sums is that of units and batch rows. Blocks
//! that share the units of batch rows give each other what they compute once per product.

mod heuristic;
mod layer;
mod members;
mod parameters;
mod schedule;
mod work;

use crate::engine::rnn::heuristic::Decision;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{Exchange, Regime, Schedule, Settings, Units};
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Knob, Lowering, Notes, NumericalNote, Setting,
};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::target::Target;

/// An engine for recurrent layers.
pub(super) struct RnnEngine {
    regime: Regime,
}

/// One block has all units, and their weights.
pub(super) const CTA: RnnEngine =
    RnnEngine { regime: Regime { engine: "rnn_cta", exchange: Exchange::None, streams: false } };

/// The blocks of a cluster share the units (from sm_90 on).
pub(super) const CLUSTER: RnnEngine = RnnEngine {
    regime: Regime { engine: "rnn_cluster", exchange: Exchange::Cluster, streams: false },
};

/// Blocks all over the device share the units.
pub(super) const GRID: RnnEngine =
    RnnEngine { regime: Regime { engine: "rnn_grid", exchange: Exchange::Grid, streams: false } };

/// The same, for weights that do not fit on chip: what does not is read at every step.
pub(super) const STREAM: RnnEngine =
    RnnEngine { regime: Regime { engine: "rnn_stream", exchange: Exchange::Grid, streams: true } };

impl RnnEngine {
    fn layer<'a>(&self, graph: CanonicalGraph<'a>, target: &Target) -> Result<Layer<'a>> {
        let capability = target.arch.capability;
        if self.regime.exchange == Exchange::Cluster && capability < 90 {
            let text = format!("sm_{capability} has no clusters");
            return Err(Error::not_supported(text));
        }
        Layer::of(graph)
    }

    fn decision(&self, graph: CanonicalGraph<'_>, target: &Target) -> Decision {
        let layer = Layer::of(graph).expect("the graph is supported");
        Decision::of(&layer, target, self.regime).expect("the graph is supported")
    }
}

impl Engine for RnnEngine {
    fn name(&self) -> &'static str {
        self.regime.engine
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let layer = self.layer(graph, target)?;
        Decision::of(&layer, target, self.regime).map(|_| ())
    }

    fn knobs(&self, _graph: CanonicalGraph<'_>, _target: &Target) -> Vec<Knob> {
        self.regime.knobs().into()
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        self.decision(graph, target).settings.config(self.regime.engine)
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        self.decision(graph, target).reasons()
    }

    fn smaller(
        &self,
        _graph: CanonicalGraph<'_>,
        _target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig> {
        let registers = config.knob("registers").ok().filter(|registers| *registers > 0)?;
        Some(config.clone().with("registers", registers - 32))
    }

    fn settings(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Setting> {
        let layer = Layer::of(graph).expect("the graph is supported");
        let setting = |config: EngineConfig| {
            let settings = Settings::of(&config).ok()?;
            let schedule = Schedule::new(&layer, target, self.regime, settings).ok()?;
            Some(Setting { config, work: vec![work::of(&layer, &schedule)] })
        };
        let all = EngineConfig::all(self.regime.engine, &self.regime.knobs());
        all.into_iter().filter_map(setting).collect()
    }

    /// Whether no other of these engines takes fewer clocks.
    fn pays(&self, graph: CanonicalGraph<'_>, target: &Target) -> bool {
        let own = self.decision(graph, target).clocks;
        let others = [&CTA, &CLUSTER, &GRID, &STREAM].into_iter();
        let others = others.filter(|other| other.regime.engine != self.regime.engine);
        let clocks = |other: &RnnEngine| {
            let layer = other.layer(graph, target).ok()?;
            Some(Decision::of(&layer, target, other.regime).ok()?.clocks)
        };
        others.filter_map(clocks).all(|clocks| own <= clocks)
    }

    fn notes(&self, graph: CanonicalGraph<'_>, target: &Target, _: &EngineConfig) -> Notes {
        let layer = Layer::of(graph).expect("the graph is supported");
        let tensor = Units::of(&layer, target) != Units::Lanes;
        let rounds = layer.op.math == MatmulMath::Tf32;
        let numerical = [
            tensor.then_some(NumericalNote::TensorCore),
            rounds.then_some(NumericalNote::DownConvertInputs),
        ];
        Notes {
            numerical: numerical.into_iter().flatten().collect(),
            behavior: vec![BehaviorNote::RuntimeCompilation],
        }
    }

    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Lowering> {
        let layer = self.layer(graph, target)?;
        config.validate(&self.regime.knobs())?;
        let schedule = Schedule::new(&layer, target, self.regime, Settings::of(config)?)?;
        Ok(parameters::lowering(&layer, &schedule, target.arch))
    }
}
