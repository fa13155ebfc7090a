//! Cross-process compilation locks: one compilation per key, with an advisory file lock that the
//! operating system releases in any event.

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::cache::held::Held;

/// Maximum wait for another process's compilation: longer than any compilation, short enough if the
/// holder hangs.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Wait after which a warning is logged.
const SILENT: Duration = Duration::from_secs(1);

/// Polling interval; a compilation takes tens of milliseconds.
const POLL: Duration = Duration::from_millis(2);

/// Lock on the compilation of a key, released on drop.
#[derive(Debug)]
pub struct KeyLock {
    folder: Held,
    name: String,
    _file: File,
}

impl KeyLock {
    /// Acquires the lock `name` in `folder`, waiting a bounded time for another holder.
    ///
    /// Returns `None` on timeout, or if locking does not work (read-only or remote folder) or the
    /// name is a link; callers then proceed without it.
    pub fn acquire(folder: &Held, name: &str) -> Option<KeyLock> {
        KeyLock::acquire_within(folder, name, WAIT_MAX)
    }

    /// As [`KeyLock::acquire`], with a timeout.
    pub(super) fn acquire_within(folder: &Held, name: &str, wait: Duration) -> Option<KeyLock> {
        let start = Instant::now();
        let deadline = start + wait;
        let mut silent = true;
        loop {
            match KeyLock::attempt(folder, name) {
                Ok(Some(file)) => {
                    let folder = folder.again().ok()?;
                    return Some(KeyLock { folder, name: name.to_owned(), _file: file });
                }
                Ok(None) if silent && start.elapsed() >= SILENT => {
                    silent = false;
                    let (path, most) = (folder.path().join(name), wait.as_secs());
                    let shown = path.display();
                    warn!("waiting for the process that holds `{shown}`, {most} seconds at most");
                }
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn attempt(folder: &Held, name: &str) -> io::Result<Option<File>> {
        let file = folder.file_for_locks(name)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The previous holder removes the file before unlocking it; a lock on a removed file
        // excludes nobody.
        Ok(folder.is_called(&file, name).then_some(file))
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        // A leftover is removed by the collector.
        let _ = self.folder.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn held(folder: &tempfile::TempDir) -> Held {
        Held::open(folder.path()).expect("there")
    }

    #[test]
    fn holders_exclude_each_other_and_leave_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let held = held(&folder);
        let (inside, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let lock = KeyLock::acquire(&held, "key").expect("a turn comes");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        rounds.fetch_add(1, Ordering::Relaxed);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(rounds.into_inner(), 200);
        assert_eq!(held.names().len(), 0);
    }

    #[test]
    fn waiting_has_an_end() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let folder = held(&folder);
        let held = KeyLock::acquire(&folder, "key").expect("free");
        let (start, wait) = (Instant::now(), Duration::from_millis(20));
        assert!(KeyLock::acquire_within(&folder, "key", wait).is_none());
        assert!(start.elapsed() >= wait);
        drop(held);
        assert!(KeyLock::acquire_within(&folder, "key", wait).is_some());
    }

    #[test]
    fn a_link_is_no_lock_and_leads_nowhere() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let elsewhere = folder.path().join("elsewhere");
        symlink(&elsewhere, folder.path().join("key")).expect("writable");
        assert!(KeyLock::acquire(&held(&folder), "key").is_none());
        assert!(!elsewhere.exists(), "nothing is made through the link");
    }
}
