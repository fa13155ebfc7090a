//! Fallback configurations: a lower-register one if a kernel spills registers, that of the next
//! engine if a kernel does not compile or the device does not hold its blocks.
//!
//! Heuristics estimate registers; only the assembler knows them. Plans, warm-ups and the coverage
//! check of packs all follow the fallback sequence implemented here, so that they need the same
//! kernels.

use tracing::warn;

use crate::engine::Part;
use crate::error::{Error, Result};
use crate::plan::context::planner::Planner;
use crate::target::Target;

/// The result of building the kernels of a configuration.
pub(in crate::plan) enum Attempt {
    /// All compiled.
    Built {
        /// Whether one of them spills registers.
        spills: bool,
    },
    /// One does not compile, or cannot be launched on this device.
    Refused(Error),
}

/// A part and its position in the sequence of fallback configurations.
#[derive(Debug)]
pub(in crate::plan) struct StepDown {
    part: Part,
    /// The error of the first configuration that was refused.
    refused: Option<Error>,
    /// Whether the configuration was requested, so that there is no fallback.
    asked_for: bool,
}

impl StepDown {
    /// Starts with the configuration that was chosen for the part.
    pub(in crate::plan) fn from(part: Part) -> StepDown {
        StepDown { part, refused: None, asked_for: false }
    }

    /// Starts with a requested configuration, which has no fallback.
    pub(in crate::plan) fn asked_for(part: Part) -> StepDown {
        StepDown { asked_for: true, ..StepDown::from(part) }
    }

    /// The part with the configuration to try.
    pub(in crate::plan) fn part(&self) -> &Part {
        &self.part
    }

    pub(in crate::plan) fn into_part(self) -> Part {
        self.part
    }

    /// Moves on after an attempt. Returns whether there is another configuration to try; if not,
    /// the last one is run.
    ///
    /// # Errors
    /// The error of the first configuration that does not compile, if there is no fallback.
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
                warn!("{failed} is refused for {arch}, {config} runs instead: {error}");
                self.refused.get_or_insert(error);
                Some(next)
            }
        };
        let goes_on = next.is_some();
        self.part = next.unwrap_or_else(|| self.part.clone());
        Ok(goes_on)
    }
}
