//! Overrides: edited sources and PTX that replace generated kernels.
//!
//! ```text
//! <folder>/
//!   <stem>-<first digits of the key>/   a dump folder with an edited kernel.cu or kernel.ptx
//!   <name>.cu, <name>.ptx               name: that of a dump folder, a key, or a stem
//! ```
//! An overriding source has its own cache key, as every source has; overriding PTX is never cached.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::warn;

use crate::cache::Key;
use crate::codegen::KernelSource;
use crate::error::{Error, Result};
use crate::plan::dump::format::{PTX, SOURCE, digest, identifier};
use crate::plan::dump::read::{Edit, edit_in_place, read_spec, read_text};
use crate::target::Arch;

/// An override and the kernels that it has replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OverrideUse {
    /// The overriding file.
    pub path: PathBuf,
    /// Names of the replaced kernels, as dumps have them.
    pub kernels: Vec<String>,
}

/// The overrides of a folder. When dropped, it logs those that have replaced nothing.
#[derive(Debug)]
pub(in crate::plan) struct Overrides {
    /// Overrides of a single kernel come before those of a stem.
    overrides: Vec<Override>,
}

#[derive(Debug)]
pub(in crate::plan) struct Override {
    wanted: Wanted,
    pub(in crate::plan) edit: Edit,
    /// The kernels that it has replaced.
    kernels: Mutex<BTreeSet<String>>,
}

/// The kernels that an override applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// The kernel with this digest of the source.
    Source { digest: String, arch: Arch },
    /// The kernel with this key or identifier, or all with this stem.
    Named(String),
}

impl Overrides {
    /// Reads a folder of overrides.
    ///
    /// # Errors
    /// `BadParam` when it cannot be read or has an entry that is not an override.
    pub(in crate::plan) fn open(folder: &Path) -> Result<Overrides> {
        let shown = folder.display();
        let unreadable = |error: std::io::Error| {
            Error::bad_param(format!("failed to read overrides from `{shown}`: {error}"))
        };
        let mut overrides = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let found = match path.is_dir() {
                true => Override::of_dump(&path)?,
                false => Some(Override::of_file(&path)?),
            };
            overrides.extend(found);
        }
        if overrides.is_empty() {
            warn!("`{shown}` overrides nothing: no kernel in it differs from what was dumped");
        }
        overrides.sort_by(|a, b| (&a.wanted, &a.edit.path).cmp(&(&b.wanted, &b.edit.path)));
        Ok(Overrides { overrides })
    }

    /// The override of a kernel; `keys` are its possible cache keys.
    pub(in crate::plan) fn find(&self, source: &KernelSource, keys: &[Key]) -> Option<&Override> {
        let name = |name: &String| {
            let is_one =
                |key: &Key| *name == key.to_hex() || *name == identifier(&source.stem, *key);
            *name == source.stem || keys.iter().any(is_one)
        };
        self.overrides.iter().find(|of| match &of.wanted {
            Wanted::Source { digest: wanted, arch } => {
                *arch == source.arch && *wanted == digest(&source.text)
            }
            Wanted::Named(wanted) => name(wanted),
        })
    }

    pub(in crate::plan) fn uses(&self) -> Vec<OverrideUse> {
        self.overrides.iter().map(Override::used).collect()
    }
}

impl Override {
    /// The override in a dump folder; `None` if nothing has been edited.
    fn of_dump(folder: &Path) -> Result<Option<Override>> {
        let spec = read_spec(folder)?;
        let (source, ptx) = (read_text(&folder.join(SOURCE))?, read_text(&folder.join(PTX))?);
        let edit = edit_in_place(folder, &spec, &source, &ptx)?;
        let digest = spec.digests.get(SOURCE).cloned().unwrap_or_default();
        let wanted = Wanted::Source { digest, arch: spec.arch };
        Ok(edit.map(|edit| Override { wanted, edit, kernels: Mutex::default() }))
    }

    fn of_file(path: &Path) -> Result<Override> {
        let edit = Edit::read(path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Override { wanted: Wanted::Named(stem), edit, kernels: Mutex::default() })
    }

    /// Records a kernel that it replaces.
    pub(in crate::plan) fn note(&self, kernel: String) {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).insert(kernel);
    }

    fn used(&self) -> OverrideUse {
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        OverrideUse { path: self.edit.path.clone(), kernels: kernels.iter().cloned().collect() }
    }
}

impl Drop for Overrides {
    fn drop(&mut self) {
        for OverrideUse { path, kernels } in self.uses() {
            if kernels.is_empty() {
                warn!("override `{}` stood in for no kernel", path.display());
            }
        }
    }
}
