//! Which entries living processes use: the collector leaves them alone.
//!
//! Each process keeps one file in `leases/`, locked for as long as it lives, and appends the keys
//! it has loaded. A file that nobody locks was left by a process that has ended.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::cache::collect::is_stale;
use crate::cache::key::Key;

/// The keys of this process.
#[derive(Debug)]
pub(super) struct Lease {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    keys: HashSet<Key>,
}

impl Lease {
    /// Opens this process's file; `None` where that is not possible, which costs only protection.
    pub(super) fn open(folder: &Path) -> Option<Lease> {
        let file = tempfile::Builder::new().prefix("process-").tempfile_in(folder).ok()?;
        file.as_file().try_lock().ok()?;
        let (file, path) = file.keep().ok()?;
        Some(Lease { path, state: Mutex::new(State { file, keys: HashSet::new() }) })
    }

    /// Notes that the process uses an entry.
    pub(super) fn add(&self, key: Key) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.keys.insert(key) {
            // A full disk costs the entry its protection, nothing else.
            let _ = writeln!(state.file, "{key}");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The keys of all living processes, in hexadecimal; files of ended ones are removed.
pub(super) fn leased(folder: &Path) -> HashSet<String> {
    let mut keys = HashSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(file) = File::open(&path) else { continue };
        let Ok(metadata) = file.metadata() else { continue };
        // Just made: its process has yet to lock it.
        if metadata.len() == 0 && !is_stale(&metadata) {
            continue;
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let text = fs::read_to_string(&path).unwrap_or_default();
                keys.extend(text.lines().map(str::to_owned));
            }
            Ok(()) => {
                let _ = fs::remove_file(&path);
            }
            Err(TryLockError::Error(_)) => {}
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::key::tests::sample_request;

    #[test]
    fn keys_are_leased_while_the_process_lives() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let lease = Lease::open(folder.path()).expect("writable");
        let key = Key::of(&sample_request());
        lease.add(key);
        lease.add(key);
        assert_eq!(leased(folder.path()), HashSet::from([key.to_hex()]));
        // What a killed process leaves: a file with keys and no lock.
        fs::write(folder.path().join("process-dead"), "0123\n").expect("writable");
        assert_eq!(leased(folder.path()), HashSet::from([key.to_hex()]));
        drop(lease);
        assert_eq!(leased(folder.path()), HashSet::new());
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    }
}
