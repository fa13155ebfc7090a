//! Background compilation: a bounded queue of jobs and the threads that run them.
//!
//! If the specialised kernels of a part have not been built, its plan starts with another engine's
//! kernel that has been built, and the specialised ones are compiled here. If there is no such
//! kernel, the caller waits for the specialised ones, and the kernel that serves every shape of the
//! part is compiled here, so that the next shape need not wait.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{debug_span, dispatcher, warn};

use crate::engine::{self, EngineConfig, Part};
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::context::config::Background;
use crate::plan::context::kernel_store::Reach;
use crate::plan::context::metrics::{BackgroundMetrics, Counter};
use crate::plan::context::planner::Planner;
use crate::plan::context::span::Timed;
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe::{BuiltPart, Recipe};
use crate::plan::upgrade::{Ask, Upgrade};

/// Maximum number of threads: NVRTC needs a few hundred megabytes per compilation.
const THREADS_MAX: usize = 8;

/// Maximum queue length. The queue is allocated up front, so that an execution can add to it
/// without allocating.
const QUEUE_MAX: usize = 4096;

/// A background compilation.
pub(super) enum Job {
    /// The specialised kernels of a plan that runs generic ones.
    Special(Arc<Upgrade>),
    /// A generic kernel, for later shapes of the same part.
    General(Box<Part>),
}

/// The queue of jobs.
pub(super) struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    capacity: usize,
    finished: Counter,
    failed: Counter,
    refused: Counter,
}

struct Jobs {
    waiting: VecDeque<Job>,
    running: usize,
    stopped: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Queue {
        let waiting = VecDeque::with_capacity(capacity);
        let jobs = Jobs { waiting, running: 0, stopped: false };
        Queue {
            jobs: Mutex::new(jobs),
            changed: Condvar::new(),
            capacity,
            finished: Counter::default(),
            failed: Counter::default(),
            refused: Counter::default(),
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job. Returns `false` if the queue is full or has stopped.
    pub(super) fn push(&self, job: Job) -> bool {
        let mut jobs = self.jobs();
        let accepted = !jobs.stopped && jobs.waiting.len() < self.capacity;
        if accepted {
            jobs.waiting.push_back(job);
            self.changed.notify_all();
        } else {
            self.refused.add(1);
        }
        accepted
    }

    /// Waits for the next job. Returns `None` once the queue has stopped.
    fn pop(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        while !jobs.stopped && jobs.waiting.is_empty() {
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
        let job = jobs.waiting.pop_front()?;
        jobs.running += 1;
        Some(job)
    }

    /// Marks a job from [`Queue::pop`] as done; `compiled` tells whether its kernels compiled.
    fn done(&self, compiled: bool) {
        if compiled { &self.finished } else { &self.failed }.add(1);
        self.jobs().running -= 1;
        self.changed.notify_all();
    }

    /// Waits until no job is queued or running. Returns `false` on timeout.
    fn settle(&self, timeout: Duration) -> bool {
        let busy = |jobs: &mut Jobs| !jobs.waiting.is_empty() || jobs.running > 0;
        let waited = self.changed.wait_timeout_while(self.jobs(), timeout, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn stop(&self) {
        let mut jobs = self.jobs();
        jobs.stopped = true;
        let abandoned: Vec<Job> = jobs.waiting.drain(..).collect();
        drop(jobs);
        self.changed.notify_all();
        for job in abandoned {
            if let Job::Special(upgrade) = job {
                upgrade.abandon();
            }
        }
    }
}

/// The background threads of one Kiln. Dropping them discards queued jobs and waits for running
/// ones.
pub(super) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// `BadParam` for more than [`THREADS_MAX`] threads or a queue longer than [`QUEUE_MAX`], `Io`
    /// when a thread cannot be started.
    pub(super) fn start(planner: &Arc<Planner>, background: Background) -> Result<Workers> {
        let Background { threads, queue } = background;
        if threads > THREADS_MAX || queue > QUEUE_MAX {
            return Err(Error::bad_param(format!(
                "{threads} background threads with a queue of {queue}, expected at most \
                 {THREADS_MAX} with {QUEUE_MAX}"
            )));
        }
        let queue = Arc::new(Queue::new(background.queue));
        let mut workers = Workers { queue, threads: Vec::new() };
        for _ in 0..background.threads {
            let (queue, planner) = (workers.queue.clone(), planner.clone());
            let thread = std::thread::Builder::new().name("kiln-background".to_owned());
            // The threads log to the `tracing` subscriber that is set where Kiln is opened.
            let listener = dispatcher::get_default(Clone::clone);
            let started = thread.spawn(move || {
                dispatcher::with_default(&listener, || work(&queue, &planner));
            });
            workers.threads.push(started.map_err(|error| {
                Error::io("failed to start a background thread").caused_by(error)
            })?);
        }
        Ok(workers)
    }

    /// Plans a graph. Each part gets its specialised kernels if they have been built, otherwise
    /// generic kernels if those have been built, otherwise its specialised kernels, compiled now.
    pub(super) fn plan(
        &self,
        planner: &Planner,
        graph: &OperationGraph,
        parts: Vec<Part>,
    ) -> Result<ExecutionPlan> {
        let (mut built, mut general) = (Vec::new(), false);
        for part in parts {
            if let Some(best) = planner.best(part.clone(), Reach::Built)? {
                built.push(best);
                continue;
            }
            let target = planner.store.device.target();
            let substitutes = engine::substitutes(part.graph.canonical(), target, &part.config);
            match self.substitute(planner, &part, &substitutes)? {
                Some(substitute) => {
                    general = true;
                    built.push(substitute);
                }
                None => {
                    built.extend(planner.compiled_best(vec![part.clone()])?);
                    self.prepare(part, substitutes);
                }
            }
        }
        if general {
            planner.store.counters.general_hits.add(1);
        }
        let ask: Arc<dyn Ask> = self.queue.clone();
        let upgrade = general.then(|| Upgrade::through(graph, Arc::downgrade(&ask)));
        planner.plan_of(graph, built, upgrade)
    }

    /// The part with the first of these configurations whose kernels have been built.
    fn substitute(
        &self,
        planner: &Planner,
        part: &Part,
        substitutes: &[EngineConfig],
    ) -> Result<Option<BuiltPart>> {
        for config in substitutes {
            let part = Part { graph: part.graph.clone(), config: config.clone() };
            if let Some(built) = planner.best(part, Reach::Built)? {
                return Ok(Some(built));
            }
        }
        Ok(None)
    }

    /// Queues the compilation of the engine that serves every shape of a part, if it is among
    /// `substitutes`.
    fn prepare(&self, part: Part, substitutes: Vec<EngineConfig>) {
        let any_shape = |config: &EngineConfig| {
            engine::engine_named(&config.engine).is_ok_and(|engine| engine.serves_any_shape())
        };
        if let Some(config) = substitutes.into_iter().find(any_shape) {
            // If the queue is full, the next shape that is compiled queues it again.
            self.queue.push(Job::General(Box::new(Part { config, ..part })));
        }
    }
}

impl Ask for Queue {
    fn ask(&self, upgrade: &Arc<Upgrade>) -> bool {
        self.push(Job::Special(upgrade.clone()))
    }
}

impl Workers {
    /// As [`Queue::settle`].
    pub(super) fn settle(&self, timeout: Duration) -> bool {
        self.queue.settle(timeout)
    }

    pub(super) fn metrics(&self) -> BackgroundMetrics {
        let Queue { finished, failed, refused, .. } = &*self.queue;
        let jobs = self.queue.jobs();
        BackgroundMetrics {
            waiting: jobs.waiting.len() as u64,
            running: jobs.running as u64,
            finished: finished.get(),
            failed: failed.get(),
            refused: refused.get(),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.stop();
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread's panic hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({} threads)", self.threads.len())
    }
}

fn work(queue: &Queue, planner: &Planner) {
    if let Err(error) = planner.store.device.enter_background() {
        warn!("{error}; kernels that are loaded in the background may disturb CUDA graph captures");
    }
    while let Some(job) = queue.pop() {
        queue.done(run(job, planner));
    }
}

/// Runs a job. Returns whether its kernels compiled.
fn run(job: Job, planner: &Planner) -> bool {
    let target = planner.store.device.target();
    let parts = match &job {
        Job::Special(upgrade) => planner.parts(upgrade.graph(), target),
        Job::General(part) => Ok(vec![(**part).clone()]),
    };
    let family = match &parts {
        Ok(parts) => parts[0].config.engine.clone().into_owned(),
        Err(_) => String::new(),
    };
    let span = debug_span!("background", family, target = %target.arch, ns = Empty);
    let _span = Timed::new(span);
    let best = parts.and_then(|parts| planner.compiled_best(parts));
    let compiled = best.is_ok();
    match job {
        Job::Special(upgrade) => {
            upgrade.finish(
                best.and_then(|best| Recipe::new(upgrade.graph(), best, &planner.store.device)),
            );
            planner.dump(upgrade.special().map_or(&[], |special| &special.kernels));
        }
        Job::General(_) => {
            if let Err(error) = best {
                warn!("failed to compile a generic kernel: {error}");
            }
        }
    }
    compiled
}
