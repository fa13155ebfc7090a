//! The disk tier: one file per entry, written so that a crash leaves either all of it or nothing.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::warn;

use crate::cache::entry::Entry;
use crate::cache::key::{Key, Request};
use crate::compile::Image;

/// A folder of entries. Every failure is a warning, never an error.
#[derive(Debug)]
pub struct DiskCache {
    folder: PathBuf,
    writable: AtomicBool,
    hits: AtomicU64,
    misses: AtomicU64,
    rejected: AtomicU64,
}

/// What happened so far in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Entries found and accepted.
    pub hits: u64,
    /// Entries not found.
    pub misses: u64,
    /// Entries found and thrown away.
    pub rejected: u64,
}

impl DiskCache {
    /// Opens a folder, creating it with mode 0700.
    ///
    /// Returns `None`, after a warning, when the folder can not be used: it can not be created, or
    /// it belongs to another user or can be written by others, which would let them choose the
    /// code this process runs.
    pub fn open(folder: &Path) -> Option<DiskCache> {
        let shown = folder.display();
        if let Err(error) = create_private(folder) {
            warn!("failed to create cache folder `{shown}`: {error}; caching in memory only");
            return None;
        }
        match fs::metadata(folder) {
            Ok(metadata) => {
                let (owner, mode) = (metadata.uid(), metadata.mode());
                if owner != rustix::process::geteuid().as_raw() || mode & 0o022 != 0 {
                    warn!(
                        "cache folder `{shown}` belongs to uid {owner} with mode {:o}; it must be \
                         yours and writable by nobody else; caching in memory only",
                        mode & 0o777
                    );
                    return None;
                }
            }
            Err(error) => {
                warn!("failed to read cache folder `{shown}`: {error}; caching in memory only");
                return None;
            }
        }
        Some(DiskCache {
            folder: folder.to_owned(),
            writable: AtomicBool::new(true),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What happened so far.
    pub fn counters(&self) -> DiskCounters {
        DiskCounters {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }

    /// The file of a key: sharded by its first two digits.
    pub fn path_of(&self, key: Key) -> PathBuf {
        let hex = key.to_hex();
        self.folder.join("kernels").join(&hex[..2]).join(format!("{hex}.kiln"))
    }

    /// The image of a key, if an entry is there and every byte of it is right. A wrong one is
    /// deleted.
    pub fn get(&self, key: Key) -> Option<Image> {
        let path = self.path_of(key);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    warn!("failed to read cache entry `{}`: {error}", path.display());
                }
                self.misses.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        };
        match Entry::decode(&bytes, key) {
            Ok(entry) => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                Some(entry.image)
            }
            Err(reason) => {
                self.reject(key, &reason.to_string());
                None
            }
        }
    }

    /// Throws an entry away that turned out to be useless.
    pub fn reject(&self, key: Key, reason: &str) {
        let path = self.path_of(key);
        warn!("rejected cache entry `{}`: {reason}; it is rebuilt", path.display());
        self.rejected.fetch_add(1, Ordering::Relaxed);
        // A reader of the same entry in another process may have been faster.
        let _ = fs::remove_file(path);
    }

    /// Stores an image. After the first failure (a full disk, a read-only folder) nothing more is
    /// written in this process.
    pub fn put(&self, request: &Request, image: &Image) {
        if !self.writable.load(Ordering::Relaxed) {
            return;
        }
        let path = self.path_of(Key::of(request));
        if let Err(error) = write_atomically(&path, &Entry::encode(request, image)) {
            self.writable.store(false, Ordering::Relaxed);
            let shown = path.display();
            warn!("failed to write cache entry `{shown}`: {error}; no more entries are written");
        }
    }
}

fn create_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Temporary file in the same folder, flushed to disk, renamed over the target: readers see the
/// old file, none, or all of the new one.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().expect("an entry lies in a shard folder");
    create_private(folder)?;
    let mut file = tempfile::Builder::new().prefix(".tmp-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
