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
use crate::engine::header::described;
use crate::engine::reduction::Reductions;
use crate::engine::reduction::columns::heuristic::Decision;
use crate::engine::reduction::columns::parameters::lowering;
use crate::engine::reduction::columns::schedule::{Footprint, Schedule};
use crate::engine::signature::refuse_i64;
use crate::engine::{
    BehaviorNote, Engine, EngineConfig, Knob, LayoutInfo, Notes, Setting, Supported, WorkOf,
};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "reduction_columns";

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ColumnsEngine;

impl Engine for ColumnsEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        refuse_i64(graph)?;
        let reductions = Reductions::of(graph, target)?;
        let space = &reductions.space;
        if space.has_sums() {
            let text = "reductions along the kept dimensions of others";
            return Err(Error::not_supported(text.to_owned()));
        }
        if !space.is_across(reductions.graph()) {
            let text = "neighbours in memory are reduced to one value";
            return Err(Error::not_supported(text.to_owned()));
        }
        let values = space.rows.count();
        if values > GRID_MAX {
            return Err(Error::not_supported(format!("{values} values exceed {GRID_MAX} blocks")));
        }
        Ok(Box::new(Columns(reductions)))
    }
}

/// Reductions of elements that lie apart in memory.
#[derive(Debug, Clone)]
struct Columns<'a>(Reductions<'a>);

impl Columns<'_> {
    fn decision(&self) -> Decision {
        Decision::of(self.0.graph(), &self.0.space, self.0.target)
    }
}

impl Supported for Columns<'_> {
    fn knobs(&self) -> Vec<Knob> {
        schedule::knobs(self.0.graph(), &self.0.space)
    }

    fn heuristic(&self) -> EngineConfig {
        self.decision().config()
    }

    fn reasons(&self) -> Vec<String> {
        self.decision().reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        let space = &self.0.space;
        let footprint = Footprint::of(self.0.graph(), space);
        let runs = |config: &EngineConfig| Schedule::new(space, &footprint, config).is_ok();
        let halved = |knob| config.halved(knob).filter(runs);
        halved("items").or_else(|| halved("vector"))
    }

    fn settings(&self) -> Vec<Setting> {
        work::settings(self.0.graph(), &self.0.space)
    }

    fn work_of(&self) -> WorkOf<'_> {
        Box::new(work::of_setting(self.0.graph(), &self.0.space))
    }

    fn notes(&self, config: &EngineConfig) -> Notes {
        let splits = config.knob("split").is_ok_and(|split| split > 1);
        let workspace = splits.then_some(BehaviorNote::Workspace);
        let behavior = std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace);
        Notes { behavior: behavior.collect(), ..Notes::default() }
    }

    fn layouts(&self) -> Vec<LayoutInfo> {
        self.0.layouts(false)
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        config.validate(&self.knobs())?;
        let (graph, space) = (self.0.graph(), &self.0.space);
        let schedule = Schedule::new(space, &Footprint::of(graph, space), config)?;
        let lowering = lowering(graph, space, &schedule, self.0.target.arch);
        Ok(described(lowering, config, &schedule::for_any_count(self.knobs())))
    }
}
