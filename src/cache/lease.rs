//! Leases: the entries that running processes use, which are not evicted.
//!
//! Each process keeps a file in `leases/` locked during its life and appends the keys it has
//! loaded. An unlocked file belongs to a terminated process.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::cache::held::Held;
use crate::cache::key::Key;

/// Age above which a temporary or lock file belongs to a terminated process.
pub(super) const STALE: Duration = Duration::from_secs(3600);

/// Lease of this process.
#[derive(Debug)]
pub(super) struct Lease {
    folder: Held,
    name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    keys: HashSet<Key>,
}

impl Lease {
    /// Opens this process's file; `None` on failure, which leaves its entries unprotected.
    pub(super) fn open(folder: Held) -> Option<Lease> {
        let (name, file) = folder.named_anew("process-").ok()?;
        if file.try_lock().is_err() {
            // A leftover is removed by the collector.
            let _ = folder.remove(&name);
            return None;
        }
        Some(Lease { folder, name, state: Mutex::new(State { file, keys: HashSet::new() }) })
    }

    /// Marks an entry as used by the process.
    pub(super) fn add(&self, key: Key) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.keys.insert(key) {
            // On failure, such as a full disk, the entry is merely unprotected.
            let _ = writeln!(state.file, "{key}");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.name);
    }
}

/// Keys of all running processes, in hexadecimal; files of terminated ones are removed.
pub(super) fn leased(folder: &Held) -> HashSet<String> {
    let mut keys = HashSet::new();
    for name in folder.names() {
        let Ok(mut file) = folder.file(&name) else { continue };
        let Ok(status) = folder.status(&name) else { continue };
        // Just created; its process is about to lock it.
        if status.bytes == 0 && !is_stale(status.modified) {
            continue;
        }
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                if file.read_to_string(&mut text).is_ok() {
                    keys.extend(text.lines().map(str::to_owned));
                }
            }
            Ok(()) => {
                let _ = folder.remove(&name);
            }
            Err(TryLockError::Error(_)) => {}
        }
    }
    keys
}

/// Whether a file's date is so long ago that its process has terminated, or as far in the future,
/// left by a clock that was set back.
pub(super) fn is_stale(modified: SystemTime) -> bool {
    let age = SystemTime::now().duration_since(modified);
    age.unwrap_or_else(|ahead| ahead.duration()) > STALE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::key::tests::sample_request;

    #[test]
    fn keys_are_leased_while_the_process_lives() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let held = Held::open(folder.path()).expect("there");
        let lease = Lease::open(held.again().expect("open")).expect("writable");
        let key = Key::of(&sample_request());
        lease.add(key);
        lease.add(key);
        assert_eq!(leased(&held), HashSet::from([key.to_hex()]));
        // A killed process leaves a file with keys and no lock.
        held.put("process-dead", b"0123\n", 0o600).expect("writable");
        assert_eq!(leased(&held), HashSet::from([key.to_hex()]));
        drop(lease);
        assert_eq!(leased(&held), HashSet::new());
        assert_eq!(held.names().len(), 0);
    }
}
