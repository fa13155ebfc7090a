//! Planning within a workspace of a given size.

use crate::engine::{BehaviorNote, partition};
use crate::error::{ErrorKind, Result};
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;

impl Kiln {
    /// As [`Kiln::plan_anew`], with a workspace of at most so many bytes if that is possible: where
    /// the configurations that are chosen, or that they fall back to, may need more, those that
    /// need none.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_within(&self, graph: &OperationGraph, bytes: u64) -> Result<ExecutionPlan> {
        if self.workspace_max(graph, &self.candidates(graph)?)?.bytes() <= bytes {
            return self.plan_anew(graph);
        }
        let mut selection = self.selection().clone();
        selection.without.behavior.push(BehaviorNote::Workspace);
        match partition(graph, self.device().target(), &selection) {
            Ok(parts) => self.inner.plan_of(graph, self.inner.compiled_best(parts)?, None),
            Err(error) if error.kind() == ErrorKind::NotSupported => self.plan_anew(graph),
            Err(error) => Err(error),
        }
    }
}
