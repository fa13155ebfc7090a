//! What a Kiln has done, in numbers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::Counts;
use crate::plan::context::report::Origin;

/// A snapshot of the counters of one Kiln and its clones
/// ([`Kiln::metrics`](crate::Kiln::metrics)). All only grow, except for the gauges of
/// [`Metrics::background`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Calls of `plan` answered by a plan made before.
    pub plan_hits: u64,
    /// Plans that began with a general kernel.
    pub general_hits: u64,
    /// Kernels that plans asked for, by where they were: `memory`, `pack`, `disk`, `remote`,
    /// `compiled`.
    pub kernels: BTreeMap<String, u64>,
    /// Compilations that failed.
    pub compile_failures: u64,
    /// Nanoseconds spent, by stage: `render`, `compile`, `load`.
    pub ns: BTreeMap<String, u64>,
    /// The background queue.
    pub background: BackgroundMetrics,
    /// The disk cache: hits, misses by reason, writes, bytes, evictions. None without one.
    pub cache: Option<Counts>,
    /// The remote store, likewise. None without one.
    pub remote: Option<Counts>,
}

/// Numbers of the background queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackgroundMetrics {
    /// Jobs that wait now: a gauge.
    pub waiting: u64,
    /// Jobs that run now: a gauge.
    pub running: u64,
    /// Jobs that ended well.
    pub finished: u64,
    /// Jobs whose compilation failed.
    pub failed: u64,
    /// Times a job found the queue full.
    pub refused: u64,
}

/// A counter.
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
    /// What has been counted, without the queue and the caches, which count themselves.
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
    /// The Prometheus text format.
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
