//! The stages of a plan: each recurrence is one, and all that is between two.

use crate::graph::OperationGraph;

/// Numbers the stages of a plan part by part.
#[derive(Default)]
pub(super) struct Stages {
    count: usize,
    /// Whether the last part is a recurrence.
    recurs: bool,
}

impl Stages {
    /// The stage of the next part.
    pub(super) fn next(&mut self, part: &OperationGraph) -> usize {
        let recurs = part.is_recurrent();
        if self.count == 0 || self.recurs || recurs {
            self.count += 1;
        }
        self.recurs = recurs;
        self.count - 1
    }
}
