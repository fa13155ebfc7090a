//! Partition of a graph with a configuration for each part: tuned if there is a record, else from
//! the heuristic. If compilation is excluded, configurations whose kernels are built.

use std::sync::Arc;

use tracing::warn;

use crate::engine::{
    self, BehaviorNote, Choice, Mode, Part, Selection, choices, splits_undone, uncopied,
};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::OperationGraph;
use crate::plan::context::kernel_store::Reach;
use crate::plan::context::planner::Planner;
use crate::plan::recipe::BuiltPart;
use crate::plan::tuning::winners;
use crate::target::Target;

impl Planner {
    /// Partitions a graph as tuning found best, each part with its tuned configuration; without
    /// records, as the heuristic does.
    pub(in crate::plan) fn parts(
        &self,
        graph: &OperationGraph,
        target: &Target,
    ) -> Result<Vec<Part>> {
        let split = self.store.disk.as_ref().and_then(|disk| {
            winners::split(disk, graph, &self.store.device, target, &self.selection)
        });
        if let Some(parts) = split {
            let parts = self.with_winners(graph, parts, target)?;
            let here = self.store.no_jit && *target == *self.store.device.target();
            if !here || self.found_best(parts.clone()).is_ok() {
                return Ok(parts);
            }
            warn!("the tuned partition of {} parts is not used: no pack has it", parts.len());
        }
        self.with_winners(graph, self.untuned_parts(graph, target)?, target)
    }

    /// Replaces the configuration of each part by the tuned one, if there is a record.
    pub(in crate::plan) fn with_winners(
        &self,
        graph: &OperationGraph,
        mut parts: Vec<Part>,
        target: &Target,
    ) -> Result<Vec<Part>> {
        let Some(disk) = &self.store.disk else { return Ok(parts) };
        for part in &mut parts {
            let Some(config) =
                winners::setting(disk, part, &self.store.device, target, &self.selection)
            else {
                continue;
            };
            let tuned = Part { config, ..part.clone() };
            let tuned = if graph.is_recurrent() { tuned.counting_rows() } else { tuned };
            // In strict mode, a configuration is only useful if a pack has its kernels.
            let here = self.store.no_jit && *target == *self.store.device.target();
            match here && self.built(Arc::new(tuned.clone()), Reach::Built)?.is_none() {
                true => warn!("tuned configuration {} is not used: no pack has it", tuned.config),
                false => *part = tuned,
            }
        }
        Ok(parts)
    }

    /// Partitions a graph as the heuristic does.
    pub(in crate::plan) fn untuned_parts(
        &self,
        graph: &OperationGraph,
        target: &Target,
    ) -> Result<Vec<Part>> {
        let mut parts = engine::partition(graph, target, &self.selection)?;
        if graph.is_recurrent() {
            // GEMMs beside a recurrent layer serve every number of steps, as the layer does.
            parts = parts.into_iter().map(Part::counting_rows).collect();
        }
        Ok(parts)
    }

    /// The parts of a graph, as its plan would have them. Kernels that are not built are assumed to
    /// compile without spills.
    pub(in crate::plan) fn foreseen(&self, graph: &OperationGraph) -> Result<Vec<Part>> {
        let parts = self.parts(graph, self.store.device.target())?;
        if self.selection.without.behavior.contains(&BehaviorNote::RuntimeCompilation) {
            let built = self.found(graph, parts)?.into_iter();
            return Ok(built.map(|built| Arc::unwrap_or_clone(built.part)).collect());
        }
        let foreseen = |part: Part| match self.stepped_down(part.clone(), Reach::Built) {
            Ok((part, _)) => Ok(part),
            // Without a compiler nothing is known about its kernels.
            Err(error) if matches!(error.kind(), ErrorKind::Compile | ErrorKind::NoCompiler) => {
                Ok(part)
            }
            Err(error) => Err(error),
        };
        parts.into_iter().map(foreseen).collect()
    }

    /// As [`Planner::found_best`]; if a part has no built kernels, tries partitions with fusions
    /// undone, then the one without copies of operands.
    pub(in crate::plan) fn found(
        &self,
        graph: &OperationGraph,
        parts: Vec<Part>,
    ) -> Result<Vec<BuiltPart>> {
        match self.found_best(parts.clone()) {
            Err(error) if error.kind() == ErrorKind::NotSupported => {
                let target = self.store.device.target();
                let others = splits_undone(&parts, target, &self.selection);
                let found = others.into_iter().find_map(|parts| self.found_best(parts).ok());
                let uncopied = || {
                    let parts = uncopied(graph, target, &self.selection).ok()?;
                    self.found_best(parts).ok()
                };
                found.or_else(uncopied).ok_or(error)
            }
            result => result,
        }
    }

    /// As [`Planner::best`] for every part, without compiling: a part whose kernels are not built
    /// gets the first configuration whose kernels are.
    ///
    /// # Errors
    /// `NotSupported` for a part without such a configuration.
    fn found_best(&self, parts: Vec<Part>) -> Result<Vec<BuiltPart>> {
        let target = self.store.device.target();
        let found = |part: Part| {
            if let Some(built) = self.best(part.clone(), Reach::Built)? {
                return Ok(built);
            }
            let graph = part.graph;
            for mode in [self.selection.mode, Mode::B] {
                let selection = Selection { mode, ..self.selection.clone() };
                for Choice { config, .. } in choices(graph.canonical(), target, &selection)? {
                    let part = Part { graph: graph.clone(), config };
                    if let Some(built) = self.built(Arc::new(part), Reach::Built)? {
                        return Ok(built);
                    }
                }
            }
            let config = part.config;
            Err(Error::not_supported(format!(
                "runtime_compilation is excluded, and neither {config} nor another configuration \
                 of the part has its kernels in a cache or pack"
            )))
        };
        parts.into_iter().map(found).collect()
    }
}
