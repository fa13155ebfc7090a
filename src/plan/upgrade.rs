//! A plan that runs a more general kernel until its own has been compiled.
//!
//! The own kernel comes once and stays, and the general one is kept: work that is queued or
//! captured into a CUDA graph may still refer to it. So a plan that has settled costs its
//! executions one load of a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::recipe::Recipe;

/// Captures that are remembered; with more at a time a kernel may change within the oldest.
const CAPTURES_MAX: usize = 8;

/// Between two attempts to enter a full queue, while waiting for that.
const RETRY: Duration = Duration::from_millis(5);

/// Which kernel a plan runs ([`ExecutionPlan::tier`](crate::ExecutionPlan::tier)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// Its own: made for exactly this graph.
    Special,
    /// A more general one; the own waits to be compiled or is being compiled.
    Queued,
    /// A more general one; the queue was full, and the next execution asks again.
    Deferred,
    /// A more general one, for good: the own failed to compile.
    Failed,
}

/// Where own kernels are asked for.
pub(super) trait Ask: Send + Sync {
    /// Asks for the own kernel of a plan; a full queue refuses.
    fn ask(&self, upgrade: &Arc<Upgrade>) -> bool;
}

/// The way from a general kernel to the plan's own.
pub(super) struct Upgrade {
    graph: OperationGraph,
    /// Nothing changes any more: `special` runs, or the general kernel where there is none.
    settled: AtomicBool,
    special: OnceLock<Recipe>,
    state: Mutex<State>,
    changed: Condvar,
    queue: Weak<dyn Ask>,
}

struct State {
    progress: Progress,
    /// CUDA graphs that have been given the general kernel: they are given no other.
    captures: [u64; CAPTURES_MAX],
    captured: usize,
}

enum Progress {
    Deferred,
    Queued,
    Ready,
    Failed(Error),
}

impl Default for State {
    fn default() -> Self {
        State { progress: Progress::Deferred, captures: [0; CAPTURES_MAX], captured: 0 }
    }
}

impl State {
    fn note_capture(&mut self, id: u64) {
        if !self.has_capture(id) {
            self.captures[self.captured % CAPTURES_MAX] = id;
            self.captured += 1;
        }
    }

    fn has_capture(&self, id: u64) -> bool {
        self.captures[..self.captured.min(CAPTURES_MAX)].contains(&id)
    }
}

impl Upgrade {
    /// The upgrade of a graph's plan that is compiled through this queue; it has not been asked for
    /// yet.
    pub(super) fn through(graph: &OperationGraph, queue: Weak<dyn Ask>) -> Arc<Upgrade> {
        Arc::new(Upgrade {
            graph: graph.clone(),
            settled: AtomicBool::new(false),
            special: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            queue,
        })
    }

    /// What the plan computes.
    pub(super) fn graph(&self) -> &OperationGraph {
        &self.graph
    }

    /// The plan's own kernel, once it is there.
    pub(super) fn special(&self) -> Option<&Recipe> {
        self.special.get()
    }

    /// The plan's own kernel for an execution, given the capture that it is in; `None` for the
    /// general one.
    #[inline]
    pub(super) fn pick(self: &Arc<Self>, capture: impl Fn() -> Option<u64>) -> Option<&Recipe> {
        match self.settled.load(Ordering::Acquire) {
            true => self.special(),
            false => self.choose(capture()),
        }
    }

    #[cold]
    fn choose(self: &Arc<Self>, capture: Option<u64>) -> Option<&Recipe> {
        if capture.is_none() {
            self.enqueue();
        }
        let mut state = self.state();
        match (self.special(), capture) {
            (None, None) => None,
            (None, Some(id)) => {
                state.note_capture(id);
                None
            }
            (Some(_), Some(id)) if state.has_capture(id) => None,
            (Some(special), Some(_)) => Some(special),
            (Some(special), None) => {
                // Where no capture is known that may still be under way, nobody need ask again.
                self.settled.store(state.captured == 0, Ordering::Release);
                Some(special)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the own kernel unless that has been done; a full queue refuses.
    pub(super) fn enqueue(self: &Arc<Self>) {
        let mut state = self.state();
        if matches!(state.progress, Progress::Deferred)
            && let Some(queue) = self.queue.upgrade()
            && queue.ask(self)
        {
            state.progress = Progress::Queued;
        }
    }

    /// Takes what came of the job; executions use it from now on.
    pub(super) fn finish(&self, compiled: Result<Recipe>) {
        let mut state = self.state();
        state.progress = match compiled {
            Ok(recipe) => {
                // A job is done once: there is no other recipe yet.
                let _ = self.special.set(recipe);
                Progress::Ready
            }
            Err(error) => {
                warn!("failed to compile a plan's own kernel, it keeps a general one: {error}");
                self.settled.store(true, Ordering::Release);
                Progress::Failed(error)
            }
        };
        self.changed.notify_all();
    }

    /// The job was thrown away.
    pub(super) fn abandon(&self) {
        self.state().progress = Progress::Deferred;
        self.changed.notify_all();
    }

    pub(super) fn tier(&self) -> Tier {
        match &self.state().progress {
            Progress::Deferred => Tier::Deferred,
            Progress::Queued => Tier::Queued,
            Progress::Ready => Tier::Special,
            Progress::Failed(_) => Tier::Failed,
        }
    }

    pub(super) fn settle(self: &Arc<Self>, timeout: Duration) -> Result<Tier> {
        let deadline = Instant::now() + timeout;
        loop {
            self.enqueue();
            let mut state = self.state();
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = match &state.progress {
                Progress::Failed(error) => return Err(error.clone()),
                Progress::Ready => {
                    state.captured = 0;
                    self.settled.store(true, Ordering::Release);
                    return Ok(Tier::Special);
                }
                Progress::Deferred if self.queue.upgrade().is_none() => return Ok(Tier::Deferred),
                Progress::Deferred => left.min(RETRY),
                Progress::Queued => left,
            };
            if left.is_zero() {
                drop(state);
                return Ok(self.tier());
            }
            drop(self.changed.wait_timeout(state, wait));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::engine::{self, EngineConfig, Part, Selection};
    use crate::expr::{Mode, Pointwise};
    use crate::graph::OperationGraph;
    use crate::plan::background::Queue;
    use crate::plan::build::Kiln;
    use crate::plan::context::config::Config;
    use crate::plan::execute::ExecutionPlan;
    use crate::target::Target;

    /// A Kiln on a device whose streams are in the capture of this number.
    fn capturing() -> (Kiln, Arc<AtomicU64>) {
        let capture = Arc::new(AtomicU64::new(0));
        let device = Device::null_capturing(Target::sim(), capture.clone());
        let config = Config { no_disk_cache: true, ..Config::default() };
        let resolved = config.resolve().expect("nothing is wrong with it");
        (Kiln::on(device, resolved).expect("there is nothing to open"), capture)
    }

    fn graph() -> OperationGraph {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[4, 5], DType::F32);
        let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).expect("valid");
        graph.output(y, "y", DType::F32);
        graph.build().expect("valid")
    }

    #[test]
    fn nothing_changes_within_a_capture() {
        let (kiln, capture) = capturing();
        let (graph, target) = (graph(), Target::sim());
        let chosen =
            engine::choose(graph.canonical(), &target, &Selection::default()).expect("supported");
        let general = engine::substitutes(graph.canonical(), &target, &chosen).remove(0);
        let build = |config: &EngineConfig| {
            let part = Part { graph: graph.clone(), config: config.clone() };
            kiln.inner.compiled_best(vec![part]).expect("compiles")
        };
        // A queue that nobody empties, with place for one.
        let queue = Arc::new(Queue::new(1));
        let plan = |queue: &Arc<Queue>| {
            let ask: Arc<dyn Ask> = queue.clone();
            let upgrade = Some(Upgrade::through(&graph, Arc::downgrade(&ask)));
            kiln.inner.plan_of(&graph, build(&general), upgrade).expect("small")
        };
        let (plan, refused) = (plan(&queue), plan(&queue));
        let upgrade = plan.inner.upgrade.as_ref().expect("it has one");
        let stream = kiln.stream();
        let engine = |plan: &ExecutionPlan| {
            let upgrade = plan.inner.upgrade.as_ref().expect("it has one");
            let capture = || plan.inner.device.capture(&stream);
            let recipe = upgrade.pick(capture).unwrap_or(&plan.inner.first);
            recipe.kernels[0].config().engine.clone().into_owned()
        };
        let (own, other) = ("pointwise", "pointwise_general");
        assert_eq!(plan.tier(), Tier::Deferred);
        // A capture asks for nothing; any other execution does.
        capture.store(7, Ordering::SeqCst);
        assert_eq!((engine(&plan), plan.tier()), (other.to_owned(), Tier::Deferred));
        capture.store(0, Ordering::SeqCst);
        assert_eq!((engine(&plan), plan.tier()), (other.to_owned(), Tier::Queued));
        assert_eq!((engine(&refused), refused.tier()), (other.to_owned(), Tier::Deferred));
        upgrade.finish(Recipe::new(&graph, build(&chosen)));
        assert_eq!(plan.tier(), Tier::Special);
        for (number, expected) in [(7, other), (0, own), (7, other), (8, own), (0, own)] {
            capture.store(number, Ordering::SeqCst);
            assert_eq!(engine(&plan), expected, "capture {number}");
        }
        assert_eq!(plan.settle(Duration::ZERO).expect("compiled"), Tier::Special);
        capture.store(7, Ordering::SeqCst);
        assert_eq!(engine(&plan), own, "settling forgets captures");
    }
}
