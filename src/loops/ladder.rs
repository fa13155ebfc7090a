//! How loops are run: as one operation of a graph where they are one, else trip by trip.

use std::collections::HashMap;

use crate::error::Result;
use crate::loops::layer::Loop;
use crate::loops::network::Network;
use crate::loops::pointwise::pointwise;
use crate::loops::recurrent::recurrent;
use crate::loops::rewrite::Rewrite;

/// What a loop is rewritten to, or why it is not.
type Attempt = fn(&Network, Loop) -> std::result::Result<(Rewrite<'_>, LoopOperation), String>;

/// Names of the steps.
pub(super) const RECURRENT: &str = "recurrent layer";
pub(super) const POINTWISE: &str = "pointwise loop";

/// The steps of the ladder before a launch for each trip, from the first one.
const STEPS: [(&str, Attempt); 2] = [(RECURRENT, recurrent), (POINTWISE, pointwise)];

/// A loop that is one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopOperation {
    /// The loop.
    pub(crate) of: Loop,
    /// The step of the ladder.
    pub(crate) step: &'static str,
    /// The tensor that has a count.
    pub(crate) count: Option<i64>,
    /// The tensor that has the number of trips, where a condition decides it.
    pub(crate) trips: Option<i64>,
    /// The least extent that the loop iterates over.
    pub(crate) extent: i64,
    /// The least length of its outputs.
    pub(crate) length: i64,
    /// A result of the operation.
    pub(super) y: i64,
}

/// Steps that are not taken, by loop and name, with the reason.
pub(crate) type Refusals = HashMap<(Loop, &'static str), String>;

/// The steps that were taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ladder {
    /// Loops that are operations.
    pub(crate) operations: Vec<LoopOperation>,
    /// Why others are not, step by step.
    pub(crate) refused: HashMap<Loop, Vec<String>>,
}

impl Network {
    /// Every step of every loop, for one reason.
    pub(crate) fn all_refused(&self, reason: &str) -> Refusals {
        let steps = |of| STEPS.map(|(step, _)| ((of, step), reason.to_owned()));
        self.loops().flat_map(steps).collect()
    }

    /// The network with an operation for each loop that is one. `refused` has steps that are
    /// not taken.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub(super) fn with_operations(&self, refused: &Refusals) -> Result<(Network, Ladder)> {
        let mut network = self.clone();
        let mut ladder = Ladder::default();
        for of in self.loops().filter(|of| self.boundaries(*of).next().is_some()) {
            for (step, attempt) in STEPS {
                let known = refused.get(&(of, step)).cloned();
                let own = known.map_or_else(|| attempt(&network, of), Err);
                match own.map(|(rewrite, operation)| (rewrite.network(), operation)) {
                    Ok((rewritten, operation)) => {
                        network = rewritten?;
                        ladder.operations.push(operation);
                        break;
                    }
                    Err(reason) => {
                        let reasons = ladder.refused.entry(of).or_default();
                        reasons.push(format!("no {step}: {reason}"));
                    }
                }
            }
        }
        Ok((network, ladder))
    }
}
