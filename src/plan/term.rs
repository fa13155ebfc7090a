//! Plans of graphs that are a progression: those of two neighbours tell the others, and no engine
//! is asked.

use std::sync::Arc;

use crate::engine::Part;
use crate::error::Result;
use crate::graph::OperationGraph;
use crate::kernel::LaunchPlan;
use crate::plan::build::{Kiln, plan_span};
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe::{BuiltPart, Obtained, PlannedKernel};
use crate::plan::upgrade::Tier;
use crate::progression::Progression;

impl Kiln {
    /// The plan so many behind the first of a progression, given that and the next: it runs the
    /// kernels of the first. `None` where these two are not the begin of one.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_term(
        &self,
        first: &ExecutionPlan,
        second: &ExecutionPlan,
        at: i64,
    ) -> Result<Option<ExecutionPlan>> {
        let span = plan_span(first.parts().into_iter(), self.device().target());
        let parts = || {
            let pairs = by_parts(first).zip(by_parts(second));
            let parts = pairs.map(|(first, second)| self.part_term(first, second, at));
            parts.collect::<Option<Vec<BuiltPart>>>()
        };
        let alike = [first, second].iter().all(|plan| plan.tier() == Tier::Special)
            && first.kernels().len() == second.kernels().len();
        let graph = OperationGraph::term(first.graph(), second.graph(), at).filter(|_| alike);
        match graph.and_then(|graph| Some((graph, parts()?))) {
            Some((graph, parts)) => self.inner.plan_as_told(&graph, parts, &span).map(Some),
            None => Ok(None),
        }
    }

    fn part_term(
        &self,
        first: &[PlannedKernel],
        second: &[PlannedKernel],
        at: i64,
    ) -> Option<BuiltPart> {
        let (part, other) = (first[0].part(), second[0].part());
        if first.len() != second.len() || part.config != other.config {
            return None;
        }
        let graph = OperationGraph::term(&part.graph, &other.graph, at)?;
        let scratch = Vec::term(&first[0].scratch, &second[0].scratch, at)?;
        let kernel = |(first, second): (&PlannedKernel, &PlannedKernel)| {
            let launch = LaunchPlan::term(&first.described, &second.described, at)?;
            Some(self.inner.again(&Obtained::of_planned(first), launch))
        };
        let kernels = first.iter().zip(second).map(kernel).collect::<Option<_>>()?;
        let part = Arc::new(Part { graph, config: part.config.clone() });
        Some(BuiltPart { part, kernels, scratch })
    }
}

fn by_parts(plan: &ExecutionPlan) -> impl Iterator<Item = &[PlannedKernel]> {
    plan.kernels().chunk_by(|a, b| Arc::ptr_eq(&a.part, &b.part))
}

impl ExecutionPlan {
    /// Whether another plan of an equal graph launches the same.
    pub(crate) fn launches_as(&self, other: &ExecutionPlan) -> bool {
        let (own, theirs) = (self.recipe(), other.recipe());
        let same = |(own, other): (&PlannedKernel, &PlannedKernel)| {
            own.part == other.part
                && own.spec == other.spec
                && own.launch == other.launch
                && own.described == other.described
                && own.scratch == other.scratch
                && own.feeds == other.feeds
                && own.map_bases == other.map_bases
        };
        self.graph() == other.graph()
            && own.workspace_bytes == theirs.workspace_bytes
            && own.bindings == theirs.bindings
            && own.kernels.len() == theirs.kernels.len()
            && own.kernels.iter().zip(&theirs.kernels).all(same)
    }
}
