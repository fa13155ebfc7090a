//! CTC loss and its gradient: one kernel, a block for each sequence.
//!
//! States of the recursion lie in threads: a pair of a blank and the label behind it in each, so
//! that one number passes from thread to thread at each step, by a shuffle and between warps
//! through shared memory. What leads to a state from the front and what it leads to from the end
//! are found at the same time by different warps, which is half the steps of one behind the other;
//! backwards is the same recursion on the sequence backwards. Logarithms of probabilities are
//! taken before and the gradient is written behind it by all warps, a step each, so that classes
//! are read and written in whole lines. Nothing is added atomically: equal labels are summed by the
//! thread of the first of them, in order.

mod parameters;
mod problem;
mod schedule;

use crate::engine::ctc::parameters::Parameters;
use crate::engine::ctc::problem::Problem;
use crate::engine::ctc::schedule::{SHARED, Schedule, Settings, WORKSPACE};
use crate::engine::header::KernelNames;
use crate::engine::signature::arguments;
use crate::engine::tunable::{Tunable, Tuned};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::{Argument, Grid, KernelPlan, LaunchPlan, Lowering};
use crate::target::Target;

const NAME: &str = "ctc_loss";

/// Threads that keep an SM's memory accesses in flight, and the fewest and most for one block.
const THREADS_SM: i64 = 1024;
const THREADS: [i64; 5] = [64, 128, 256, 512, 1024];

/// The engine `ctc_loss`: every CTC loss of tensors in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct CtcEngine;

impl Engine for CtcEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn adds_in_place(&self, _is_whole: bool) -> bool {
        true
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = Problem::of(graph, target.arch.capability)?;
        let loss = Loss { problem, target };
        let best = loss.best();
        Ok(Box::new(Tuned::of(loss, [best])?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Loss<'a> {
    problem: Problem<'a>,
    target: &'a Target,
}

impl Loss<'_> {
    /// The fewest threads with which every SM has enough in flight.
    fn threads(&self) -> i64 {
        let waves = self.problem.sequences / i64::from(self.target.sm_count);
        let wanted = (THREADS_SM / (waves + 1)).clamp(128, 512);
        let legal = |threads: &i64| {
            let settings = Settings { lattice: WORKSPACE, threads: *threads };
            *threads >= wanted && self.schedule(settings).is_ok()
        };
        THREADS.into_iter().find(legal).unwrap_or(THREADS[4])
    }
}

impl Tunable<2> for Loss<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let lattice = "logarithms of all steps: 0 in shared memory, 1 in the workspace";
        [
            Knob { name: "lattice", about: lattice, values: vec![SHARED, WORKSPACE] },
            Knob { name: "threads", about: "threads per block", values: THREADS.to_vec() },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        Schedule::of(&self.problem, self.target, settings)
    }

    fn best(&self) -> Settings {
        let shared = Settings { lattice: SHARED, threads: self.threads() };
        match self.schedule(shared) {
            Ok(_) => shared,
            Err(_) => Settings { lattice: WORKSPACE, ..shared },
        }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { lattice, threads } = self.best();
        let bytes = self.problem.lattice_bytes();
        let place = if lattice == SHARED { "fits in" } else { "does not fit in" };
        vec![
            format!("lattice={lattice}: that of a sequence, {bytes} bytes, {place} shared memory"),
            format!(
                "threads={threads}: {} sequences on {} SMs",
                self.problem.sequences, self.target.sm_count
            ),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![Settings { threads: settings.threads / 2, ..settings }]
    }

    fn notes(&self, settings: Settings) -> Notes {
        let workspace = (settings.lattice == WORKSPACE).then_some(BehaviorNote::Workspace);
        let behavior = [BehaviorNote::RuntimeCompilation].into_iter().chain(workspace).collect();
        Notes { behavior, ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        vec![schedule.work(&self.problem)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let Loss { problem, target } = self;
        let dtype = problem.tensor("x").dtype;
        let names = KernelNames {
            stem: format!("sm75_ctc_loss_{dtype}_{}", problem.op.input.name()),
            template: "ctc/sm75_ctc_loss.cu",
            entry: "ctc_loss",
        };
        let spec = names.spec(target.arch, &Parameters::of(problem, schedule));
        let bytes = problem.lattice_bytes().saturating_mul(problem.sequences) as u64;
        let scratch = if schedule.is_shared() { Vec::new() } else { vec![bytes] };
        let mut arguments = arguments(problem.graph, schedule.passed(problem).iter());
        arguments.extend((0..scratch.len()).map(Argument::Scratch));
        let launch = LaunchPlan {
            grid: Grid::fixed(problem.sequences as u32),
            threads: schedule.settings.threads as u32,
            shared_bytes: schedule.shared_bytes as u32,
            cooperative: false,
            arguments,
            maps: Vec::new(),
            numbers: Vec::new(),
        };
        Lowering { kernels: vec![KernelPlan { spec, launch }], scratch }
    }
}
