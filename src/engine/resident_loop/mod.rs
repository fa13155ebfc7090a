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

/// Compute capability from which blocks form clusters.
const CLUSTERS_FROM: u16 = 90;

/// Terms of a thread in a trip above which more blocks are worth their longer wait.
const THREAD_TERMS: i64 = 64;

settings! { pub(super) struct Settings { cluster, ctas, threads } }

/// Settings, and how their blocks wait for each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    settings: Settings,
    barrier: Barrier,
}

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
    /// Values of the knob `cluster`.
    fn cluster(&self) -> &'static [i64] {
        if self.target.arch.capability >= CLUSTERS_FROM { &[1, 0] } else { &[0] }
    }

    /// Values of the knob `ctas`: blocks that are there at once.
    fn ctas(&self) -> Vec<i64> {
        let sms = i64::from(self.target.sm_count);
        CTAS.into_iter().filter(|ctas| *ctas <= sms).collect()
    }
}

impl Tunable<3> for Loop<'_> {
    const KNOBS: [&'static str; 3] = Settings::KNOBS;
    type Settings = Settings;
    type Schedule = Schedule;
    type Refusal = String;

    fn name(&self) -> &'static str {
        NAME
    }

    fn all_knobs(&self) -> [Knob; 3] {
        let ctas = "blocks, which wait for each other between stages";
        let cluster = "1: blocks meet at the barrier of a cluster, 0: at a counter";
        [
            Knob { name: "cluster", about: cluster, values: self.cluster().to_vec() },
            Knob { name: "ctas", about: ctas, values: self.ctas() },
            Knob { name: "threads", about: "threads per block", values: THREADS.to_vec() },
        ]
    }

    fn schedule(&self, settings: Settings) -> Result<Schedule, String> {
        Ok(Schedule { settings, barrier: Barrier::of(settings.ctas, settings.cluster == 1)? })
    }

    fn best(&self) -> Settings {
        let threads = THREADS[1];
        let wanted = self.problem.widest_terms() / (threads * THREAD_TERMS);
        let ctas = self.ctas();
        let enough = ctas.iter().copied().find(|ctas| *ctas >= wanted);
        let ctas = enough.unwrap_or(ctas[ctas.len() - 1]);
        let is_cluster = self.cluster().contains(&1) && Barrier::of(ctas, true).is_ok();
        Settings { cluster: i64::from(is_cluster), ctas, threads }
    }

    fn reasons(&self) -> Vec<String> {
        let Settings { cluster, ctas, threads } = self.best();
        let terms = self.problem.widest_terms();
        let meeting = match (ctas, cluster) {
            (1, _) => "a block meets by itself",
            (_, 1) => "the barrier of a cluster is the faster one",
            _ => "so many are no cluster on this device",
        };
        vec![
            format!("cluster={cluster}: {meeting}"),
            format!(
                "ctas={ctas}: {terms} terms in its largest stage, {THREAD_TERMS} for a thread \
                 before others are worth waiting for"
            ),
            format!("threads={threads}: enough to hide the latency of L2"),
        ]
    }

    fn smaller(&self, settings: Settings) -> Vec<Settings> {
        vec![
            Settings { cluster: 0, ..settings },
            Settings { cluster: 0, ctas: settings.ctas / 2, ..settings },
            Settings { threads: settings.threads / 2, ..settings },
        ]
    }

    fn notes(&self, settings: Settings) -> Notes {
        let counter = settings.cluster == 0 && settings.ctas > 1;
        let behavior = [
            Some(BehaviorNote::RuntimeCompilation),
            Some(BehaviorNote::Workspace),
            counter.then_some(BehaviorNote::Cooperative),
        ];
        Notes { behavior: behavior.into_iter().flatten().collect(), ..Notes::default() }
    }

    fn work(&self, schedule: &Schedule) -> Vec<KernelWork> {
        vec![work::of(&self.problem, schedule.settings, schedule.barrier)]
    }

    fn lowering(&self, schedule: &Schedule) -> Lowering {
        let Schedule { settings, barrier } = *schedule;
        parameters::lowering(&self.problem, settings, barrier, self.target.arch)
    }
}
