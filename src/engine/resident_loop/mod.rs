//! Resident loops: one kernel makes all trips, whose blocks wait for each other between stages.
//!
//! A thread, or a warp where terms are neighbours, computes an element of a stage. Stages that read
//! nothing of each other run side by side; behind those of a level all blocks meet: a block by
//! itself, the blocks of a cluster, or all of a cooperative launch by a counter. What stages
//! compute stays in the workspace, that is in L2. Values that the next trip reads have two places,
//! as has the condition, so that a trip never waits for the end of the one before.

mod barrier;
mod layout;
mod levels;
mod parameters;
mod problem;
mod stage;
mod work;

use crate::engine::resident_loop::barrier::Barrier;
use crate::engine::resident_loop::problem::Problem;
use crate::engine::tunable::{Tunable, Tuned, settings};
use crate::engine::{BehaviorNote, Engine, KernelWork, Knob, Notes, Supported};
use crate::error::Result;
use crate::graph::CanonicalGraph;
use crate::kernel::Lowering;
use crate::target::Target;

const NAME: &str = "resident_loop";

const THREADS: [i64; 3] = [128, 256, 512];

const CTAS: [i64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Terms of a thread in a trip above which more blocks are worth their longer wait.
const THREAD_TERMS: i64 = 64;

settings! { pub(super) struct Settings { ctas, threads } }

/// The engine `resident_loop`: every resident loop of tensors in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResidentLoopEngine;

impl Engine for ResidentLoopEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn support<'a>(
        &self,
        graph: CanonicalGraph<'a>,
        target: &'a Target,
    ) -> Result<Box<dyn Supported + 'a>> {
        let problem = Problem::of(graph, target.arch.capability)?;
        let own = Loop { problem, target };
        let best = own.best();
        Ok(Box::new(Tuned::of(own, [best])?))
    }
}

/// A graph as this engine runs it.
#[derive(Debug, Clone)]
struct Loop<'a> {
    problem: Problem<'a>,
    target: &'a Target,
}

impl Loop<'_> {
    fn barrier(&self, settings: Settings) -> Barrier {
        Barrier::of(settings.ctas, self.target.arch.capability)
    }

    /// Values of the knob `ctas`: blocks that are there at once.
    fn ctas(&self) -> Vec<i64> {
        let sms = i64::from(self.target.sm_count);
        CTAS.into_iter().filter(|ctas| *ctas <= sms).collect()
    }
}

impl Tunable<2> for Loop<'_> {
    const KNOBS: [&'static str; 2] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Settings;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 2] {
        let ctas = "blocks, which wait for each other between stages";
        [
            Knob { name: "ctas", about: ctas, values: self.ctas() },
            Knob { name: "threads", about: "threads per block", values: THREADS.to_vec() },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Settings, String> {
        Ok(settings)
    }

    fn best(&self) -> Settings {
        let threads = THREADS[1];
        let wanted = self.problem.widest_terms() / (threads * THREAD_TERMS);
        let ctas = self.ctas();
        let enough = ctas.iter().copied().find(|ctas| *ctas >= wanted);
        Settings { ctas: enough.unwrap_or(ctas[ctas.len() - 1]), threads }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { ctas, threads } = self.best();
        let terms = self.problem.widest_terms();
        vec![
            format!(
                "ctas={ctas}: {terms} terms in its largest stage, {THREAD_TERMS} for a thread \
                 before others are worth waiting for"
            ),
            format!("threads={threads}: enough to hide the latency of L2"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![
            Settings { ctas: settings.ctas / 2, ..settings },
            Settings { threads: settings.threads / 2, ..settings },
        ]
    }

    fn notes(&self, settings: Settings) -> Notes {
        let counter = self.barrier(settings) == Barrier::Counter;
        let behavior = [
            Some(BehaviorNote::RuntimeCompilation),
            Some(BehaviorNote::Workspace),
            counter.then_some(BehaviorNote::Cooperative),
        ];
        Notes { behavior: behavior.into_iter().flatten().collect(), ..Notes::default() }
    }

    fn work(&self, settings: &Settings) -> Vec<KernelWork> {
        vec![work::of(&self.problem, *settings, self.barrier(*settings))]
    }

    fn lowering(&self, settings: &Settings) -> Lowering {
        let barrier = self.barrier(*settings);
        parameters::lowering(&self.problem, *settings, barrier, self.target.arch)
    }
}
