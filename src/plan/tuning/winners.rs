//! What tuning has found, in the cache folder: a JSON file for each part, and for each graph.
//!
//! A file is for one form of a graph, one GPU and one version. One that cannot be used is a
//! warning; what counts have found on the simulator is used there alone.

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

/// Version of the format; part of a file's name, so that no other version is read.
const SCHEMA: u32 = 4;

/// The folder of winners, in the cache folder.
const FOLDER: &str = "tuned";

/// What was measured.
const TIME: &str = "time";
const COUNTS: &str = "counts";

/// A setting that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Engine and knobs.
    pub config: String,
    /// The cost model's time in microseconds.
    pub predicted_us: Option<f64>,
    /// The measured time in microseconds, of all its kernels.
    pub us: Option<f64>,
    /// Why it cannot be used.
    pub refused: Option<String>,
}

/// A split that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedSplit {
    /// Engine and knobs of each part.
    pub parts: Vec<String>,
    /// The measured time in microseconds, of all kernels of the graph.
    pub us: Option<f64>,
    /// Why it cannot be used.
    pub refused: Option<String>,
}

/// What a winner was found with.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct Measurement {
    kiln_tuned: u32,
    version: String,
    target: Target,
    /// `time` or `counts`.
    measured: String,
    us: f64,
    heuristic_us: f64,
}

impl Measurement {
    pub(in crate::plan) fn of(
        device: &Device,
        target: &Target,
        us: f64,
        heuristic_us: f64,
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

    /// Whether it ranks anything on a device: on a GPU counts on the simulator do not.
    fn is_for(&self, device: &Device) -> bool {
        self.measured == TIME || device.kind() == "sim"
    }
}

/// The best setting of a part.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct SettingRecord {
    pub(in crate::plan) measurement: Measurement,
    pub(in crate::plan) config: String,
    pub(in crate::plan) tried: Vec<Tried>,
    pub(in crate::plan) problem: Value,
}

/// The best split of a graph.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::plan) struct SplitRecord {
    pub(in crate::plan) measurement: Measurement,
    pub(in crate::plan) tried: Vec<TriedSplit>,
    pub(in crate::plan) plan: Value,
}

impl SettingRecord {
    /// Where it is kept; `None` where it could not be.
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
    /// Where it is kept; `None` where it could not be.
    pub(in crate::plan) fn keep(
        &self,
        cache: &DiskCache,
        graph: &OperationGraph,
    ) -> Option<PathBuf> {
        let kind = Kind::Split;
        kind.keep(cache, &kind.names(&graph.digest(), &self.measurement.target), self)
    }
}

/// The setting that tuning has found for a part, where it has and the selection allows it.
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

/// The parts that tuning has found for a graph, where it has and nothing is excluded.
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

/// What a record is of.
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

    /// The folder in the cache's and the file.
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

    /// What is of use in a file, if it is there and anything is.
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
