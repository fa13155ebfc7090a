//! Counters of a Kiln.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::Counts;
use crate::plan::context::report::Origin;

/// A snapshot of the counters of one Kiln and its clones ([`Kiln::metrics`](crate::Kiln::metrics)).
/// All are monotonic, except for the gauges in [`Metrics::background`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Calls of `plan` that returned an existing plan.
    pub plan_hits: u64,
    /// Plans that started with generic kernels.
    pub general_hits: u64,
    /// Kernels requested by plans, by origin: `memory`, `pack`, `disk`, `remote`, `compiled`.
    pub kernels: BTreeMap<String, u64>,
    /// Compilations that failed.
    pub compile_failures: u64,
    /// Time in nanoseconds by stage: `render`, `compile`, `load`.
    pub ns: BTreeMap<String, u64>,
    /// The background queue.
    pub background: BackgroundMetrics,
    /// The disk cache: hits, misses by reason, writes, bytes, evictions. `None` without a disk
    /// cache.
    pub cache: Option<Counts>,
    /// The same counts for the remote store. `None` without a remote store.
    pub remote: Option<Counts>,
}

/// Counters of the background queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackgroundMetrics {
    /// Queued jobs (a gauge).
    pub waiting: u64,
    /// Running jobs (a gauge).
    pub running: u64,
    /// Jobs whose kernels compiled.
    pub finished: u64,
    /// Jobs whose kernels failed to compile.
    pub failed: u64,
    /// Jobs refused because the queue was full.
    pub refused: u64,
}

/// A monotonic counter.
#[derive(Debug, Default)]
pub(in crate::plan) struct Counter(AtomicU64);

impl Counter {
    pub(in crate::plan) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(in crate::plan) fn add_ns(&self, elapsed: Duration) {
        self.add(elapsed.as_nanos() as u64);
    }

    pub(in crate::plan) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(in crate::plan) struct Counters {
    pub(in crate::plan) plan_hits: Counter,
    pub(in crate::plan) general_hits: Counter,
    pub(in crate::plan) memory: Counter,
    pub(in crate::plan) pack: Counter,
    pub(in crate::plan) disk: Counter,
    pub(in crate::plan) remote: Counter,
    pub(in crate::plan) compiled: Counter,
    pub(in crate::plan) compile_failures: Counter,
    pub(in crate::plan) render_ns: Counter,
    pub(in crate::plan) compile_ns: Counter,
    pub(in crate::plan) load_ns: Counter,
}

impl Counters {
    pub(in crate::plan) fn kernel(&self, origin: Origin) {
        match origin {
            Origin::Memory => self.memory.add(1),
            Origin::Pack => self.pack.add(1),
            Origin::Disk => self.disk.add(1),
            Origin::Remote => self.remote.add(1),
            Origin::Compiled => self.compiled.add(1),
        }
    }
}

impl Counters {
    /// A snapshot without the queue and the caches, which have counters of their own.
    pub(in crate::plan) fn snapshot(&self) -> Metrics {
        let named = |values: &[(&str, &Counter)]| {
            values.iter().map(|(name, counter)| ((*name).to_owned(), counter.get())).collect()
        };
        Metrics {
            plan_hits: self.plan_hits.get(),
            general_hits: self.general_hits.get(),
            kernels: named(&[
                ("memory", &self.memory),
                ("pack", &self.pack),
                ("disk", &self.disk),
                ("remote", &self.remote),
                ("compiled", &self.compiled),
            ]),
            compile_failures: self.compile_failures.get(),
            ns: named(&[
                ("render", &self.render_ns),
                ("compile", &self.compile_ns),
                ("load", &self.load_ns),
            ]),
            ..Metrics::default()
        }
    }
}

impl Metrics {
    /// Formats the counters in the Prometheus text exposition format.
    pub fn to_prometheus(&self) -> String {
        let mut out = String::new();
        let mut write = |name: &str, kind: &str, values: &[(String, u64)]| {
            writeln!(out, "# TYPE kiln_{name} {kind}").expect("a String takes everything");
            for (labels, value) in values {
                writeln!(out, "kiln_{name}{labels} {value}").expect("a String takes everything");
            }
        };
        let one = |value: u64| vec![(String::new(), value)];
        let by = |label: &str, values: &BTreeMap<String, u64>| -> Vec<_> {
            values.iter().map(|(name, n)| (format!("{{{label}=\"{name}\"}}"), *n)).collect()
        };
        write("plan_hits_total", "counter", &one(self.plan_hits));
        write("general_hits_total", "counter", &one(self.general_hits));
        write("kernels_total", "counter", &by("origin", &self.kernels));
        write("compile_failures_total", "counter", &one(self.compile_failures));
        write("stage_nanoseconds_total", "counter", &by("stage", &self.ns));
        let BackgroundMetrics { waiting, running, finished, failed, refused } = self.background;
        write("background_waiting", "gauge", &one(waiting));
        write("background_running", "gauge", &one(running));
        write("background_finished_total", "counter", &one(finished));
        write("background_failed_total", "counter", &one(failed));
        write("background_refused_total", "counter", &one(refused));
        if let Some(cache) = &self.cache {
            write("cache_hits_total", "counter", &one(cache.hits));
            write("cache_misses_total", "counter", &by("reason", &cache.misses));
            write("cache_writes_total", "counter", &one(cache.writes));
            write("cache_evicted_total", "counter", &one(cache.evicted));
            write("cache_read_bytes_total", "counter", &one(cache.read_bytes));
            write("cache_written_bytes_total", "counter", &one(cache.written_bytes));
            write("cache_saved_microseconds_total", "counter", &one(cache.saved_us));
        }
        if let Some(remote) = &self.remote {
            write("remote_hits_total", "counter", &one(remote.hits));
            write("remote_misses_total", "counter", &by("reason", &remote.misses));
            write("remote_writes_total", "counter", &one(remote.writes));
        }
        out
    }
}
