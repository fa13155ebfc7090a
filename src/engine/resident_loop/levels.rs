//! The order of stages: those of a level read nothing of each other.

use crate::graph::ResidentLoop;

/// Stages by level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Levels {
    /// The stages of each level.
    pub(super) stages: Vec<Vec<usize>>,
    /// The level behind which the condition is known.
    pub(super) condition: Option<usize>,
}

impl Levels {
    pub(super) fn of(op: &ResidentLoop) -> Levels {
        let first = op.first_results();
        let stage_of = |value: usize| first.partition_point(|first| *first <= value) - 1;
        let given = op.frame.given();
        let mut levels: Vec<usize> = Vec::new();
        for stage in &op.stages {
            let read = stage.views().filter(|view| view.value >= given);
            let behind = read.map(|view| levels[stage_of(view.value)] + 1);
            levels.push(behind.max().unwrap_or(0));
        }
        let mut stages = vec![Vec::new(); levels.iter().max().map_or(0, |most| most + 1)];
        for (stage, level) in levels.iter().enumerate() {
            stages[*level].push(stage);
        }
        let condition = op.yields.last().filter(|_| op.frame.condition);
        Levels { stages, condition: condition.map(|value| levels[stage_of(*value)]) }
    }
}
