//! Tuning of how a graph is split: the whole graph measured, fused as merging has it and with each
//! fusion undone.
//!
//! The best split is a plan's document in the cache folder, under the graph, the GPU and the
//! version; later plans of that graph have its parts, each with the setting that is its own winner.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;

use crate::cache::DiskCache;
use crate::device::Device;
use crate::engine::{Mode, Notes, Part, Selection, splits_undone};
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::document::parts_in;
use crate::plan::tune::{COUNTS, FOLDER, SCHEMA, TIME, TuneProgress};
use crate::target::Target;

/// A split that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriedSplit {
    /// Engine and knobs of each part.
    pub parts: Vec<String>,
    /// The measured time in microseconds, of all kernels of the graph.
    pub us: Option<f64>,
    /// Why it can not be used.
    pub refused: Option<String>,
}

/// What tuning found for the split of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedSplit {
    /// The parts of the best split.
    pub parts: Vec<Part>,
    /// Its time in microseconds.
    pub us: f64,
    /// The time of the heuristic's split.
    pub heuristic_us: f64,
    /// Everything that was tried, the fastest first.
    pub tried: Vec<TriedSplit>,
    /// Where the result is kept, if there is a cache folder and there was a choice.
    pub path: Option<PathBuf>,
}

/// The best split's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    kiln_tuned: u32,
    version: String,
    target: Target,
    /// `time` or `counts`.
    measured: String,
    us: f64,
    heuristic_us: f64,
    tried: Vec<TriedSplit>,
    plan: Value,
}

impl Kiln {
    /// Measures a graph as the heuristic splits it and with what single parts fuse undone, each
    /// part with the setting that is known best, and keeps the best split. With notes that are
    /// excluded the split stays the heuristic's.
    ///
    /// # Errors
    /// As [`Kiln::tune`].
    pub fn tune_split(
        &self,
        graph: &OperationGraph,
        mut progress: impl FnMut(TuneProgress<'_>),
    ) -> Result<TunedSplit> {
        let target = self.device().target();
        let rules = Selection { mode: Mode::A, ..self.selection().clone() };
        let own = self.inner.untuned_parts(graph, target)?;
        let others = match rules.without == Notes::default() {
            true => splits_undone(&own, target, &rules),
            false => Vec::new(),
        };
        let total = 1 + others.len();
        let mut measured = Vec::new();
        for (done, parts) in std::iter::once(own).chain(others).enumerate() {
            let parts = self.inner.with_winners(graph, parts, target)?;
            let us = self.measure(graph, parts.clone());
            progress(TuneProgress {
                done: done + 1,
                total,
                what: &format!("{} parts", parts.len()),
            });
            measured.push((parts, us));
        }
        let us = |of: &Result<f64>| *of.as_ref().unwrap_or(&f64::INFINITY);
        let heuristic_us = us(&measured[0].1);
        // Stable: of equals, the heuristic's wins.
        measured.sort_by(|(_, a), (_, b)| us(a).total_cmp(&us(b)));
        let tried = measured.iter().map(|(parts, us)| TriedSplit {
            parts: parts.iter().map(|part| part.config.to_string()).collect(),
            us: us.as_ref().ok().copied(),
            refused: us.as_ref().err().map(Error::to_string),
        });
        let tried = tried.collect();
        let (parts, us) = measured.swap_remove(0);
        let mut tuned = TunedSplit { parts, us: us?, heuristic_us, tried, path: None };
        if total > 1 {
            tuned.path = self.keep_split(graph, &tuned)?;
            // The next plan is made with what was found.
            self.inner.plans.remove(&graph.digest());
        }
        Ok(tuned)
    }

    /// Keeps a result in the cache folder; a failure to is a warning.
    fn keep_split(&self, graph: &OperationGraph, tuned: &TunedSplit) -> Result<Option<PathBuf>> {
        let target = self.device().target();
        let Some(disk) = self.disk_cache() else { return Ok(None) };
        let names = names(graph, target);
        let path = names.iter().fold(disk.folder().to_owned(), |path, name| path.join(name));
        let plan = self.plan_parts(graph, tuned.parts.clone())?.to_json();
        let record = Record {
            kiln_tuned: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: target.clone(),
            measured: if self.device().kind() == "cuda" { TIME } else { COUNTS }.to_owned(),
            us: tuned.us,
            heuristic_us: tuned.heuristic_us,
            tried: tuned.tried.clone(),
            plan: serde_json::from_str(&plan).expect("a plan's document is valid"),
        };
        let text = serde_json::to_string_pretty(&record).expect("plain data is JSON");
        match disk.put_whole(&names, (text + "\n").as_bytes()) {
            Ok(()) => Ok(Some(path)),
            Err(error) => {
                warn!("failed to keep the tuned split in `{}`: {error}", path.display());
                Ok(None)
            }
        }
    }
}

/// The parts that tuning has found for a graph, where it has and nothing is excluded: on a GPU by
/// time, of which counts on the simulator say nothing. A file that can not be used is a warning.
pub(super) fn winner(
    cache: &DiskCache,
    graph: &OperationGraph,
    device: &Device,
    target: &Target,
    selection: &Selection,
) -> Option<Vec<Part>> {
    if graph.operations().len() == 1 || selection.without != Notes::default() {
        return None;
    }
    let names = names(graph, target);
    let path = names.iter().fold(cache.folder().to_owned(), |path, name| path.join(name));
    let unused = |error: &dyn std::fmt::Display| {
        warn!("tuned split `{}` is not used: {error}", path.display());
    };
    let text = match cache.private_file(&names).and_then(io::read_to_string) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            unused(&error);
            return None;
        }
    };
    let record: std::result::Result<Record, _> = serde_json::from_str(&text);
    let parts = record.map_err(|error| Error::bad_param(format!("malformed: {error}")));
    let parts = parts.and_then(|record| {
        if record.measured != TIME && device.kind() != "sim" {
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
    });
    parts.unwrap_or_else(|error| {
        unused(&error);
        None
    })
}

/// Where the best split of a graph on a target is kept: the folder in the cache's and the file.
fn names(graph: &OperationGraph, target: &Target) -> [String; 2] {
    let target = serde_json::to_string(target).expect("plain data is JSON");
    let mut hasher = blake3::Hasher::new_derive_key("kiln 2026-11 tuned split");
    hasher.update(&graph.digest());
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.update(target.as_bytes());
    [FOLDER.to_owned(), format!("{}.json", &hasher.finalize().to_hex()[..32])]
}
