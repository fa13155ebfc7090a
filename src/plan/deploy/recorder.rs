//! Recording: a manifest of the problems that a running program plans.
//!
//! Every planned problem is added once, for the device's target and, if the program chose it, with
//! its configuration. Processes that record to the same file lock it and replace it as a whole, so
//! that no entry is lost; existing entries, including hand-written ones, are kept.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::warn;

use crate::cache::{Held, KeyLock};
use crate::engine::EngineConfig;
use crate::error::{Error, Result};
use crate::graph::{GraphDigest, OperationGraph};
use crate::plan::deploy::manifest::{Manifest, ManifestProblem};
use crate::target::Target;

/// Identity of a recorded problem: digest of the graph's canonical form, target, configuration.
type Entry = (GraphDigest, String, Option<String>);

/// A manifest file that problems are added to.
#[derive(Debug)]
pub(in crate::plan) struct Recorder {
    path: PathBuf,
    /// The device's name in the manifest.
    target: String,
    seen: Mutex<Seen>,
}

/// The file's contents when this process last read it.
#[derive(Debug, Default)]
struct Seen {
    text: String,
    entries: HashSet<Entry>,
}

impl Recorder {
    /// Opens a recording for one device.
    ///
    /// # Errors
    /// `BadParam` when the file exists and is not a manifest, or its folder is not writable.
    pub(in crate::plan) fn open(path: &Path, device: &Target) -> Result<Recorder> {
        let target = Manifest::name_of(device).map(str::to_owned).unwrap_or_else(|| {
            let arch = device.arch.to_string();
            warn!(
                "{} is not in the table of GPUs: recorded as {arch}, for which other knobs may be \
                 chosen; warm such a recording on this GPU, without a target",
                device.name
            );
            arch
        });
        let recorder = Recorder { path: path.to_owned(), target, seen: Mutex::default() };
        recorder.add(None).map_err(|error| error.context("recording"))?;
        Ok(recorder)
    }

    /// Adds a problem; `config` if it was requested. A failure is a warning.
    pub(in crate::plan) fn note(&self, graph: &OperationGraph, config: Option<&EngineConfig>) {
        if let Err(error) = self.add(Some((graph, config))) {
            warn!("failed to record a problem: {error}");
        }
    }

    fn add(&self, asked: Option<(&OperationGraph, Option<&EngineConfig>)>) -> Result<()> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = asked.map(|(graph, config)| {
            (graph.form_digest(), self.target.clone(), config.map(ToString::to_string))
        });
        if entry.as_ref().is_some_and(|entry| seen.entries.contains(entry)) {
            return Ok(());
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let shown = self.path.display();
        let held = Held::open(folder).ok();
        let turn = held.and_then(|held| KeyLock::acquire(&held, &format!(".{name}.lock")));
        let _turn = turn.ok_or_else(|| {
            Error::bad_param(format!("failed to lock `{shown}`: its folder must take files"))
        })?;
        let failed = |error: io::Error| {
            Error::io(format!("failed to write manifest `{shown}`: {error}")).caused_by(error)
        };
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(error)),
        };
        if text != seen.text {
            *seen = Seen { entries: entries(&text, folder, &self.path)?, text };
        }
        let (Some(entry), Some((graph, _))) = (entry, asked) else { return Ok(()) };
        if seen.entries.contains(&entry) {
            return Ok(());
        }
        let problem = ManifestProblem {
            inline: Some(graph.to_json()),
            targets: vec![entry.1.clone()],
            config: entry.2.clone(),
            ..ManifestProblem::default()
        };
        let addition = Manifest::of(vec![problem]).to_toml();
        let gap = if seen.text.is_empty() { "" } else { "\n" };
        let text = [&seen.text, gap, &addition].concat();
        replace(&self.path, folder, &text).map_err(failed)?;
        seen.text = text;
        seen.entries.insert(entry);
        Ok(())
    }
}

/// Replaces a file atomically, keeping its permissions.
fn replace(path: &Path, folder: &Path, text: &str) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    let permissions = fs::metadata(path).map(|metadata| metadata.permissions());
    fs::set_permissions(file.path(), permissions.unwrap_or(Permissions::from_mode(0o644)))?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The problems that a manifest has.
fn entries(text: &str, folder: &Path, path: &Path) -> Result<HashSet<Entry>> {
    let in_file = |error: Error| error.context(format_args!("`{}`", path.display()));
    let manifest = Manifest::parse(text, folder).map_err(in_file)?;
    let mut entries = HashSet::new();
    for instance in manifest.instances().map_err(in_file)? {
        // The graphs of networks with loops are recorded, not the networks.
        let Some(graph) = instance.planned.graph() else { continue };
        let config = instance.config.map(|config| config.to_string());
        for target in instance.targets {
            entries.insert((graph.form_digest(), target, config.clone()));
        }
    }
    Ok(entries)
}
