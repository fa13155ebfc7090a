//! Which NVRTC an image was or would be compiled by, without loading it where that is known.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compile::{Compiler, Located};
use crate::error::{Error, Result};

/// Version and build of an NVRTC library: part of every cache key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Toolchain {
    /// Major and minor version.
    pub version: (i32, i32),
    /// `__CUDACC_VER_BUILD__`.
    pub build: u32,
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version;
        write!(f, "NVRTC {major}.{minor}.{}", self.build)
    }
}

/// Everything that changes when another library is installed under the same path.
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

impl Toolchain {
    /// Asks a loaded library.
    ///
    /// # Errors
    /// As [`Compiler::build`].
    pub fn of(compiler: &Compiler) -> Result<Toolchain> {
        Ok(Toolchain { version: compiler.version(), build: compiler.build()? })
    }

    /// The identity remembered for this library in `folder`, if the file is still the same.
    pub fn recall(located: &Located, folder: &Path) -> Option<Toolchain> {
        let identity = identity(&located.path).ok()?;
        let text = fs::read_to_string(memo_path(folder, &identity)).ok()?;
        let memo: Memo = serde_json::from_str(&text).ok()?;
        (memo.identity == identity).then_some(memo.toolchain)
    }

    /// The identity remembered last in `folder`, of whatever library: for machines without one.
    pub fn recall_latest(folder: &Path) -> Option<Toolchain> {
        let memo = |entry: fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let modified = entry.metadata().ok()?.modified().ok()?;
            (name.starts_with("toolchain-") && name.ends_with(".json"))
                .then(|| (modified, entry.path()))
        };
        let entries = fs::read_dir(folder).ok()?;
        let (_, path) = entries.filter_map(|entry| entry.ok()).filter_map(memo).max()?;
        let memo: Memo = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
        Some(memo.toolchain)
    }

    /// Remembers the identity in `folder`; the next process then needs not load the library.
    ///
    /// # Errors
    /// `Driver` when the file can not be written; callers warn and go on.
    pub fn remember(&self, located: &Located, folder: &Path) -> Result<()> {
        let failed = |error: std::io::Error| {
            let shown = folder.display();
            Error::driver(format!("failed to remember the toolchain in `{shown}`")).caused_by(error)
        };
        let identity = identity(&located.path).map_err(failed)?;
        let path = memo_path(folder, &identity);
        let memo = Memo { identity, toolchain: self.clone() };
        let text = serde_json::to_string(&memo).expect("plain data is JSON");
        let file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        fs::write(file.path(), text).map_err(failed)?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    let path = path.canonicalize()?;
    let metadata = fs::metadata(&path)?;
    Ok(Identity {
        inode: metadata.ino(),
        bytes: metadata.size(),
        mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        path,
    })
}

fn memo_path(folder: &Path, identity: &Identity) -> PathBuf {
    let digest = blake3::hash(identity.path.as_os_str().as_encoded_bytes()).to_hex();
    folder.join(format!("toolchain-{}.json", &digest[..16]))
}
