//! Cache statistics, of this process and of all processes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::held::Held;
use crate::cache::lock::KeyLock;

const FILE: &str = "stats.json";

/// Maximum wait of a terminating process for the statistics file, which others hold for a
/// millisecond.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Cache statistics.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Entries found and accepted.
    pub hits: u64,
    /// Misses by reason: `absent`, or why an entry was rejected (`malformed`, `schema`, `key`,
    /// `request`, `digest`, `device`: the device rejected the image).
    pub misses: BTreeMap<String, u64>,
    /// Bytes of the entries found.
    pub read_bytes: u64,
    /// Entries written.
    pub writes: u64,
    /// Bytes of the entries written.
    pub written_bytes: u64,
    /// Entries evicted to stay within the budget.
    pub evicted: u64,
    /// Compile time saved by hits, in microseconds.
    pub saved_us: u64,
}

impl Counts {
    /// Total number of misses.
    pub fn misses_total(&self) -> u64 {
        self.misses.values().sum()
    }

    fn merge(&mut self, other: &Counts) {
        self.hits += other.hits;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.evicted += other.evicted;
        self.saved_us += other.saved_us;
        for (reason, count) in &other.misses {
            *self.misses.entry(reason.clone()).or_default() += count;
        }
    }
}

/// Statistics of this process.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Counts>);

impl Counters {
    fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn hit(&self, bytes: u64, saved: Duration) {
        self.with(|counts| {
            counts.hits += 1;
            counts.read_bytes += bytes;
            counts.saved_us += saved.as_micros() as u64;
        });
    }

    pub(super) fn miss(&self, reason: &str) {
        self.with(|counts| *counts.misses.entry(reason.to_owned()).or_default() += 1);
    }

    pub(super) fn wrote(&self, bytes: u64) {
        self.with(|counts| {
            counts.writes += 1;
            counts.written_bytes += bytes;
        });
    }

    pub(super) fn evicted(&self, count: usize) {
        self.with(|counts| counts.evicted += count as u64);
    }

    pub(super) fn snapshot(&self) -> Counts {
        self.with(|counts| counts.clone())
    }
}

/// Statistics of all terminated processes, from the folder's file.
pub(super) fn read(folder: &Held) -> Counts {
    let text = folder.private_file(FILE).and_then(io::read_to_string).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Adds a process's statistics to the folder's file.
pub(super) fn add(folder: &Held, counts: &Counts) -> io::Result<()> {
    if *counts == Counts::default() {
        return Ok(());
    }
    let turn = KeyLock::acquire_within(folder, "stats.lock", WAIT_MAX);
    let _turn = turn.ok_or(io::ErrorKind::WouldBlock)?;
    let mut total = read(folder);
    total.merge(counts);
    folder.put_whole(FILE, serde_json::to_string(&total).expect("plain data is JSON").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_processes_add_up() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let folder = Held::open(folder.path()).expect("there");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let counters = Counters::default();
                    counters.hit(7, Duration::from_millis(3));
                    counters.miss("absent");
                    counters.miss("digest");
                    add(&folder, &counters.snapshot()).expect("writable");
                });
            }
        });
        let total = read(&folder);
        assert_eq!((total.hits, total.misses_total(), total.saved_us), (8, 16, 24_000));
        assert_eq!((total.misses["digest"], total.read_bytes), (8, 56));
    }

    #[test]
    fn a_process_that_hangs_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let folder = Held::open(folder.path()).expect("there");
        let _held = KeyLock::acquire(&folder, "stats.lock").expect("free");
        let counts = Counts { hits: 1, ..Counts::default() };
        let error = add(&folder, &counts).expect_err("held");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
