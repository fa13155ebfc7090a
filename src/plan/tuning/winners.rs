//! Tuning records in the cache folder: a JSON file for each part and for each partition.
//!
//! A file is valid for one canonical form of a graph, one GPU and one version. An invalid one is a
//! warning. Records of counters are used on the simulator only.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;

use crate::cache::DiskCache;
use crate::device::Device;
use crate::engine::{EngineConfig, Notes, Part, Selection, supported};
use crate::error::{Error, Result};
use crate::graph::{GraphDigest, OperationGraph};
use crate::plan::document::parts_in;
use crate::target::Target;

/// Version of the format, part of a file's name: other versions are not read.
const SCHEMA: u32 = 5;

/// Folder of the records in the cache folder.
const FOLDER: &str = "tuned";

/// Kinds of measurement.
const TIME: &str = "time";
const COUNTS: &str = "counts";

/// A configuration that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Engine and knob values.
    pub config: String,
    /// Time predicted by the cost model, in microseconds.
    pub predicted_us: Option<f64>,
    /// Measured time of all its kernels, in microseconds.
    pub us: Option<f64>,
    /// Why it cannot be used.
    pub refused: Option<String>,
}

/// A partition that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedSplit {
    /// Configuration of each part.
    pub parts: Vec<String>,
    /// Measured time of all kernels of the graph, in microseconds.
    pub us: Option<f64>,
    /// Why it cannot be used.
    pub refused: Option<String>,
}

/// The conditions of a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct Measurement {
    kiln_tuned: u32,
    version: String,
    target: Target,
    /// `time` or `counts`.
    measured: String,
    us: f64,
    heuristic_us: Option<f64>,
}

impl Measurement {
    pub(in crate::plan) fn of(
        device: &Device,
        target: &Target,
        us: f64,
        heuristic_us: Option<f64>,
    ) -> Measurement {
        Measurement {
            kiln_tuned: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: target.clone(),
            measured: if device.kind() == "cuda" { TIME } else { COUNTS }.to_owned(),
            us,
            heuristic_us,
        }
    }

    /// Whether the measurement is meaningful on a device: counters on the simulator say nothing
    /// about a GPU.
    fn is_for(&self, device: &Device) -> bool {
        self.measured == TIME || device.kind() == "sim"
    }
}

/// Record of the best configuration of a part.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct SettingRecord {
    pub(in crate::plan) measurement: Measurement,
    pub(in crate::plan) config: String,
    pub(in crate::plan) tried: Vec<Tried>,
    pub(in crate::plan) problem: Value,
}

/// Record of the best partition of a graph.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct SplitRecord {
    pub(in crate::plan) measurement: Measurement,
    pub(in crate::plan) tried: Vec<TriedSplit>,
    pub(in crate::plan) plan: Value,
}

impl SettingRecord {
    /// Writes the record and returns its file; a failure is a warning and returns `None`.
    pub(in crate::plan) fn keep(
        &self,
        cache: &DiskCache,
        graph: &OperationGraph,
    ) -> Option<PathBuf> {
        let kind = Kind::Setting;
        kind.keep(cache, &kind.names(&graph.form_digest(), &self.measurement.target), self)
    }
}

impl SplitRecord {
    /// Writes the record and returns its file; a failure is a warning and returns `None`.
    pub(in crate::plan) fn keep(
        &self,
        cache: &DiskCache,
        graph: &OperationGraph,
    ) -> Option<PathBuf> {
        let kind = Kind::Split;
        kind.keep(cache, &kind.names(&graph.digest(), &self.measurement.target), self)
    }
}

/// The tuned configuration of a part, if there is a record and the selection allows it.
pub(in crate::plan) fn setting(
    cache: &DiskCache,
    part: &Part,
    device: &Device,
    target: &Target,
    selection: &Selection,
) -> Option<EngineConfig> {
    let names = Kind::Setting.names(&part.graph.form_digest(), target);
    Kind::Setting.read(cache, &names, |record: SettingRecord| {
        if !record.measurement.is_for(device) {
            return Ok(None);
        }
        let config: EngineConfig = record.config.parse()?;
        let supported = supported(&config.engine, part.graph.canonical(), target)?;
        config.validate(&supported.knobs())?;
        let excluded = supported.notes(&config).common(&selection.without.of_settings());
        Ok(excluded.is_none().then_some(config))
    })
}

/// The tuned partition of a graph, if there is a record and no notes are excluded.
pub(in crate::plan) fn split(
    cache: &DiskCache,
    graph: &OperationGraph,
    device: &Device,
    target: &Target,
    selection: &Selection,
) -> Option<Vec<Part>> {
    if graph.operations().len() == 1 || selection.without != Notes::default() {
        return None;
    }
    let names = Kind::Split.names(&graph.digest(), target);
    Kind::Split.read(cache, &names, |record: SplitRecord| {
        if !record.measurement.is_for(device) {
            return Ok(None);
        }
        let (own, parts) = parts_in(&record.plan.to_string(), target)?;
        if own.digest() != graph.digest() {
            return Err(Error::bad_param("it is of another graph"));
        }
        for part in &parts {
            part.config.validate(&part.supported(target)?.knobs())?;
        }
        Ok(Some(parts))
    })
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Setting,
    Split,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Setting => "setting",
            Kind::Split => "split",
        }
    }

    /// The record's folder in the cache folder, and its file.
    fn names(self, digest: &GraphDigest, target: &Target) -> [String; 2] {
        let target = serde_json::to_string(target).expect("plain data is JSON");
        let context = format!("kiln 2026-11 tuned {}", self.name());
        let mut hasher = blake3::Hasher::new_derive_key(&context);
        hasher.update(digest);
        hasher.update(&SCHEMA.to_le_bytes());
        hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
        hasher.update(target.as_bytes());
        [FOLDER.to_owned(), format!("{}.json", &hasher.finalize().to_hex()[..32])]
    }

    /// Reads a record, if its file exists and `usable` accepts it.
    fn read<R: DeserializeOwned, T>(
        self,
        cache: &DiskCache,
        names: &[String; 2],
        usable: impl FnOnce(R) -> Result<Option<T>>,
    ) -> Option<T> {
        let unused = |error: &dyn fmt::Display| {
            warn!("tuned {} `{}` is not used: {error}", self.name(), path(cache, names).display());
        };
        let text = match cache.private_file(names).and_then(io::read_to_string) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                unused(&error);
                return None;
            }
        };
        let record = serde_json::from_str(&text)
            .map_err(|error| Error::bad_param(format!("malformed: {error}")));
        record.and_then(usable).unwrap_or_else(|error| {
            unused(&error);
            None
        })
    }

    fn keep(
        self,
        cache: &DiskCache,
        names: &[String; 2],
        record: &impl Serialize,
    ) -> Option<PathBuf> {
        let text = serde_json::to_string_pretty(record).expect("plain data is JSON");
        let path = path(cache, names);
        match cache.put_whole(names, (text + "\n").as_bytes()) {
            Ok(()) => Some(path),
            Err(error) => {
                let (kind, path) = (self.name(), path.display());
                warn!("failed to keep the tuned {kind} in `{path}`: {error}");
                None
            }
        }
    }
}

fn path(cache: &DiskCache, names: &[String; 2]) -> PathBuf {
    names.iter().fold(cache.folder().to_owned(), |path, name| path.join(name))
}
