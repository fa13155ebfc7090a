//! Which setting of a part runs: its own, a smaller one where the assembler had to spill registers,
//! that of the next engine where a kernel does not compile.
//!
//! A heuristic estimates registers, the assembler knows them. Plans, warm-ups and the proof that
//! packs cover a manifest all step down here, so that they want the same kernels.

use tracing::warn;

use crate::engine::Part;
use crate::error::{Error, Result};
use crate::plan::context::planner::Planner;
use crate::target::Target;

/// What came of the kernels of a setting.
pub(in crate::plan) enum Attempt {
    /// All of them are there.
    Built {
        /// Whether one keeps registers in memory.
        spills: bool,
    },
    /// One of them does not compile.
    Refused(Error),
}

/// A part on its way to the setting that runs.
#[derive(Debug)]
pub(in crate::plan) struct StepDown {
    part: Part,
    /// The first setting whose kernels do not compile: why.
    refused: Option<Error>,
    /// No other setting takes its place.
    asked_for: bool,
}

impl StepDown {
    /// From the setting that was chosen for a part.
    pub(in crate::plan) fn from(part: Part) -> StepDown {
        StepDown { part, refused: None, asked_for: false }
    }

    /// Starts from a setting that was asked for by name: no other is tried.
    pub(in crate::plan) fn asked_for(part: Part) -> StepDown {
        StepDown { asked_for: true, ..StepDown::from(part) }
    }

    /// The part with the setting to try.
    pub(in crate::plan) fn part(&self) -> &Part {
        &self.part
    }

    pub(in crate::plan) fn into_part(self) -> Part {
        self.part
    }

    /// Takes what came of it; whether another setting is to be tried, else this one runs.
    ///
    /// # Errors
    /// Those of the first engine, where no other takes the place of the last.
    pub(in crate::plan) fn next(
        &mut self,
        attempt: Attempt,
        planner: &Planner,
        target: &Target,
    ) -> Result<bool> {
        let next = match attempt {
            Attempt::Built { spills: true } if !self.asked_for => self.part.smaller(target)?,
            Attempt::Built { .. } => None,
            Attempt::Refused(error) => {
                let next = match planner.steps_down && !self.asked_for {
                    true => self.part.next_engine(target, &planner.selection)?,
                    false => None,
                };
                let Some(next) = next else { return Err(self.refused.take().unwrap_or(error)) };
                let (failed, arch) = (&self.part.config, target.arch);
                let config = &next.config;
                warn!("{failed} does not compile for {arch}, {config} runs instead: {error}");
                self.refused.get_or_insert(error);
                Some(next)
            }
        };
        let goes_on = next.is_some();
        self.part = next.unwrap_or_else(|| self.part.clone());
        Ok(goes_on)
    }
}
