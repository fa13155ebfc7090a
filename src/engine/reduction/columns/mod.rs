//! The engine for reductions whose contiguous dimension is kept: neighbours in memory become
//! different values, as in sums of columns or the statistics of channels that lie last.
//!
//! A thread owns some neighbouring values, which it reads in wide accesses, and walks along the
//! reduced dimensions with the others of its block; their partials are combined in shared
//! memory in a fixed order. Every phase reads the elements again. Where there are few values,
//! several blocks share them, and the next kernel combines their partials. The order of additions
//! depends on the knobs alone, so results are reproducible.

mod heuristic;
mod layout;
mod parameters;
mod schedule;
mod work;

use crate::engine::access::GRID_MAX;
use crate::engine::reduction::Reductions;
use crate::engine::reduction::columns::heuristic::Decision;
use crate::engine::reduction::columns::parameters::lowering;
use crate::engine::reduction::columns::schedule::{Footprint, Schedule, Settings};
use crate::engine::reduction::columns::work::Demand;
use crate::engine::signature::refuse_i64;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, LayoutInfo, Notes, Supported};
use crate::error::{Error, Result};
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "reduction_columns";

/// The engine `reduction_columns`: neighbours in memory become different values.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ColumnsEngine;

impl Engine for ColumnsEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    // Elements that are reduced may be read again, in a later phase.
    fn adds_in_place(&self, is_whole: bool) -> bool {
        !is_whole
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
        let graph = reductions.graph();
        let (footprint, demand) = (Footprint::of(graph, space), Demand::of(graph, space));
        let columns = Columns { reductions, footprint, demand };
        let best = columns.best();
        Ok(Box::new(Tuned::of(columns, [best])?))
    }
}

/// Reductions whose elements are strided in memory.
#[derive(Debug, Clone)]
struct Columns<'a> {
    reductions: Reductions<'a>,
    footprint: Footprint,
    demand: Demand,
}

impl Columns<'_> {
    fn decision(&self) -> Decision {
        let Reductions { space, target, .. } = &self.reductions;
        Decision::of(self.reductions.graph(), space, target)
    }
}

impl Tunable<5> for Columns<'_> {
    const KNOBS: [&'static str; 5] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 5] {
        schedule::knobs(self.reductions.graph(), &self.reductions.space)
    }

    fn listed_knobs(&self) -> Vec<Knob> {
        schedule::for_any_count(self.all_knobs()).into()
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        Schedule::new(&self.reductions.space, &self.footprint, settings)
    }

    fn best(&self) -> Settings {
        self.decision().settings()
    }

    fn reasons(&self) -> Vec<String> {
        self.decision().reasons()
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { items, vector, .. } = settings;
        vec![Settings { items: items / 2, ..settings }, Settings { vector: vector / 2, ..settings }]
    }

    fn notes(&self, settings: Settings) -> Notes {
        let workspace = (settings.split > 1).then_some(BehaviorNote::Workspace);
        let behavior = std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace);
        Notes { behavior: behavior.collect(), ..Notes::default() }
    }

    fn layouts(&self) -> Vec<LayoutInfo> {
        self.reductions.layouts(false)
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        self.demand.work(&self.footprint, schedule)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let Reductions { space, target, .. } = &self.reductions;
        lowering(self.reductions.graph(), space, schedule, target.arch)
    }
}
