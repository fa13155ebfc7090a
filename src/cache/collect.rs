//! Eviction: keeps the folder within its budget, least recently used entries first.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cache::held::Held;
use crate::cache::lease::{STALE, is_stale, leased};

/// Share of the budget at which collection stops, so that it does not run on every write.
const LOW_WATERMARK: f64 = 0.8;

/// An entry file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFile {
    /// Path.
    pub path: PathBuf,
    /// Key in hexadecimal.
    pub key: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of last use, accurate to about an hour.
    pub used: SystemTime,
}

/// Result of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Entries kept.
    pub kept: usize,
    /// Bytes of the entries kept.
    pub kept_bytes: u64,
    /// Entries removed.
    pub removed: usize,
    /// Bytes of the entries removed.
    pub removed_bytes: u64,
    /// Entries over the budget that running processes use.
    pub in_use: usize,
    /// Abandoned temporary files removed.
    pub stale: usize,
}

/// All entry files of a cache folder, most recently used first.
pub(super) fn entries(folder: &Held) -> Vec<EntryFile> {
    let mut found: Vec<EntryFile> = Vec::new();
    for shard in shards(folder) {
        found.extend(shard.names().iter().filter_map(|name| {
            let key = name.to_str()?.strip_suffix(".kiln")?.to_owned();
            let status = shard.status(name).ok().filter(|status| status.is_file)?;
            let path = shard.path().join(name);
            Some(EntryFile { path, key, bytes: status.bytes, used: status.modified })
        }));
    }
    // A date in the future, left by a clock that was set back, must not keep an entry for ever.
    let latest = SystemTime::now() + STALE;
    let used = |file: &EntryFile| Some(file.used).filter(|used| *used <= latest);
    found.sort_by(|a, b| (used(b), &a.key).cmp(&(used(a), &b.key)));
    found
}

/// The shard folders, each held open during its iteration.
fn shards(folder: &Held) -> impl Iterator<Item = Held> {
    let kernels = folder.folder("kernels").ok();
    let names = kernels.as_ref().map(Held::names).unwrap_or_default();
    names.into_iter().filter_map(move |name| kernels.as_ref()?.folder(name).ok())
}

/// Removes an entry.
fn remove(folder: &Held, entry: &EntryFile) -> io::Result<()> {
    let shard = entry.path.parent().and_then(Path::file_name);
    let (Some(shard), Some(file)) = (shard, entry.path.file_name()) else { return Ok(()) };
    folder.folder("kernels")?.folder(shard)?.remove(file)
}

/// Evicts entries until the folder is within `budget_bytes`; `None` if another process is doing so.
pub(super) fn collect(folder: &Held, budget_bytes: u64) -> Option<Collected> {
    let turn = folder.file_for_locks("gc.lock").ok().filter(|file| file.try_lock().is_ok())?;
    let mut collected = Collected { stale: reap(folder), ..Collected::default() };
    let leased = folder.folder("leases").map(|leases| leased(&leases)).unwrap_or_default();
    let entries = entries(folder);
    let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let aim = match total > budget_bytes {
        true => (budget_bytes as f64 * LOW_WATERMARK) as u64,
        false => u64::MAX,
    };
    for entry in entries.iter().rev() {
        let over = total > aim;
        if over && leased.contains(&entry.key) {
            collected.in_use += 1;
        }
        // Removal is atomic: a reader has the whole file open or does not find it.
        if over && !leased.contains(&entry.key) && remove(folder, entry).is_ok() {
            total -= entry.bytes;
            collected.removed += 1;
            collected.removed_bytes += entry.bytes;
        } else {
            collected.kept += 1;
            collected.kept_bytes += entry.bytes;
        }
    }
    drop(turn);
    Some(collected)
}

/// Removes files of terminated processes.
fn reap(folder: &Held) -> usize {
    let is_temporary = |name: &OsStr| name.to_string_lossy().starts_with(".tmp");
    let reap_in = |folder: &Held, wanted: &dyn Fn(&OsStr) -> bool| {
        let stale = |name: &OsStr| {
            wanted(name) && folder.status(name).is_ok_and(|status| is_stale(status.modified))
        };
        let names = folder.names();
        names.iter().filter(|name| stale(name) && folder.remove(name).is_ok()).count()
    };
    let temporary: usize = shards(folder).map(|shard| reap_in(&shard, &is_temporary)).sum();
    let locks = folder.folder("locks").map_or(0, |locks| reap_in(&locks, &|_| true));
    temporary + reap_in(folder, &is_temporary) + locks
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::fs::{self, File};

    use super::*;

    fn held(folder: &tempfile::TempDir) -> Held {
        Held::open(folder.path()).expect("there")
    }

    fn entry(folder: &Path, key: &str, bytes: usize, age: u64) -> PathBuf {
        let shard = folder.join("kernels").join(&key[..2]);
        fs::create_dir_all(&shard).expect("writable");
        let path = shard.join(format!("{key}.kiln"));
        fs::write(&path, vec![0; bytes]).expect("writable");
        let then = SystemTime::now() - Duration::from_secs(age);
        File::open(&path).and_then(|file| file.set_modified(then)).expect("own file");
        path
    }

    #[test]
    fn the_least_recently_used_go_down_to_the_watermark() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (age, key) in ["aa", "bb", "cc", "dd", "ee"].iter().enumerate() {
            entry(folder.path(), key, 100, age as u64 * 10);
        }
        assert_eq!(collect(&held(&folder), 500).expect("alone").removed, 0);
        let collected = collect(&held(&folder), 400).expect("alone");
        assert_eq!((collected.removed, collected.kept_bytes), (2, 300));
        let left = entries(&held(&folder));
        let left: Vec<&str> = left.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(left, ["aa", "bb", "cc"]);
    }

    #[test]
    fn entries_in_use_stay() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(folder.path().join("leases")).expect("writable");
        let old = entry(folder.path(), "aa", 100, 1000);
        let young = entry(folder.path(), "bb", 100, 0);
        let mut lease = tempfile::Builder::new()
            .prefix("process-")
            .tempfile_in(folder.path().join("leases"))
            .expect("writable");
        std::io::Write::write_all(&mut lease, b"aa\n").expect("writable");
        lease.as_file().try_lock().expect("free");
        let collected = collect(&held(&folder), 100).expect("alone");
        assert_eq!((collected.in_use, collected.removed), (1, 1));
        assert!(old.exists() && !young.exists());
    }

    #[test]
    fn abandoned_files_are_reaped() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = entry(folder.path(), "aa", 10, 0);
        fs::create_dir(folder.path().join("leases")).expect("writable");
        let lease = folder.path().join("leases/process-dead");
        let left =
            [path.with_file_name(".tmp-abc"), folder.path().join(".tmpStats"), lease.clone()];
        for path in &left {
            fs::write(path, if *path == lease { "" } else { "half" }).expect("writable");
        }
        assert_eq!(collect(&held(&folder), 100).expect("alone").stale, 0);
        assert!(left.iter().all(|path| path.exists()), "they may belong to a living process");
        let then = SystemTime::now() - 2 * STALE;
        for path in &left {
            File::open(path).and_then(|file| file.set_modified(then)).expect("own file");
        }
        assert_eq!(collect(&held(&folder), 100).expect("alone").stale, 2);
        assert!(left.iter().all(|path| !path.exists()) && path.exists());
        // With a date in the future.
        let file = File::create(&left[0]).expect("writable");
        file.set_modified(SystemTime::now() + 2 * STALE).expect("own file");
        assert_eq!(collect(&held(&folder), 100).expect("alone").stale, 1);
    }

    #[test]
    fn entries_from_the_future_go_first() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let future = entry(folder.path(), "aa", 100, 0);
        let then = SystemTime::now() + 24 * STALE;
        File::open(&future).and_then(|file| file.set_modified(then)).expect("own file");
        let past = entry(folder.path(), "bb", 100, 1000);
        collect(&held(&folder), 150).expect("alone");
        assert!(!future.exists() && past.exists());
    }
}
