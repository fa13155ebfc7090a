//! Memo of an NVRTC library's toolchain, stored in the cache folder so that a process whose kernels
//! are all cached need not load the library.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cache::disk::DiskCache;
use crate::cache::held::Held;
use crate::compile::{Located, Toolchain};

/// File attributes that change when another library is installed under the same path.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    mtime_ns: i128,
}

#[derive(Debug, Serialize, Deserialize)]
struct Memo {
    identity: Identity,
    toolchain: Toolchain,
}

impl DiskCache {
    /// Returns the toolchain of a library, if the file is unchanged.
    pub fn recall(&self, located: &Located) -> Option<Toolchain> {
        let identity = Identity::of(&located.path).ok()?;
        let memo = Memo::read(self.held(), identity.file())?;
        (memo.identity == identity).then_some(memo.toolchain)
    }

    /// Returns the most recently stored toolchain of any library, for machines without one.
    pub fn recall_latest(&self) -> Option<Toolchain> {
        let held = self.held();
        let is_memo = |name: &str| name.starts_with("toolchain-") && name.ends_with(".json");
        let names = held.names();
        let memos = names.iter().filter(|name| name.to_str().is_some_and(is_memo));
        let dated = memos.filter_map(|name| Some((held.status(name).ok()?.modified, name)));
        Some(Memo::read(held, dated.max()?.1)?.toolchain)
    }

    /// Stores the toolchain of a library.
    ///
    /// # Errors
    /// Those of the operating system; callers log them.
    pub fn remember(&self, located: &Located, toolchain: &Toolchain) -> io::Result<()> {
        let identity = Identity::of(&located.path)?;
        let name = identity.file();
        let memo = Memo { identity, toolchain: toolchain.clone() };
        let text = serde_json::to_string(&memo).expect("plain data is JSON");
        self.held().put_whole(name, text.as_bytes())
    }
}

impl Memo {
    fn read(folder: &Held, name: impl AsRef<OsStr>) -> Option<Memo> {
        let text = folder.private_file(name).and_then(io::read_to_string).ok()?;
        serde_json::from_str(&text).ok()
    }
}

impl Identity {
    fn of(library: &Path) -> io::Result<Identity> {
        let path = library.canonicalize()?;
        let metadata = fs::metadata(&path)?;
        let (seconds, rest) = (metadata.mtime(), metadata.mtime_nsec());
        Ok(Identity {
            inode: metadata.ino(),
            bytes: metadata.size(),
            mtime_ns: i128::from(seconds) * 1_000_000_000 + i128::from(rest),
            path,
        })
    }

    /// File name of the memo.
    fn file(&self) -> String {
        let digest = blake3::hash(self.path.as_os_str().as_encoded_bytes()).to_hex();
        format!("toolchain-{}.json", &digest[..16])
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_library_is_known_until_it_is_another() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let library = folder.path().join("libnvrtc.so");
        fs::write(&library, b"one").expect("writable");
        let located = Located { path: library.clone(), found_by: "test" };
        let cache = DiskCache::open(&folder.path().join("cache"), 1 << 20).expect("own folder");
        assert_eq!(cache.recall(&located), None);
        let toolchain = Toolchain { version: (13, 0), build: 88 };
        cache.remember(&located, &toolchain).expect("writable");
        assert_eq!(cache.recall(&located), Some(toolchain.clone()));
        assert_eq!(cache.recall_latest(), Some(toolchain.clone()));
        // A link in the memo's place is neither read nor written through.
        let name = Identity::of(&library).expect("there").file();
        let (memo, precious) = (cache.folder().join(name), folder.path().join("precious"));
        fs::rename(&memo, &precious).and_then(|()| symlink(&precious, &memo)).expect("own");
        assert_eq!((cache.recall(&located), cache.recall_latest()), (None, None));
        fs::write(&precious, b"precious").expect("own file");
        cache.remember(&located, &toolchain).expect("writable");
        assert_eq!(fs::read(&precious).expect("there"), b"precious");
        fs::write(&library, b"another").expect("writable");
        assert_eq!(cache.recall(&located), None);
    }
}
