//! Streams of the simulated device.
//!
//! A launch runs on the thread that makes it, to its end, unless it may have to wait for what
//! another launch does: one that reads at system scope runs on a thread of its stream, and so does
//! what comes after it on the stream until it has ended. Streams are ordered as a GPU's are: the
//! default stream's work comes after that of all streams that was there before, and before all
//! that comes later, but for lanes, which only events order.
//!
//! Late queues run nothing before somebody waits for it, but for launches that may wait themselves,
//! and then what is ready in a random order: what nothing orders is seen in other orders than that
//! of the calls.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::{Error, Result};

/// What is queued.
pub(super) type Work = Box<dyn FnOnce() -> Result<()> + Send>;

/// The bit of streams that are lanes.
pub(super) const LANE: u64 = 1 << 63;

/// The queues of all streams.
#[derive(Clone)]
pub(super) struct Queues {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when work has ended.
    ended: Condvar,
    /// Whether work runs late.
    late: bool,
}

/// Work that has not ended.
struct Queued {
    stream: u64,
    /// The work of another stream that it comes after.
    after: Option<u64>,
    /// Whether it may wait for what other work does: its stream has a thread.
    waits: bool,
    /// None while it runs.
    work: Option<Work>,
}

#[derive(Default)]
struct State {
    /// Number of the next work.
    next: u64,
    /// What has not ended, by number.
    queued: BTreeMap<u64, Queued>,
    /// The streams that have a thread.
    threads: BTreeSet<u64>,
    /// What has failed, by stream, and nobody was told yet.
    failed: Vec<(u64, Error)>,
    /// Draws what late work is next.
    random: u64,
}

impl std::fmt::Debug for Queues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queues")
    }
}

/// Whether work of two streams is ordered.
fn ordered(a: u64, b: u64) -> bool {
    a == b || (a.min(b) == 0 && a.max(b) & LANE == 0)
}

impl State {
    /// Whether some of the first so many works would have to end before work of this stream.
    fn precedes(&self, count: u64, stream: u64) -> bool {
        self.queued.range(..count).any(|(_, other)| ordered(other.stream, stream))
    }

    /// Whether a work has to wait for others.
    fn is_behind(&self, number: u64) -> bool {
        let Queued { stream, after, .. } = &self.queued[&number];
        after.is_some_and(|after| self.queued.contains_key(&after))
            || self.precedes(number, *stream)
    }

    /// One of the works that have not begun, and could without waiting.
    fn any_ready(&mut self) -> Option<u64> {
        let waiting = self.queued.iter().filter(|(_, of)| of.work.is_some() && !of.waits);
        let ready = waiting.map(|(number, _)| *number).filter(|number| !self.is_behind(*number));
        let ready: Vec<u64> = ready.collect();
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let count = ready.len() as u64;
        (count > 0).then(|| ready[((self.random >> 33) % count) as usize])
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while something holds of what has not ended.
    fn wait_while(&self, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while holds(&state) {
            let ready = if self.late { state.any_ready() } else { None };
            state = match ready {
                Some(number) => self.run_one(state, number),
                None => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state
    }

    /// Runs what a stream has queued.
    fn run(&self, stream: u64) {
        let mut state = self.state();
        loop {
            let first = state.queued.iter().find(|(_, of)| of.stream == stream);
            let Some(number) = first.map(|(number, _)| *number) else {
                state.threads.remove(&stream);
                return;
            };
            let runs = state.queued[&number].work.is_none();
            state = match runs || state.is_behind(number) {
                true => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                false => self.run_one(state, number),
            };
        }
    }

    /// Runs a work that waits for nothing.
    fn run_one<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        number: u64,
    ) -> MutexGuard<'a, State> {
        let queued = state.queued.get_mut(&number).expect("it has not ended");
        let (stream, work) = (queued.stream, queued.work.take());
        drop(state);
        let done = catch_unwind(AssertUnwindSafe(|| work.map_or(Ok(()), |work| work())));
        let done = done.unwrap_or_else(|_| Err(Error::internal("the simulated device panicked")));
        let mut state = self.state();
        state.queued.remove(&number);
        state.failed.extend(done.err().map(|error| (stream, error)));
        self.ended.notify_all();
        state
    }
}

impl Queues {
    /// Empty queues, of work that runs late in an order drawn with a seed, or not.
    pub(super) fn new(late: bool, seed: u64) -> Queues {
        let state = Mutex::new(State { random: seed, ..State::default() });
        Queues { shared: Arc::new(Shared { state, ended: Condvar::new(), late }) }
    }

    /// Does work of a stream: at once, if nothing before it waits and it does not wait itself.
    /// Returns the work's number if it was queued.
    ///
    /// # Errors
    /// What the work returns, if it was not queued; `Io` when no thread starts.
    pub(super) fn run(&self, stream: u64, waits: bool, work: Work) -> Result<Option<u64>> {
        let state = self.shared.state();
        if !waits && !self.shared.late && !state.precedes(state.next, stream) {
            drop(state);
            return work().map(|()| None);
        }
        self.queue(state, Queued { stream, after: None, waits, work: Some(work) }).map(Some)
    }

    /// Orders what a stream is given from now on behind a work.
    ///
    /// # Errors
    /// `Io` when no thread starts.
    pub(super) fn wait(&self, stream: u64, after: u64) -> Result<()> {
        let state = self.shared.state();
        if !state.queued.contains_key(&after) {
            return Ok(());
        }
        let nothing: Work = Box::new(|| Ok(()));
        let waiting = Queued { stream, after: Some(after), waits: false, work: Some(nothing) };
        self.queue(state, waiting).map(drop)
    }

    /// Queues a work and returns its number. What is late has a thread only where it waits for what
    /// other work does.
    fn queue(&self, mut state: MutexGuard<'_, State>, work: Queued) -> Result<u64> {
        let (number, stream) = (state.next, work.stream);
        let late = self.shared.late && !work.waits;
        if !late && !state.threads.contains(&stream) {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name(format!("kiln-sim-stream-{stream}"));
            thread.spawn(move || shared.run(stream)).map_err(|error| {
                Error::io(format!("failed to start a thread for a stream: {error}"))
            })?;
            state.threads.insert(stream);
        }
        state.next += 1;
        state.queued.insert(number, work);
        // Whoever waits runs what is late.
        self.shared.ended.notify_all();
        Ok(number)
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
            state.queued.range(..count).any(|(_, other)| other.stream == stream)
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
        drop(self.shared.wait_while(|state| state.queued.range(..count).next().is_some()));
    }
}

/// The first failure of these streams, or of lanes, for which nobody waits themselves; it is told
/// once.
fn told(mut state: MutexGuard<'_, State>, of: impl Fn(u64) -> bool) -> Result<()> {
    let first = state.failed.iter().position(|(stream, _)| of(*stream) || stream & LANE != 0);
    first.map_or(Ok(()), |at| Err(state.failed.remove(at).1))
}
