//! Upgrade of a plan from generic kernels to specialised ones, once these have been compiled.
//!
//! The specialised kernels are set once. The generic ones are kept as well: queued work and
//! captured CUDA graphs may still refer to them. Once an upgrade has settled, it costs an execution
//! the load of one flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::warn;

use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::recipe::Recipe;

/// Number of captures in progress that are tracked. With more at a time, the oldest may get kernels
/// of both tiers.
const CAPTURES_MAX: usize = 8;

/// Interval between attempts to enter a full queue, in
/// [`ExecutionPlan::settle`](crate::ExecutionPlan::settle).
const RETRY: Duration = Duration::from_millis(5);

/// The kernels that a plan runs ([`ExecutionPlan::tier`](crate::ExecutionPlan::tier)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// Those specialised for the graph.
    Special,
    /// Generic ones; the compilation of the specialised ones is queued or in progress.
    Queued,
    /// Generic ones; the queue was full, and the next execution tries again.
    Deferred,
    /// Generic ones, permanently: the specialised ones failed to compile.
    Failed,
}

/// The queue of background compilations, as an upgrade sees it.
pub(super) trait Ask: Send + Sync {
    /// Queues the compilation of a plan's specialised kernels. Returns `false` if the queue is
    /// full.
    fn ask(&self, upgrade: &Arc<Upgrade>) -> bool;
}

/// The upgrade of one plan.
pub(super) struct Upgrade {
    graph: OperationGraph,
    /// No more changes: `special` runs, or the generic kernels if it is not set.
    settled: AtomicBool,
    special: OnceLock<Recipe>,
    state: Mutex<State>,
    changed: Condvar,
    queue: Weak<dyn Ask>,
}

struct State {
    progress: Progress,
    /// Captures that have got generic kernels; all their launches get generic ones.
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
    /// An upgrade that is compiled through this queue, not queued yet.
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

    /// The plan's graph.
    pub(super) fn graph(&self) -> &OperationGraph {
        &self.graph
    }

    /// The specialised kernels, once they have been compiled.
    pub(super) fn special(&self) -> Option<&Recipe> {
        self.special.get()
    }

    /// The specialised kernels for an execution, given the id of the capture that its stream is in;
    /// `None` for the generic ones.
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
                // Without captures in progress the choice is final.
                self.settled.store(state.captured == 0, Ordering::Release);
                Some(special)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the compilation unless that has been done; if the queue is full, the plan is
    /// deferred.
    pub(super) fn enqueue(self: &Arc<Self>) {
        let mut state = self.state();
        if matches!(state.progress, Progress::Deferred)
            && let Some(queue) = self.queue.upgrade()
            && queue.ask(self)
        {
            state.progress = Progress::Queued;
        }
    }

    /// Sets the result of the compilation, which executions use from now on.
    pub(super) fn finish(&self, compiled: Result<Recipe>) {
        let mut state = self.state();
        state.progress = match compiled {
            Ok(recipe) => {
                // A job runs once, so that no other recipe has been set.
                let _ = self.special.set(recipe);
                Progress::Ready
            }
            Err(error) => {
                warn!(
                    "failed to compile a plan's specialised kernels, it keeps generic ones: {error}"
                );
                self.settled.store(true, Ordering::Release);
                Progress::Failed(error)
            }
        };
        self.changed.notify_all();
    }

    /// The queue discarded the job.
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
    use crate::graph::{Matmul, OperationGraph};
    use crate::plan::background::Queue;
    use crate::plan::build::Kiln;
    use crate::plan::context::config::Config;
    use crate::plan::execute::ExecutionPlan;
    use crate::plan::variant_pack::VariantPack;
    use crate::target::Target;

    /// A Kiln on a device whose streams are in the capture with this id.
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

    /// Who allocated a workspace before the upgrade executes as before.
    #[test]
    fn an_upgrade_that_needs_more_workspace_waits_for_it() {
        let (kiln, _) = capturing();
        let mut graph = OperationGraph::builder();
        let a = graph.input("a", &[16, 4096], DType::F32);
        let b = graph.input("b", &[4096, 16], DType::F32);
        let c = graph.matmul(Matmul::default(), a, b).expect("valid");
        graph.output(c, "c", DType::F32);
        let graph = graph.build().expect("valid");
        let target = Target::sim();
        let simt = engine::supported("gemm_simt", graph.canonical(), &target).expect("it runs");
        let build = |split_k: i64| {
            let config = simt.heuristic().with("split_k", split_k);
            let part = Part { graph: graph.clone(), config };
            kiln.inner.compiled_best(vec![part]).expect("compiles")
        };
        let queue: Arc<dyn Ask> = Arc::new(Queue::new(1));
        let upgrade = Upgrade::through(&graph, Arc::downgrade(&queue));
        let plan = kiln.inner.plan_of(&graph, build(1), Some(upgrade.clone())).expect("small");
        assert_eq!(plan.workspace_bytes(), 0);
        upgrade.finish(Recipe::new(&graph, build(4), kiln.device()));
        let needed = plan.workspace_bytes();
        assert!(needed > 0);
        let buffers = [4 * 16 * 4096, 4 * 4096 * 16, 4 * 16 * 16];
        let buffers = buffers.map(|bytes| kiln.device().alloc(bytes).expect("there is memory"));
        let uids = ["a", "b", "c"].map(|name| graph.tensor_named(name).expect("it is there").uid);
        let pack = std::iter::zip(uids, &buffers);
        let pack = pack.fold(VariantPack::new(), |pack, (uid, buffer)| pack.with(uid, buffer));
        let launches = |pack: &VariantPack| {
            let mut launches = 0;
            let executed = plan.execute_each(&kiln.stream(), pack, |_| launches += 1);
            executed.expect("the workspace is large enough");
            launches
        };
        assert_eq!(launches(&pack), 1);
        let workspace = kiln.device().alloc(needed).expect("there is memory");
        assert_eq!(launches(&pack.clone().with_workspace(&workspace)), 2);
        assert_eq!(launches(&pack), 1);
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
        // A queue of length one that no thread serves.
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
        // An execution in a capture queues nothing; any other does.
        capture.store(7, Ordering::SeqCst);
        assert_eq!((engine(&plan), plan.tier()), (other.to_owned(), Tier::Deferred));
        capture.store(0, Ordering::SeqCst);
        assert_eq!((engine(&plan), plan.tier()), (other.to_owned(), Tier::Queued));
        assert_eq!((engine(&refused), refused.tier()), (other.to_owned(), Tier::Deferred));
        upgrade.finish(Recipe::new(&graph, build(&chosen), kiln.device()));
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
