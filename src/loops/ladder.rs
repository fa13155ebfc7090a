//! How loops are run: as one operation of a graph where they are one, else trip by trip.

use std::collections::HashMap;

use crate::error::Result;
use crate::loops::layer::Loop;
use crate::loops::loop_operation::{LoopOperation, POINTWISE, RECURRENT, RESIDENT};
use crate::loops::network::Network;
use crate::loops::pointwise::pointwise;
use crate::loops::recurrent::recurrent;
use crate::loops::resident::resident;
use crate::loops::rewrite::Rewrite;

/// What a loop is rewritten to, or why it is not.
type Attempt = fn(&Network, Loop) -> std::result::Result<(Rewrite<'_>, LoopOperation), String>;

/// The steps of the ladder before a launch for each trip, from the first one.
const STEPS: [(&str, Attempt); 3] =
    [(RECURRENT, recurrent), (POINTWISE, pointwise), (RESIDENT, resident)];

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
                let rewritten = own.and_then(|(rewrite, operation)| {
                    let network = rewrite.network().map_err(|error| error.to_string())?;
                    Ok((network, operation))
                });
                match rewritten {
                    Ok((rewritten, operation)) => {
                        network = rewritten;
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
