//! The pointwise engine: a whole graph of pointwise operations in one pass over memory.
//!
//! Every input is read once and every output written once, in 16-byte accesses where layout and
//! alignment allow it, so a kernel runs at the speed of memory as long as its arithmetic hides
//! behind it. Operands that are broadcast along everything are loaded once per thread; in a
//! persistent grid those that depend on the column alone stay in registers.
//!
//! A second engine, `pointwise_general`, takes the shape at run time: one element at a time, for
//! any shape and strides of the same operations.

mod domain;
mod general;
mod heuristic;
mod parameters;
mod schedule;
mod work;

pub(super) use general::GeneralEngine;

use crate::engine::access::PARAMETERS_MAX;
use crate::engine::expand::Expanded;
use crate::engine::pointwise::domain::Domain;
use crate::engine::pointwise::heuristic::Decision;
use crate::engine::pointwise::schedule::Schedule;
use crate::engine::program::GraphProgram;
use crate::engine::{Engine, EngineConfig, Knob, Lowering, Setting};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Operation};
use crate::target::Target;

/// The oldest architecture the template is written for.
const CAPABILITY_MIN: u16 = 75;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct PointwiseEngine;

impl Engine for PointwiseEngine {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let expanded = Expanded::of(graph)?;
        let graph = expanded.graph();
        let other = |operation: &&Operation| operation.as_pointwise().is_none();
        if let Some(Operation { op, .. }) = graph.operations.iter().find(other) {
            return Err(Error::not_supported(format!("{op} is not pointwise")));
        }
        if target.arch.capability < CAPABILITY_MIN {
            let arch = target.arch;
            return Err(Error::not_supported(format!("{arch} is older than sm_{CAPABILITY_MIN}")));
        }
        let stored = graph.tensors.iter().filter(|tensor| !tensor.is_virtual).count();
        if stored > PARAMETERS_MAX {
            return Err(Error::not_supported(format!(
                "{stored} tensors with storage exceed the {PARAMETERS_MAX} parameters of a kernel"
            )));
        }
        Domain::of(graph).map(drop)
    }

    fn knobs(&self, graph: CanonicalGraph<'_>, _target: &Target) -> Vec<Knob> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let domain = Domain::of(expanded.graph()).expect("the graph is supported");
        schedule::knobs(expanded.graph(), &domain)
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let domain = Domain::of(expanded.graph()).expect("the graph is supported");
        Decision::of(expanded.graph(), &domain, target).config()
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let domain = Domain::of(expanded.graph()).expect("the graph is supported");
        Decision::of(expanded.graph(), &domain, target).reasons()
    }

    fn smaller(
        &self,
        _graph: CanonicalGraph<'_>,
        _target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig> {
        config.halved("items").or_else(|| config.halved("vector"))
    }

    fn settings(&self, graph: CanonicalGraph<'_>, _target: &Target) -> Vec<Setting> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let domain = Domain::of(expanded.graph()).expect("the graph is supported");
        work::settings(expanded.graph(), &domain, self.name())
    }

    fn elementwise(&self) -> bool {
        true
    }

    fn lower(
        &self,
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Result<Lowering> {
        self.support(graph, target)?;
        let expanded = Expanded::of(graph)?;
        let graph = expanded.graph();
        let domain = Domain::of(graph)?;
        config.validate(&schedule::knobs(graph, &domain))?;
        let program = GraphProgram::whole(graph);
        let schedule = Schedule::new(graph, &domain, config)?;
        let kernel = parameters::kernel_plan(graph, &domain, &program, &schedule, target.arch);
        Ok(Lowering::from(kernel))
    }
}
