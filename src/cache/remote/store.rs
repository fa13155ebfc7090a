//! The remote tier on `opendal`. Its tasks run on a dedicated thread, so callers may be in any
//! runtime or none.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opendal::{ErrorKind, Operator};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Remote;
use crate::cache::counters::Counters;
use crate::cache::entry::ENTRY_BYTES_MAX;
use crate::cache::{Counts, Entry, Key};
use crate::error::{Error, Result};

/// Maximum number of pending writes; further ones are dropped and left to other processes.
const SENDING_MAX: usize = 64;

/// Number of consecutive failures after which the store is suspended.
const FAILURES_MAX: u32 = 3;

/// Duration of the suspension.
const REST: Duration = Duration::from_secs(30);

/// Timeout of a write, as a multiple of that of a read.
const WRITE_PATIENCE: u32 = 10;

/// Maximum wait of a terminating process for pending writes.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// A store shared by several machines. Failures are logged as warnings, never returned as errors.
pub struct RemoteCache {
    name: String,
    read_only: bool,
    timeout: Duration,
    shared: Arc<Shared>,
    /// `None` while being dropped.
    runtime: Option<Runtime>,
}

/// State shared by calls and tasks.
struct Shared {
    /// The address, for redacting the store's messages.
    remote: Remote,
    operator: Operator,
    counters: Counters,
    health: Mutex<Health>,
    sending: AtomicUsize,
    sent: (Mutex<()>, Condvar),
}

/// Failure state of the store.
#[derive(Default)]
struct Health {
    failures: u32,
    rests_until: Option<Instant>,
}

impl RemoteCache {
    /// Opens a store without contacting it.
    ///
    /// # Errors
    /// `BadParam` for an address that `opendal` rejects.
    pub fn open(remote: &Remote) -> Result<RemoteCache> {
        // Fails where the process has a provider already, which then serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let operator = Operator::from_uri(remote.uri.as_str()).map_err(|error| {
            let text = remote.redacted(&error.to_string());
            Error::bad_param(format!("remote store `{}`: {text}", remote.name()))
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("kiln-remote")
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("failed to start a thread: {error}")))?;
        let shared = Shared {
            remote: remote.clone(),
            operator,
            counters: Counters::default(),
            health: Mutex::default(),
            sending: AtomicUsize::new(0),
            sent: Default::default(),
        };
        Ok(RemoteCache {
            name: remote.name(),
            read_only: remote.read_only,
            timeout: remote.timeout,
            shared: Arc::new(shared),
            runtime: Some(runtime),
        })
    }

    /// Reads the entry of a key and its bytes, if the store answers in time with a valid entry.
    pub fn get(&self, key: Key) -> Option<(Entry, Vec<u8>)> {
        if !self.shared.is_well() {
            self.shared.counters.miss("resting");
            return None;
        }
        let operator = self.shared.operator.clone();
        let bytes = match self.ask(async move { read(&operator, &path_of(key)).await }) {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) if error.kind() == ErrorKind::NotFound => {
                self.shared.succeeded();
                self.shared.counters.miss("absent");
                return None;
            }
            Some(Err(error)) => {
                self.failed("failed", &error.to_string());
                return None;
            }
            None => {
                self.failed("late", &format!("no answer within {:?}", self.timeout));
                return None;
            }
        };
        self.shared.succeeded();
        match Entry::decode(&bytes, key) {
            Ok(entry) => {
                self.shared.counters.hit(bytes.len() as u64, entry.compile);
                Some((entry, bytes))
            }
            Err(reason) => {
                warn!("rejected entry {key} of remote store `{}`: {reason}", self.name);
                self.shared.counters.miss(reason.name());
                None
            }
        }
    }

    /// Probes the store for a nonexistent object; returns the response time.
    ///
    /// # Errors
    /// `Driver` when the store fails or does not answer in time.
    pub fn check(&self) -> Result<Duration> {
        let (start, operator) = (Instant::now(), self.shared.operator.clone());
        let text = match self.ask(async move { operator.stat("kiln-doctor").await }) {
            Some(Err(error)) if error.kind() != ErrorKind::NotFound => {
                self.shared.remote.redacted(&error.to_string())
            }
            Some(_) => return Ok(start.elapsed()),
            None => format!("no answer within {:?}", self.timeout),
        };
        Err(Error::io(format!("remote store `{}`: {text}", self.name)))
    }

    /// Runs a request on the store's thread; `None` on timeout.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = channel();
        let (runtime, deadline) = (self.runtime.as_ref()?, self.timeout);
        runtime.spawn(async move {
            // The caller may have timed out.
            let _ = sender.send(timeout(deadline, question).await);
        });
        // The task enforces the deadline; this bounds the wait if its thread is starved.
        receiver.recv_timeout(deadline * 2).ok()?.ok()
    }

    /// Sends an entry in the background.
    pub fn put(&self, key: Key, bytes: Vec<u8>) {
        // Nothing is sent after a failure, since a terminating process would wait for it.
        if self.read_only || self.shared.failures() > 0 {
            return;
        }
        let Some(runtime) = &self.runtime else { return };
        if self.shared.sending.fetch_add(1, Ordering::SeqCst) >= SENDING_MAX {
            self.shared.done();
            warn!(
                "remote store `{}` has too many pending writes: entry {key} is not sent",
                self.name
            );
            return;
        }
        let (shared, deadline) = (self.shared.clone(), self.timeout * WRITE_PATIENCE);
        let name = self.name.clone();
        runtime.spawn(async move {
            let path = path_of(key);
            let count = bytes.len() as u64;
            let write = shared.operator.write(&path, bytes);
            let failure = match timeout(deadline, write).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("not written within {deadline:?}")),
            };
            match failure {
                None => {
                    shared.succeeded();
                    shared.counters.wrote(count);
                    debug!("sent entry {key} to remote store `{name}`");
                }
                Some(text) => shared.failed(&name, &text),
            }
            shared.done();
        });
    }

    /// Waits until all writes have completed or failed; returns whether they did within `wait`.
    pub fn flush(&self, wait: Duration) -> bool {
        let (lock, sent) = &self.shared.sent;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = |(): &mut ()| self.shared.sending.load(Ordering::SeqCst) > 0;
        let waited = sent.wait_timeout_while(guard, wait, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Address of the store, without secrets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Statistics of this process. Miss reasons are `absent`, `late`, `failed`, `resting` (after
    /// several failures), or the reason an entry was rejected.
    pub fn counts(&self) -> Counts {
        self.shared.counters.snapshot()
    }

    fn failed(&self, reason: &str, text: &str) {
        self.shared.counters.miss(reason);
        self.shared.failed(&self.name, text);
    }
}

impl Shared {
    fn is_well(&self) -> bool {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        match health.rests_until {
            Some(until) if Instant::now() < until => false,
            Some(_) => {
                // One call probes the store; another failure suspends it again.
                *health = Health { failures: FAILURES_MAX - 1, rests_until: None };
                true
            }
            None => true,
        }
    }

    fn failures(&self) -> u32 {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).failures
    }

    fn succeeded(&self) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Health::default();
    }

    fn failed(&self, name: &str, text: &str) {
        let text = self.remote.redacted(text);
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.failures += 1;
        if health.failures < FAILURES_MAX {
            warn!("remote store `{name}`: {text}");
        } else if health.rests_until.is_none() {
            health.rests_until = Some(Instant::now() + REST);
            warn!("remote store `{name}`: {text}; suspended for {REST:?}");
        }
    }

    /// Marks a write as completed.
    fn done(&self) {
        self.sending.fetch_sub(1, Ordering::SeqCst);
        drop(self.sent.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.sent.1.notify_all();
    }
}

impl Drop for RemoteCache {
    fn drop(&mut self) {
        if !self.flush(LAST_WAIT) {
            warn!("remote store `{}`: some entries were not sent", self.name);
        }
        if let Some(runtime) = self.runtime.take() {
            // A runtime must not be dropped within another one, where the caller may be.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for RemoteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteCache({})", self.name)
    }
}

async fn read(operator: &Operator, path: &str) -> opendal::Result<Vec<u8>> {
    let bytes = operator.stat(path).await?.content_length();
    if bytes > ENTRY_BYTES_MAX {
        let text = format!("{bytes} bytes are more than an entry has");
        return Err(opendal::Error::new(ErrorKind::Unexpected, text));
    }
    Ok(operator.read(path).await?.to_vec())
}

fn path_of(key: Key) -> String {
    format!("{key}.kiln")
}
