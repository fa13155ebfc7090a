//! The disk tier: one file per entry, written so that a crash leaves either all of it or nothing.

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

/// The size the folder is kept within unless the user says otherwise.
pub const BUDGET_BYTES: u64 = 1 << 30;

/// An entry's last use is noted at most this often: it costs a write.
const TOUCH_AFTER: Duration = Duration::from_secs(3600);

/// A collection is due after this share of the budget has been written: a sixteenth, so that the
/// folder never exceeds its budget by more, per process.
const COLLECT_SHARE: u64 = 16;

/// A folder of entries. Every failure is a warning, never an error.
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
    /// The folder as it was checked.
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
    /// Returns `None`, after a warning, when the folder can not be used: it can not be created, or
    /// it belongs to another user or can be written or replaced by others, which would let them
    /// choose the code this process runs. Others can replace a folder where any folder above it
    /// belongs to neither this user nor root, or is writable by others or by a group without the
    /// sticky bit; a group that has this user's name and nobody else in it is no other.
    pub fn open(folder: &Path, budget_bytes: u64) -> Option<DiskCache> {
        let opened = open_private(folder).and_then(|folder| {
            // Checked once more as it is held: it may have been replaced since.
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
            // The first write of a process looks after the folder.
            written_bytes: AtomicU64::new(budget_bytes / COLLECT_SHARE),
            counters: Counters::default(),
            lease,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The size the folder is kept within.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// What happened in this process.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// What happened in all processes that have ended.
    pub fn counts_of_all(&self) -> Counts {
        counters::read(&self.held)
    }

    /// The file of a key: sharded by its first two digits.
    pub fn path_of(&self, key: Key) -> PathBuf {
        inside(key).iter().fold(self.folder.clone(), |path, name| path.join(name))
    }

    /// A file by the names of its folders and its own, each of which nobody else may write: every
    /// level is opened relative to the one above it, and to the folder that was checked.
    pub(crate) fn private_file(&self, names: &[impl AsRef<OsStr>]) -> io::Result<File> {
        let (name, folders) = names.split_last().expect("a file has a name");
        self.level(folders, |outer, folder| outer.folder(folder))?.private_file(name)
    }

    /// Writes such a file; folders that are not there are made. Readers see all of it or none.
    pub(crate) fn put_whole(&self, names: &[impl AsRef<OsStr>], bytes: &[u8]) -> io::Result<()> {
        let (name, folders) = names.split_last().expect("a file has a name");
        self.level(folders, |outer, folder| outer.made(folder, 0o700))?.put_whole(name, bytes)
    }

    /// A folder below, by the names on the way to it.
    fn level<N: AsRef<OsStr>>(
        &self,
        folders: &[N],
        open: impl Fn(&Held, &N) -> io::Result<Held>,
    ) -> io::Result<Held> {
        let step = |level: Held, folder: &N| open(&level, folder)?.private();
        folders.iter().try_fold(self.held.again()?, step)
    }

    /// The folder as it was checked.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// All entry files, most recently used first.
    pub fn entries(&self) -> Vec<EntryFile> {
        collect::entries(&self.held)
    }

    /// The image of a key, if an entry is there and every byte of it is right. A wrong one is
    /// deleted.
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

    /// The entry of a key, checked; `None` when there is none. Nothing is counted or deleted.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn read(&self, key: Key) -> Result<Option<Entry>, EntryError> {
        Ok(self.read_sized(key)?.map(|(entry, _)| entry))
    }

    /// The entry of a key, checked, with the bytes of its file; `None` when there is none.
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

    /// Throws an entry away that turned out to be useless; `reason` is counted, `text` shown.
    pub fn reject(&self, key: Key, reason: &str, text: &str) {
        let path = self.path_of(key);
        warn!("rejected cache entry `{}`: {text}; it is rebuilt", path.display());
        self.counters.miss(reason);
        let [kernels, shard, file] = inside(key);
        let shard = self.level(&[kernels, shard], |outer, folder| outer.folder(folder));
        // A reader of the same entry in another process may have been faster.
        let _ = shard.and_then(|shard| shard.remove(file));
    }

    /// Waits for another process that compiles the key, for a bounded time; the caller looks once
    /// more, compiles if it must, and drops the lock. `None`: go on without.
    pub fn lock(&self, key: Key) -> Option<KeyLock> {
        if !self.writable.load(Ordering::Relaxed) {
            return None;
        }
        let locks = self.held.made("locks", 0o700).and_then(Held::private).ok()?;
        KeyLock::acquire(&locks, &key.to_hex())
    }

    /// Notes that this process uses the entry, so that no process removes it.
    pub fn keep(&self, key: Key) {
        if let Some(lease) = &self.lease {
            lease.add(key);
        }
    }

    /// Stores the bytes of an entry ([`Entry::encode`]). After the first failure (a full disk, a
    /// read-only folder) nothing more is written in this process.
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

    /// Brings the folder within a budget now and removes abandoned files. `None` when another
    /// process is doing so.
    pub fn collect(&self, budget_bytes: u64) -> Option<Collected> {
        let collected = collect::collect(&self.held, budget_bytes)?;
        self.counters.evicted(collected.removed);
        Some(collected)
    }

    /// Why a request is not answered by the entry that comes nearest.
    pub fn explain(&self, request: &Request) -> Explanation {
        explain(request, self.requests())
    }

    /// What the entries were asked for; damaged ones are passed over.
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
            // The clock went back: a date in the future would keep the entry for ever.
            Err(_) => true,
        };
        if shard.status(&file).is_ok_and(|status| old(status.modified)) {
            // A read-only folder keeps the dates it has.
            let _ = shard.touch(&file, now);
        }
    }
}

/// The names of an entry's folders and file: sharded by the first two digits of the key.
fn inside(key: Key) -> [String; 3] {
    let hex = key.to_hex();
    ["kernels".to_owned(), hex[..2].to_owned(), format!("{hex}.kiln")]
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        // Counts are for people; a folder that takes no writes has none.
        let _ = counters::add(&self.held, &self.counters.snapshot());
    }
}

/// The entry in a file and the bytes of that, if they are not more than an entry has.
fn read_entry(file: File, key: Key) -> io::Result<(Result<Entry, EntryError>, u64)> {
    let bytes = file.metadata()?.len();
    if bytes > ENTRY_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok((Entry::read(file, bytes, key)?, bytes))
}
