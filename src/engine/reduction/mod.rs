//! The reduction engine: a graph of reductions along the same dimensions and of pointwise
//! operations before, between and after them.
//!
//! A row is everything that becomes one value. Where it fits the registers of the threads that
//! share it, it is read from memory once, whatever the number of reductions; a longer row is read
//! again in each phase. A few long rows are split over several blocks, whose partial results the
//! next kernel combines. Sums of columns over all rows, such as the gradients of a norm's
//! parameters, ride along: each block sums up its own rows', a second kernel the blocks'. The order
//! of every sum depends on the knobs alone, so results repeat.
//!
//! A second engine, `reduction_columns`, is for layouts whose contiguous dimension is kept.

mod columns;
mod context;
mod heuristic;
mod layout;
mod memory;
mod parameters;
mod phases;
mod schedule;
mod space;
mod work;

pub(super) use columns::ColumnsEngine;

use crate::engine::access::PARAMETERS_MAX;
use crate::engine::expand::Expanded;
use crate::engine::reduction::heuristic::Decision;
use crate::engine::reduction::parameters::lowering;
use crate::engine::reduction::schedule::{Footprint, Schedule};
use crate::engine::reduction::space::Space;
use crate::engine::{BehaviorNote, Engine, EngineConfig, Knob, Lowering, Notes, Setting};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation};
use crate::target::Target;

/// The oldest architecture the templates are written for.
const CAPABILITY_MIN: u16 = 75;

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReductionEngine;

impl Engine for ReductionEngine {
    fn name(&self) -> &'static str {
        "reduction"
    }

    fn support(&self, graph: CanonicalGraph<'_>, target: &Target) -> Result<()> {
        let expanded = Expanded::of(graph)?;
        let graph = expanded.graph();
        let space = checked_space(graph, target)?;
        if space.has_sums() && !Decision::of(graph, &space, target).is_kept() {
            let columns = space.columns.count();
            return Err(Error::not_supported(format!(
                "rows of {columns} elements do not fit registers next to sums of their columns"
            )));
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
        graph: CanonicalGraph<'_>,
        target: &Target,
        config: &EngineConfig,
    ) -> Option<EngineConfig> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        let footprint = Footprint::of(expanded.graph(), &space);
        let knobs = schedule::knobs(expanded.graph(), &space);
        let with = |knob: &str, change: fn(i64) -> i64| {
            let changed = config.clone().with(knob, change(config.knob(knob).ok()?));
            let schedule = Schedule::new(&space, &footprint, target, &changed);
            (changed.validate(&knobs).is_ok() && schedule.is_ok()).then_some(changed)
        };
        // More threads of the same block hold less of a row each; then it is read again.
        with("threads_row", |threads| threads * 2)
            .or_else(|| with("items", |items| items / 2))
            .or_else(|| with("vector", |vector| vector / 2))
    }

    fn settings(&self, graph: CanonicalGraph<'_>, target: &Target) -> Vec<Setting> {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        work::settings(expanded.graph(), &space, target)
    }

    fn notes(&self, graph: CanonicalGraph<'_>, _target: &Target, config: &EngineConfig) -> Notes {
        let expanded = Expanded::of(graph).expect("the graph is supported");
        let space = Space::of(expanded.graph()).expect("the graph is supported");
        let splits = config.knob("split").is_ok_and(|split| split > 1);
        let workspace = (splits || space.has_sums()).then_some(BehaviorNote::Workspace);
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
        let schedule = Schedule::new(&space, &Footprint::of(graph, &space), target, config)?;
        Ok(lowering(graph, &space, &schedule, target.arch))
    }
}

/// The space of an expanded graph, where kernels for its reductions can take all they need.
///
/// # Errors
/// `NotSupported` with the rule that refused.
fn checked_space(graph: CanonicalGraph<'_>, target: &Target) -> Result<Space> {
    let other = |of: &&Operation| matches!(of.op, Op::Matmul(_) | Op::Attention(_));
    if let Some(Operation { op, .. }) = graph.operations.iter().find(other) {
        let text = format!("{op} is neither pointwise nor a reduction");
        return Err(Error::not_supported(text));
    }
    if target.arch.capability < CAPABILITY_MIN {
        let arch = target.arch;
        return Err(Error::not_supported(format!("{arch} is older than sm_{CAPABILITY_MIN}")));
    }
    // A split row adds the partial results of every reduction.
    let reduces = |operation: &&Operation| matches!(operation.op, Op::Reduction(_));
    let stored = graph.tensors.iter().filter(|tensor| !tensor.is_virtual).count();
    let passed = stored + graph.operations.iter().filter(reduces).count();
    if passed > PARAMETERS_MAX {
        return Err(Error::not_supported(format!(
            "{passed} tensors and partial results exceed the {PARAMETERS_MAX} parameters of a \
             kernel"
        )));
    }
    Space::of(graph)
}
