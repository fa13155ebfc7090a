//! A part of a graph that one engine runs, and those that merging finds.

use crate::engine::clusters::Clusters;
use crate::engine::heuristics::choose_behind;
use crate::engine::{BehaviorNote, EngineConfig, Selection, Supported, choose, supported};
use crate::error::Result;
use crate::graph::{Op, Operation, OperationGraph};
use crate::target::Target;

/// Operations of a graph that one engine runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// The operations as a graph; what passes to or from other parts has storage in it.
    pub graph: OperationGraph,
    /// The engine and its knobs.
    pub config: EngineConfig,
}

impl Part {
    /// The part as its engine runs it.
    ///
    /// # Errors
    /// As [`supported`].
    pub fn supported<'a>(&'a self, target: &'a Target) -> Result<Box<dyn Supported + 'a>> {
        supported(&self.config.engine, self.graph.canonical(), target)
    }

    /// The part with the next setting that needs fewer registers; `None` when there is none.
    ///
    /// # Errors
    /// As [`supported`].
    pub(crate) fn smaller(&self, target: &Target) -> Result<Option<Part>> {
        let config = self.supported(target)?.smaller(&self.config);
        Ok(config.map(|config| Part { graph: self.graph.clone(), config }))
    }

    /// The part with the engine that comes behind its own, where another runs it. Rows that are
    /// counted at run time stay so.
    ///
    /// # Errors
    /// As [`choices`].
    pub(crate) fn next_engine(
        &self,
        target: &Target,
        selection: &Selection,
    ) -> Result<Option<Part>> {
        let graph = self.graph.canonical();
        let config = choose_behind(&self.config.engine, graph, target, selection)?;
        Ok(config
            .map(|config| Part { graph: self.graph.clone(), config }.counting_as(&self.config)))
    }

    /// The part counting its rows at run time if this configuration does.
    pub(crate) fn counting_as(self, config: &EngineConfig) -> Part {
        match config.knob("dynamic_m") {
            Ok(1) => self.counting_rows(),
            _ => self,
        }
    }

    /// The part counting its rows at run time where its engine can: its kernels then serve every
    /// number of rows.
    pub(crate) fn counting_rows(mut self) -> Part {
        let convolves = |operation: &Operation| matches!(operation.op, Op::Convolution(_));
        let convolves = self.graph.operations().iter().any(convolves);
        if !convolves && self.config.knob("dynamic_m").is_ok() {
            self.config = self.config.with("dynamic_m", 1);
        }
        self
    }
}

/// The parts of a graph that merging finds.
///
/// # Errors
/// As [`choose`].
pub(super) fn parts_of(
    graph: &OperationGraph,
    target: &Target,
    selection: &Selection,
) -> Result<Vec<Part>> {
    let without_workspace = selection.without.behavior.contains(&BehaviorNote::Workspace);
    let part = |operations: &Vec<usize>| {
        let graph = graph.subgraph(operations)?;
        let config = choose(graph.canonical(), target, selection).map_err(|error| {
            let count = operations.len();
            match without_workspace && count > 1 {
                true => error.context(format!(
                    "workspace is excluded, and {count} operations pass virtual tensors to each \
                     other"
                )),
                false => error,
            }
        })?;
        Ok(Part { graph, config })
    };
    Clusters::of(graph, target, selection).merged().iter().map(part).collect()
}
