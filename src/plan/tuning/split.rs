//! Tuning of how a graph is partitioned: the heuristic's partition is measured, and the same with
//! single fusions undone, or with two parts in one.
//!
//! The best partition is recorded as a plan document in the cache folder, by graph, GPU and
//! version. Later plans of the graph use it, with each part's own tuned configuration.

use std::path::PathBuf;

use crate::engine::{Mode, Notes, Part, Selection, splits_fused, splits_undone};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::OperationGraph;
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;
use crate::plan::tuning::settings::{Trials, TuneProgress};
use crate::plan::tuning::winners::{Measurement, SplitRecord, TriedSplit};

/// Result of tuning the partition of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedSplit {
    /// The parts of the best partition.
    pub parts: Vec<Part>,
    /// Its time in microseconds.
    pub us: f64,
    /// Time of the heuristic's partition, in microseconds, if it could be measured.
    pub heuristic_us: Option<f64>,
    /// All partitions tried, fastest first.
    pub tried: Vec<TriedSplit>,
    /// The record's file, if there is a cache folder and more than one partition.
    pub path: Option<PathBuf>,
}

impl Kiln {
    /// Measures a graph as the heuristic partitions it, with the fusions of single parts undone,
    /// and with two parts in one, each part with its best known configuration, and records the best
    /// partition. If notes are excluded, only the heuristic's partition is considered.
    ///
    /// # Errors
    /// As [`Kiln::tune`].
    pub fn tune_split(
        &self,
        graph: &OperationGraph,
        progress: impl FnMut(TuneProgress<'_>),
    ) -> Result<TunedSplit> {
        let mut trials = Trials::new(self);
        self.tune_split_by(graph, |plan| trials.measure(plan), progress)
    }

    /// As [`Kiln::tune_split`], by trials made elsewhere.
    ///
    /// # Errors
    /// As [`Kiln::tune_by`].
    pub fn tune_split_by(
        &self,
        graph: &OperationGraph,
        mut trial: impl FnMut(&ExecutionPlan) -> Result<f64>,
        mut progress: impl FnMut(TuneProgress<'_>),
    ) -> Result<TunedSplit> {
        let target = self.device().target();
        let rules = Selection { mode: Mode::A, ..self.selection().clone() };
        let own = self.inner.untuned_parts(graph, target)?;
        let others = match rules.without == Notes::default() {
            true => {
                let fused = splits_fused(graph, &own, target, &rules);
                [splits_undone(&own, target, &rules), fused].concat()
            }
            false => Vec::new(),
        };
        let total = 1 + others.len();
        let mut measured = Vec::new();
        for (done, parts) in std::iter::once(own).chain(others).enumerate() {
            let parts = self.inner.with_winners(graph, parts, target)?;
            let plan = self.plan_parts(graph, parts.clone());
            let us = match plan.and_then(|plan| trial(&plan)) {
                Err(error) if error.kind() == ErrorKind::DeviceLost => return Err(error),
                us => us,
            };
            progress(TuneProgress {
                done: done + 1,
                total,
                what: &format!("{} parts", parts.len()),
            });
            measured.push((parts, us));
        }
        let us = |of: &Result<f64>| *of.as_ref().unwrap_or(&f64::INFINITY);
        let heuristic_us = measured[0].1.as_ref().ok().copied();
        // A stable sort: among equals the heuristic's comes first.
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
            // The next plan of this graph uses the record.
            self.plans.remove(&graph.digest());
        }
        Ok(tuned)
    }

    /// Records a result in the cache folder; a failure is a warning.
    fn keep_split(&self, graph: &OperationGraph, tuned: &TunedSplit) -> Result<Option<PathBuf>> {
        let target = self.device().target();
        let Some(disk) = self.disk_cache() else { return Ok(None) };
        let plan = self.plan_parts(graph, tuned.parts.clone())?.to_json();
        let record = SplitRecord {
            measurement: Measurement::of(self.device(), target, tuned.us, tuned.heuristic_us),
            tried: tuned.tried.clone(),
            plan: serde_json::from_str(&plan).expect("a plan's document is valid"),
        };
        Ok(record.keep(disk, graph))
    }
}
