//! The reduction engine: a graph of reductions along the same dimensions and of pointwise
//! operations before, between and after them.
//!
//! A row is the set of elements that is reduced to one value. Where it fits the registers of the
//! threads that share it, it is read from memory once, whatever the number of reductions; from
//! sm_90 on these may be the threads of a cluster's blocks. From sm_80 on rows may wait in shared
//! memory, copied while another one is reduced, which leaves registers to sums of columns. A longer
//! row is read again in each phase. A few long rows are split over several blocks, whose partial
//! results the next kernel combines. Sums of columns over all rows, such as the gradients of a
//! norm's parameters, are fused: each block sums its own rows, a second kernel the blocks'
//! partials. The order of additions depends on the knobs alone, so results are reproducible.
//!
//! A second engine, `reduction_columns`, is for layouts whose contiguous dimension is kept.

mod columns;
mod context;
mod held;
mod heuristic;
mod layout;
mod memory;
mod parameters;
mod phases;
mod schedule;
mod space;
mod staging;
mod step;
mod template;
mod variance;
mod work;

pub(super) use columns::ColumnsEngine;

use crate::engine::access::{PARAMETERS_MAX, beside_nothing, stored};
use crate::engine::config::combinations;
use crate::engine::decompose::Decomposed;
use crate::engine::reduction::heuristic::Decision;
use crate::engine::reduction::parameters::lowering;
use crate::engine::reduction::schedule::{Footprint, Refusal, Schedule, Settings};
use crate::engine::reduction::space::Space;
use crate::engine::reduction::work::Demand;
use crate::engine::signature::refuse_i64;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{
    BehaviorNote, Engine, KernelWork, Knob, LayoutInfo, LayoutType, Notes, Supported,
};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation};
use crate::kernel::Lowering;
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Minimum compute capability of the templates.
const CAPABILITY_MIN: u16 = 75;

const NAME: &str = "reduction";

/// The engine `reduction`: rows are contiguous, and a group of threads reduces each.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReductionEngine;

impl Engine for ReductionEngine {
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
        let (graph, space) = (reductions.graph(), &reductions.space);
        if space.has_sums() && space.columns.count() == 0 {
            return Err(Error::not_supported(
                "rows without elements next to sums of their columns",
            ));
        }
        let decision = Decision::of(graph, space, target);
        if space.has_sums() && !decision.is_resident() {
            let columns = space.columns.count();
            return Err(Error::not_supported(format!(
                "rows of {columns} elements do not fit next to sums of their columns, neither in \
                 registers nor in shared memory"
            )));
        }
        let (footprint, demand) = (Footprint::of(graph, space, target), Demand::of(graph, space));
        let best = decision.settings();
        Ok(Box::new(Tuned::of(Rows { reductions, footprint, demand, decision }, [best])?))
    }
}

/// A graph of reductions and pointwise operations with the space that its elements span.
#[derive(Debug, Clone)]
struct Reductions<'a> {
    decomposed: Decomposed<'a>,
    space: Space,
    target: &'a Target,
}

impl<'a> Reductions<'a> {
    /// # Errors
    /// `NotSupported` with the rule that refused.
    fn of(graph: CanonicalGraph<'a>, target: &'a Target) -> Result<Reductions<'a>> {
        let decomposed = Decomposed::of(graph)?.with_dots();
        let space = checked_space(decomposed.graph(), target)?;
        Ok(Reductions { decomposed, space, target })
    }

    fn graph(&self) -> CanonicalGraph<'_> {
        self.decomposed.graph()
    }

    /// The layouts of the elements in which a reduced dimension is packed, or one that is kept.
    fn layouts(&self, reduced: bool) -> Vec<LayoutInfo> {
        let CanonicalGraph { tensors, uids, .. } = self.graph();
        let layouts = |(at, uid): (usize, &i64)| {
            let (tensor, last) = (&tensors[at], tensors[at].dims.len().checked_sub(1)?);
            // Of two dimensions or one there is but one layout.
            if last < 2 || tensor.is_virtual || self.space.is_row(at) {
                return None;
            }
            let packs = |axis: &usize| self.space.is_reduced(*axis) == reduced;
            let preferred = [(last, LayoutType::Nchw), (1, LayoutType::Nhwc)];
            let preferred = preferred.into_iter().filter(|(axis, _)| packs(axis));
            let types: Vec<LayoutType> = preferred.map(|(_, layout)| layout).collect();
            (!types.is_empty()).then_some(LayoutInfo { uid: *uid, types })
        };
        uids.iter().enumerate().filter_map(layouts).collect()
    }
}

/// Reductions whose rows are shared by neighbouring threads.
#[derive(Debug, Clone)]
struct Rows<'a> {
    reductions: Reductions<'a>,
    footprint: Footprint,
    demand: Demand,
    decision: Decision,
}

impl Tunable<8> for Rows<'_> {
    const KNOBS: [&'static str; 8] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = Refusal;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 8] {
        let Reductions { space, target, .. } = &self.reductions;
        schedule::knobs(self.reductions.graph(), space, target)
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, Refusal> {
        let Reductions { space, target, .. } = &self.reductions;
        Schedule::new(space, &self.footprint, target, settings)
    }

    fn best(&self) -> Settings {
        self.decision.settings()
    }

    fn reasons(&self) -> Vec<String> {
        self.decision.reasons()
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        let Settings { cluster, items, stages, threads_row, vector, .. } = settings;
        // More threads of the same block hold less of a row each; then it is read again.
        vec![
            Settings { threads_row: threads_row * 2, ..settings },
            Settings { items: items / 2, ..settings },
            Settings { stages: stages / 2, ..settings },
            Settings { vector: vector / 2, ..settings },
            Settings { cluster: cluster / 2, ..settings },
        ]
    }

    fn ranked(&self) -> Vec<Settings> {
        // Most combinations give a row more threads than a block has: they need no schedule.
        let fits = |of: &Settings| match of.threads == of.threads_row {
            _ if of.stages > 0 && (of.grid == 0 || of.split > 1) => false,
            true => of.cluster == 1 || of.split == 1,
            false => of.threads > of.threads_row && of.split == 1 && of.cluster == 1,
        };
        combinations(&self.all_knobs()).map(Settings::from).filter(fits).collect()
    }

    fn notes(&self, settings: Settings) -> Notes {
        let sums = self.reductions.space.has_sums();
        let workspace = (settings.split > 1 || sums).then_some(BehaviorNote::Workspace);
        let behavior = std::iter::once(BehaviorNote::RuntimeCompilation).chain(workspace);
        Notes { behavior: behavior.collect(), ..Notes::default() }
    }

    fn layouts(&self) -> Vec<LayoutInfo> {
        self.reductions.layouts(true)
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        self.demand.work(&self.reductions.space, &self.footprint, schedule)
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let Reductions { space, target, .. } = &self.reductions;
        lowering(self.reductions.graph(), space, schedule, target.arch)
    }
}

/// Parameters that are numbers: of rows, or of values and of what becomes one of them.
const NUMBERS_MAX: usize = 2;

/// The space of an decomposed graph, where kernels for its reductions can take all they need.
///
/// # Errors
/// `NotSupported` with the rule that refused.
fn checked_space(graph: CanonicalGraph<'_>, target: &Target) -> Result<Space> {
    let other = |operation: &&Operation| {
        !operation.is_elementwise() && !matches!(operation.op, Op::Reduction(_))
    };
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
    if passed + NUMBERS_MAX > PARAMETERS_MAX {
        return Err(Error::not_supported(format!(
            "{passed} tensors and partial results exceed the {} parameters of a kernel",
            PARAMETERS_MAX - NUMBERS_MAX
        )));
    }
    let space = Space::of(graph)?;
    if let Some(tensor) = unwritten(graph, &space) {
        return Err(beside_nothing(tensor));
    }
    Ok(space)
}

/// A tensor with elements that no thread would write, since the space has none.
fn unwritten<'a>(graph: CanonicalGraph<'a>, space: &Space) -> Option<&'a TensorDesc> {
    let (rows, columns) = (space.rows.count(), space.columns.count());
    if rows > 0 && columns > 0 {
        return None;
    }
    // Rows without elements still have values; their columns have no sums.
    let is_written = |at: usize| rows > 0 && space.is_row(at) && !space.follows_sums(at);
    stored(graph)
        .find(|(at, tensor)| graph.is_written(*at) && !tensor.is_empty() && !is_written(*at))
        .map(|(_, tensor)| tensor)
}
