//! Streams of the simulated device.
//!
//! A launch runs on the thread that makes it, to its end, unless it may have to wait for what
//! another launch does: one that reads at system scope runs on a thread of its stream, and so does
//! what comes after it on the stream until it has ended. Streams are ordered as a GPU's are: the
//! default stream's work comes after that of all streams that was there before, and before all
//! that comes later.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::{Error, Result};

/// What is queued.
pub(super) type Work = Box<dyn FnOnce() -> Result<()> + Send>;

/// The queues of all streams.
#[derive(Clone, Default)]
pub(super) struct Queues {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when work has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of the next work.
    next: u64,
    /// What has not ended, by number; what runs has no work any more.
    queued: BTreeMap<u64, (u64, Option<Work>)>,
    /// The streams that have a thread.
    threads: BTreeSet<u64>,
    /// What has failed, by stream, and nobody was told yet.
    failed: Vec<(u64, Error)>,
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queues")
    }
}

/// Whether work of two streams is ordered.
fn ordered(a: u64, b: u64) -> bool {
    a == b || a == 0 || b == 0
}

impl State {
    /// Whether some of the first so many works would have to end before work of this stream.
    fn precedes(&self, count: u64, stream: u64) -> bool {
        self.queued.range(..count).any(|(_, (other, _))| ordered(*other, stream))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while something holds of what has not ended.
    fn wait_while(&self, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.ended.wait_while(self.state(), |state| holds(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what a stream has queued.
    fn run(&self, stream: u64) {
        let mut state = self.state();
        loop {
            let first = state.queued.iter().find(|(_, (of, _))| *of == stream);
            let Some(number) = first.map(|(number, _)| *number) else {
                state.threads.remove(&stream);
                return;
            };
            if state.precedes(number, stream) {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let work = state.queued.get_mut(&number).and_then(|(_, work)| work.take());
            drop(state);
            let done = catch_unwind(AssertUnwindSafe(|| work.map_or(Ok(()), |work| work())));
            let done =
                done.unwrap_or_else(|_| Err(Error::internal("the simulated device panicked")));
            state = self.state();
            state.queued.remove(&number);
            state.failed.extend(done.err().map(|error| (stream, error)));
            self.ended.notify_all();
        }
    }
}

impl Queues {
    /// Does work of a stream: at once, if nothing before it waits and it does not wait itself.
    /// Returns the work's number if it was queued.
    ///
    /// # Errors
    /// What the work returns, if it was not queued; `Io` when no thread starts.
    pub(super) fn run(&self, stream: u64, waits: bool, work: Work) -> Result<Option<u64>> {
        let mut state = self.shared.state();
        let number = state.next;
        if !waits && !state.precedes(number, stream) {
            drop(state);
            return work().map(|()| None);
        }
        if !state.threads.contains(&stream) {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name(format!("kiln-sim-stream-{stream}"));
            thread.spawn(move || shared.run(stream)).map_err(|error| {
                Error::io(format!("failed to start a thread for a stream: {error}"))
            })?;
            state.threads.insert(stream);
        }
        state.next += 1;
        state.queued.insert(number, (stream, Some(work)));
        Ok(Some(number))
    }

    /// Waits for a work.
    ///
    /// # Errors
    /// The first failure of its stream that was not told yet.
    pub(super) fn ended(&self, number: u64, stream: u64) -> Result<()> {
        let state = self.shared.wait_while(|state| state.queued.contains_key(&number));
        told(state, |of| of == stream)
    }

    /// Waits for the work that a stream has so far.
    ///
    /// # Errors
    /// The first failure of its work that was not told yet.
    pub(super) fn synchronize(&self, stream: u64) -> Result<()> {
        let count = self.shared.state().next;
        let state = self.shared.wait_while(|state| {
            state.queued.range(..count).any(|(_, (other, _))| *other == stream)
        });
        told(state, |of| of == stream)
    }

    /// Waits for what work of a stream would come after.
    ///
    /// # Errors
    /// The first failure among it that was not told yet.
    pub(super) fn join(&self, stream: u64) -> Result<()> {
        let count = self.shared.state().next;
        let state = self.shared.wait_while(|state| state.precedes(count, stream));
        told(state, |of| ordered(of, stream))
    }

    /// Waits for the work of all streams.
    pub(super) fn drain(&self) {
        let count = self.shared.state().next;
        drop(self.shared.wait_while(|state| state.precedes(count, 0)));
    }
}

/// The first failure of these streams, which is told once.
fn told(mut state: MutexGuard<'_, State>, of: impl Fn(u64) -> bool) -> Result<()> {
    let first = state.failed.iter().position(|(stream, _)| of(*stream));
    first.map_or(Ok(()), |at| Err(state.failed.remove(at).1))
}
