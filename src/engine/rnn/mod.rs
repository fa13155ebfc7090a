//! Engines for recurrent layers: weights stay on chip for all steps.
//!
//! A block has all units of some rows of the batch. Each warp has the weights of some groups of 8
//! units, all gates of them, so that what a product gives to a unit's gates is in the lanes that
//! compute its cell: the layout of a matrix product's sums is that of units and batch rows.

mod heuristic;
mod layer;
mod members;
mod parameters;
mod schedule;
mod work;

use crate::engine::rnn::heuristic::Decision;
use crate::engine::rnn::layer::Layer;
use crate::engine::rnn::schedule::{Schedule, Settings, Units, knobs};
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Knob, Lowering, Notes, NumericalNote, Setting,
};
use crate::error::Result;
use crate::graph::{CanonicalGraph, MatmulMath};
use crate::target::Target;

const NAME: &str = "rnn_cta";

/// A layer whose weights fit into one multiprocessor: each block runs some rows of the batch by
/// itself.
pub(super) struct CtaEngine;

impl Engine for CtaEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let layer = Layer::of(graph)?;
        Decision::of(&layer, target).map(|_| ())
    }

    fn knobs(&self, _graph: CanonicalGraph<'_>, _target: &Target) -> Vec<Knob> {
        knobs().into()
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        decision(graph, target).settings.config(NAME)
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        decision(graph, target).reasons()
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
        let schedule = |config: EngineConfig| {
            let schedule = Schedule::new(&layer, target, Settings::of(&config).ok()?).ok()?;
            let work = vec![work::of(&layer, &schedule)];
            Some(Setting { config, work })
        };
        EngineConfig::all(NAME, &knobs()).into_iter().filter_map(schedule).collect()
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
        let layer = Layer::of(graph)?;
        config.validate(&knobs())?;
        let schedule = Schedule::new(&layer, target, Settings::of(config)?)?;
        Ok(parameters::kernel_plan(&layer, &schedule, target.arch).into())
    }
}

fn decision(graph: CanonicalGraph<'_>, target: &Target) -> Decision {
    let layer = Layer::of(graph).expect("the graph is supported");
    Decision::of(&layer, target).expect("the graph is supported")
}
