//! The disk tier: one file per entry, written atomically.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tracing::warn;

use crate::cache::collect::{self, Collected, EntryFile};
use crate::cache::counters::{self, Counters, Counts};
use crate::cache::entry::{ENTRY_BYTES_MAX, Entry, EntryError};
use crate::cache::explain::{Explanation, explain};
use crate::cache::folder::open_private;
use crate::cache::held::Held;
use crate::cache::key::{Key, Request};
use crate::cache::lease::Lease;
use crate::cache::lock::KeyLock;
use crate::compile::Image;

/// Default budget of the folder.
pub const BUDGET_BYTES: u64 = 1 << 30;

/// Minimum interval between updates of an entry's last use, each of which is a write.
const TOUCH_AFTER: Duration = Duration::from_secs(3600);

/// A collection is due after 1/16 of the budget has been written, so that a process exceeds the
/// budget by no more than that.
const COLLECT_SHARE: u64 = 16;

/// A folder of entries. Failures are logged as warnings, never returned as errors.
///
/// ```text
/// kernels/ab/<key>.kiln   entries, by the first two digits of their keys
/// leases/process-*        the keys that living processes use
/// locks/<key>             held while a process compiles the key
/// stats.json              counts of the processes that have ended
/// toolchain-*.json        which NVRTC a library is
/// ```
#[derive(Debug)]
pub struct DiskCache {
    folder: PathBuf,
    /// Handle of the folder that was checked.
    held: Held,
    budget_bytes: u64,
    writable: AtomicBool,
    written_bytes: AtomicU64,
    counters: Counters,
    lease: Option<Lease>,
}

impl DiskCache {
    /// Opens a folder, creating it with mode 0700.
    ///
    /// Returns `None`, after a warning, if the folder cannot be created, or if other users could
    /// choose the code this process runs: it belongs to another user, or others can write or
    /// replace it. Others can replace a folder if any of its parents belongs to neither this user
    /// nor root, or is writable by others or by a group and lacks the sticky bit; a group whose
    /// only member is this user, and which has the user's name, is not considered other.
    pub fn open(folder: &Path, budget_bytes: u64) -> Option<DiskCache> {
        let opened = open_private(folder).and_then(|folder| {
            // Checked again on the open handle: the folder may have been replaced meanwhile.
            let held = Held::open(&folder).and_then(Held::private);
            let held = held.map_err(|error| format!("failed to open cache folder: {error}"))?;
            Ok((folder, held))
        });
        let (folder, held) = match opened {
            Ok(opened) => opened,
            Err(text) => {
                warn!("{text}; caching in memory only");
                return None;
            }
        };
        let leases = held.made("leases", 0o700).and_then(Held::private);
        let lease = leases.ok().and_then(Lease::open);
        Some(DiskCache {
            folder,
            held,
            budget_bytes,
            writable: AtomicBool::new(true),
            // The first write of a process triggers a collection.
            written_bytes: AtomicU64::new(budget_bytes / COLLECT_SHARE),
            counters: Counters::default(),
            lease,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Budget of the folder in bytes.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Statistics of this process.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// Statistics of all terminated processes.
    pub fn counts_of_all(&self) -> Counts {
        counters::read(&self.held)
    }

    /// Path of a key's file, sharded by the first two digits.
    pub fn path_of(&self, key: Key) -> PathBuf {
        inside(key).iter().fold(self.folder.clone(), |path, name| path.join(name))
    }

    /// Opens a private file by path components, each of which only this user can write: every level
    /// is opened relative to the previous one, starting at the checked folder.
    pub(crate) fn private_file(&self, names: &[impl AsRef<OsStr>]) -> io::Result<File> {
        let (name, folders) = names.split_last().expect("a file has a name");
        self.level(folders, |outer, folder| outer.folder(folder))?.private_file(name)
    }

    /// Writes a private file atomically, creating missing folders.
    pub(crate) fn put_whole(&self, names: &[impl AsRef<OsStr>], bytes: &[u8]) -> io::Result<()> {
        let (name, folders) = names.split_last().expect("a file has a name");
        self.level(folders, |outer, folder| outer.made(folder, 0o700))?.put_whole(name, bytes)
    }

    /// Opens the folder at these path components.
    fn level<N: AsRef<OsStr>>(
        &self,
        folders: &[N],
        open: impl Fn(&Held, &N) -> io::Result<Held>,
    ) -> io::Result<Held> {
        let step = |level: Held, folder: &N| open(&level, folder)?.private();
        folders.iter().try_fold(self.held.again()?, step)
    }

    /// Handle of the folder that was checked.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// All entry files, most recently used first.
    pub fn entries(&self) -> Vec<EntryFile> {
        collect::entries(&self.held)
    }

    /// Reads the image of a key, if there is a valid entry. An invalid one is deleted.
    pub fn get(&self, key: Key) -> Option<Image> {
        match self.read_sized(key) {
            Ok(Some((entry, bytes))) => {
                self.counters.hit(bytes, entry.compile);
                self.touch(key);
                Some(entry.image)
            }
            Ok(None) => {
                self.counters.miss("absent");
                None
            }
            Err(reason) => {
                self.reject(key, reason.name(), &reason.to_string());
                None
            }
        }
    }

    /// Reads and checks the entry of a key; `None` if there is none. Nothing is counted or deleted.
    ///
    /// # Errors
    /// Why the file is not a valid entry.
    pub fn read(&self, key: Key) -> Result<Option<Entry>, EntryError> {
        Ok(self.read_sized(key)?.map(|(entry, _)| entry))
    }

    /// As [`DiskCache::read`], with the size of the file.
    fn read_sized(&self, key: Key) -> Result<Option<(Entry, u64)>, EntryError> {
        let path = self.path_of(key);
        match self.private_file(&inside(key)).and_then(|file| read_entry(file, key)) {
            Ok((entry, bytes)) => Ok(Some((entry?, bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(EntryError::Malformed),
            Err(error) => {
                warn!("failed to read cache entry `{}`: {error}", path.display());
                Ok(None)
            }
        }
    }

    /// Removes an unusable entry; `reason` is counted, `text` is logged.
    pub fn reject(&self, key: Key, reason: &str, text: &str) {
        let path = self.path_of(key);
        warn!("rejected cache entry `{}`: {text}; it is rebuilt", path.display());
        self.counters.miss(reason);
        let [kernels, shard, file] = inside(key);
        let shard = self.level(&[kernels, shard], |outer, folder| outer.folder(folder));
        // Another process may have removed the entry already.
        let _ = shard.and_then(|shard| shard.remove(file));
    }

    /// Waits a bounded time for another process that is compiling the key. The caller looks up the
    /// key again, compiles if necessary, and drops the lock. `None` means to proceed without a
    /// lock.
    pub fn lock(&self, key: Key) -> Option<KeyLock> {
        if !self.writable.load(Ordering::Relaxed) {
            return None;
        }
        let locks = self.held.made("locks", 0o700).and_then(Held::private).ok()?;
        KeyLock::acquire(&locks, &key.to_hex())
    }

    /// Marks the entry as used by this process, which protects it from eviction.
    pub fn keep(&self, key: Key) {
        if let Some(lease) = &self.lease {
            lease.add(key);
        }
    }

    /// Writes the bytes of an entry ([`Entry::encode`]). After the first failure (a full disk, a
    /// read-only folder) this process writes no more entries.
    pub fn put(&self, key: Key, bytes: &[u8]) {
        if !self.writable.load(Ordering::Relaxed) {
            return;
        }
        let path = self.path_of(key);
        if let Err(error) = self.put_whole(&inside(key), bytes) {
            self.writable.store(false, Ordering::Relaxed);
            let shown = path.display();
            warn!("failed to write cache entry `{shown}`: {error}; no more entries are written");
            return;
        }
        let written = bytes.len() as u64;
        self.counters.wrote(written);
        let before = self.written_bytes.fetch_add(written, Ordering::Relaxed);
        if before.saturating_add(written) > self.budget_bytes / COLLECT_SHARE {
            self.written_bytes.store(0, Ordering::Relaxed);
            self.collect(self.budget_bytes);
        }
    }

    /// Evicts entries to a budget and removes abandoned files; `None` if another process is doing
    /// so.
    pub fn collect(&self, budget_bytes: u64) -> Option<Collected> {
        let collected = collect::collect(&self.held, budget_bytes)?;
        self.counters.evicted(collected.removed);
        Some(collected)
    }

    /// Explains a miss by the nearest entry.
    pub fn explain(&self, request: &Request) -> Explanation {
        explain(request, self.requests())
    }

    /// Requests of all valid entries.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        let request = |file: EntryFile| self.read(Key::from_hex(&file.key)?).ok()?;
        self.entries().into_iter().filter_map(request).map(|entry| entry.request)
    }

    fn touch(&self, key: Key) {
        let [kernels, shard, file] = inside(key);
        let shard = self.level(&[kernels, shard], |outer, folder| outer.folder(folder));
        let Ok(shard) = shard else { return };
        let now = SystemTime::now();
        let old = |modified: SystemTime| match now.duration_since(modified) {
            Ok(age) => age > TOUCH_AFTER,
            // A date in the future, left by a clock that was set back, must not keep the entry for
            // ever.
            Err(_) => true,
        };
        if shard.status(&file).is_ok_and(|status| old(status.modified)) {
            // A read-only folder keeps its dates.
            let _ = shard.touch(&file, now);
        }
    }
}

/// Path components of an entry, sharded by the first two digits of the key.
fn inside(key: Key) -> [String; 3] {
    let hex = key.to_hex();
    ["kernels".to_owned(), hex[..2].to_owned(), format!("{hex}.kiln")]
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        // Statistics are informational; a read-only folder has none.
        let _ = counters::add(&self.held, &self.counters.snapshot());
    }
}

/// Reads an entry and the size of its file, unless it exceeds the maximum.
fn read_entry(file: File, key: Key) -> io::Result<(Result<Entry, EntryError>, u64)> {
    let bytes = file.metadata()?.len();
    if bytes > ENTRY_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok((Entry::read(file, bytes, key)?, bytes))
}
