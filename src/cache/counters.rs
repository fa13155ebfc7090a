//! What the cache did: in this process, and in all of them together.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cache::lock::KeyLock;

/// How long an ending process waits for others that end: each holds the file for a millisecond.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Counts since some beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Entries found and accepted.
    pub hits: u64,
    /// Entries not accepted, by reason: `absent`, or what was wrong (`malformed`, `schema`, `key`,
    /// `request`, `digest`, `device`: the device rejected the image).
    pub misses: BTreeMap<String, u64>,
    /// Entries written.
    pub writes: u64,
    /// Entries removed to stay within the budget.
    pub evicted: u64,
    /// Compile time that hits saved, in microseconds.
    pub saved_us: u64,
}

impl Counts {
    /// Misses of all reasons.
    pub fn misses_total(&self) -> u64 {
        self.misses.values().sum()
    }

    fn merge(&mut self, other: &Counts) {
        self.hits += other.hits;
        self.writes += other.writes;
        self.evicted += other.evicted;
        self.saved_us += other.saved_us;
        for (reason, count) in &other.misses {
            *self.misses.entry(reason.clone()).or_default() += count;
        }
    }
}

/// The counts of this process.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Counts>);

impl Counters {
    fn with<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn hit(&self, saved: Duration) {
        self.with(|counts| {
            counts.hits += 1;
            counts.saved_us += saved.as_micros() as u64;
        });
    }

    pub(super) fn miss(&self, reason: &str) {
        self.with(|counts| *counts.misses.entry(reason.to_owned()).or_default() += 1);
    }

    pub(super) fn wrote(&self) {
        self.with(|counts| counts.writes += 1);
    }

    pub(super) fn evicted(&self, count: usize) {
        self.with(|counts| counts.evicted += count as u64);
    }

    pub(super) fn snapshot(&self) -> Counts {
        self.with(|counts| counts.clone())
    }
}

/// The counts of all processes that have ended, from the folder's file.
pub(super) fn read(folder: &Path) -> Counts {
    let text = fs::read_to_string(folder.join("stats.json")).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// Adds a process's counts to the folder's file.
pub(super) fn add(folder: &Path, counts: &Counts) -> io::Result<()> {
    if *counts == Counts::default() {
        return Ok(());
    }
    let turn = KeyLock::acquire_within(folder, "stats.lock", WAIT_MAX);
    let _turn = turn.ok_or(io::ErrorKind::WouldBlock)?;
    let mut total = read(folder);
    total.merge(counts);
    let file = tempfile::NamedTempFile::new_in(folder)?;
    fs::write(file.path(), serde_json::to_string(&total).expect("plain data is JSON"))?;
    file.persist(folder.join("stats.json")).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_processes_add_up() {
        let folder = tempfile::tempdir().expect("temporary folder");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let counters = Counters::default();
                    counters.hit(Duration::from_millis(3));
                    counters.miss("absent");
                    counters.miss("digest");
                    add(folder.path(), &counters.snapshot()).expect("writable");
                });
            }
        });
        let total = read(folder.path());
        assert_eq!((total.hits, total.misses_total(), total.saved_us), (8, 16, 24_000));
        assert_eq!(total.misses["digest"], 8);
    }

    #[test]
    fn a_process_that_hangs_holds_nobody_up() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let _held = KeyLock::acquire(folder.path(), "stats.lock").expect("free");
        let counts = Counts { hits: 1, ..Counts::default() };
        let error = add(folder.path(), &counts).expect_err("held");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
