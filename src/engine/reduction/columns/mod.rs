//! The engine for reductions whose contiguous dimension is kept: neighbours in memory become
//! different values, as in sums of columns or the statistics of channels that lie last.
//!
//! A thread owns some neighbouring values, which it reads in wide accesses, and walks along the
//! reduced dimensions with the others of its block; shared memory joins their parts in a fixed
//! order. Every phase reads the elements again. Where there are few values, several blocks share
//! them, and the next kernel joins what those leave in scratch memory. The order of every sum
//! depends on the knobs alone, so results repeat.

mod heuristic;
mod layout;
mod parameters;
mod schedule;
mod work;

use crate::engine::access::GRID_MAX;
use crate::engine::expand::Expanded;
use crate::engine::reduction::checked_space;
use crate::engine::reduction::columns::heuristic::Decision;
use crate::engine::reduction::columns::parameters::lowering;
use crate::engine::reduction::columns::schedule::{Footprint, Schedule};
use crate::engine::reduction::space::Space;
use crate::engine::{BehaviorNote, Engine, EngineConfig, Knob, Lowering, Notes, Setting};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::target::Target;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ColumnsEngine;

impl Engine for ColumnsEngine {
    fn name(&self) -> &'static str {
        "reduction_columns"
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let expanded = Expanded::of(graph)?;
        let graph = expanded.graph();
        let space = checked_space(graph, target)?;
        if space.has_sums() {
            let text = "reductions along the kept dimensions of others";
            return Err(Error::not_supported(text.to_owned()));
        }
        if !space.is_across(graph) {
            let text = "neighbours in memory are reduced to one value";
            return Err(Error::not_supported(text.to_owned()));
        }
        let values = space.rows.count();
        if values > GRID_MAX {
            return Err(Error::not_supported(format!("{values} values exceed {GRID_MAX} blocks")));
        }
        Ok(())
    }

    fn knobs(&self, graph: CanonicalGraph<'_>, _target: &Target) -> Vec<Knob> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        schedule::knobs(expanded.graph(), &space)
    }

    fn heuristic(&self, graph: CanonicalGraph<'_>, target: &Target) -> EngineConfig {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        Decision::of(expanded.graph(), &space, target).config()
    }

    fn reasons(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<String> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        Decision::of(expanded.graph(), &space, target).reasons()
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
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        work::settings(expanded.graph(), &space)
    }

    fn notes(&self, _graph: CanonicalGraph<'_>, _target: &Target, config: &EngineConfig) -> Notes {
        let splits = config.knob("split").is_ok_and(|split| split > 1);
        let workspace = splits.then_some(BehaviorNote::Workspace);
        let behavior = std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace);
        Notes { behavior: behavior.collect(), ..Notes::default() }
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
        let space = Space::of(graph)?;
        config.validate(&schedule::knobs(graph, &space))?;
        let schedule = Schedule::new(&space, &Footprint::of(graph, &space), config)?;
        Ok(lowering(graph, &space, &schedule, target.arch))
    }
}
