//! The tensors of a loop that is one operation, by what they are.

use crate::engine::signature::distinct;
use crate::graph::{CanonicalGraph, LoopFrame, Operation};

/// Positions of a loop's tensors in its graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoopTensors<'a> {
    pub(super) frame: &'a LoopFrame,
    pub(super) operation: &'a Operation,
}

impl LoopTensors<'_> {
    /// The count.
    pub(super) fn count(self) -> Option<usize> {
        self.frame.count.then(|| self.operation.inputs[0] as usize)
    }

    /// States, then what is iterated, then what is captured.
    pub(super) fn operands(self) -> Vec<usize> {
        let operands = &self.operation.inputs[usize::from(self.frame.count)..];
        operands.iter().map(|at| *at as usize).collect()
    }

    /// The states with their last values.
    pub(super) fn last(self) -> Vec<(usize, usize)> {
        let outputs = self.operation.outputs.iter().map(|at| *at as usize);
        self.frame.handed().zip(outputs).collect()
    }

    /// What is stacked.
    pub(super) fn stacked(self) -> Vec<usize> {
        let handed = self.frame.handed().count();
        let outputs = self.operation.outputs[handed..].iter().take(self.frame.stacked.len());
        outputs.map(|at| *at as usize).collect()
    }

    /// The number of trips that were made.
    pub(super) fn trips_made(self) -> Option<usize> {
        let last = self.operation.outputs.last().filter(|_| self.frame.condition);
        last.map(|at| *at as usize)
    }

    /// All of them, each once.
    pub(super) fn passed(self) -> Vec<usize> {
        let last = self.last().into_iter().map(|(_, at)| at);
        let results = last.chain(self.stacked()).chain(self.trips_made());
        distinct(self.count().into_iter().chain(self.operands()).chain(results))
    }

    /// Trips that tensors have elements for.
    pub(super) fn trips(self, graph: CanonicalGraph<'_>) -> Option<i64> {
        let operands = self.operands();
        let iterated = operands[self.frame.states..].iter().take(self.frame.iterated.len());
        let stacked = self.stacked();
        iterated.chain(&stacked).map(|at| graph.tensors[*at].dims[0]).max()
    }
}
