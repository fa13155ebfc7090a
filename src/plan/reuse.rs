//! Planning with the configurations of another plan, for graphs that differ in their number of rows
//! only: generic kernels, which read that number at run time, are then found in memory.

use crate::engine::{self, EngineConfig, Part};
use crate::error::Result;
use crate::graph::OperationGraph;
use crate::kernel::Lowering;
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe;

impl Kiln {
    /// Plans a graph with the configurations of another plan's parts. A part whose engine does not
    /// allow its configuration keeps its own.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_reusing(
        &self,
        graph: &OperationGraph,
        configs: &[EngineConfig],
    ) -> Result<ExecutionPlan> {
        let parts = self.parts_reusing(graph, configs)?;
        self.plan_parts(graph, parts)
    }

    /// The largest workspace in bytes that a plan of a graph may need with the configurations of a
    /// plan of `like`, which differs in its number of rows only, or is the graph: those that are
    /// chosen for that, those that their parts fall back to, and those that stand in for them.
    /// Nothing is compiled.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason.
    pub(crate) fn workspace_bytes_max(
        &self,
        graph: &OperationGraph,
        like: &OperationGraph,
    ) -> Result<u64> {
        let target = self.device().target();
        let lowered = |part: Part| {
            let lowering = part.supported(target)?.lower(&part.config)?;
            Ok((part, lowering))
        };
        let parts = self.inner.parts(graph, target)?;
        let first: Vec<_> = parts.into_iter().map(lowered).collect::<Result<_>>()?;
        let mut others = Vec::new();
        for (at, like) in self.inner.parts(like, target)?.iter().enumerate().take(first.len()) {
            let graph = &first[at].0.graph;
            let with = |config| lowered(Part { graph: graph.clone(), config }).ok();
            others.push(self.configs_of(like)?.into_iter().filter_map(with).collect::<Vec<_>>());
        }
        // Parts use their own memory one after the other: the most of each is the most of all, but
        // for how it is laid out around what passes between them.
        let mut most = first.clone();
        for (most, others) in most.iter_mut().zip(&others) {
            let scratch = |(_, lowering): &&(Part, Lowering)| lowering.scratch.iter().sum::<u64>();
            let largest = others.iter().chain([&most.clone()]).max_by_key(scratch).cloned();
            *most = largest.expect("its own is among them");
        }
        let mut bytes = recipe::workspace_bytes(graph, &first)?;
        bytes = bytes.max(recipe::workspace_bytes(graph, &most)?);
        for (at, others) in others.into_iter().enumerate() {
            for other in others {
                let mut with_other = most.clone();
                with_other[at] = other;
                bytes = bytes.max(recipe::workspace_bytes(graph, &with_other)?);
            }
        }
        Ok(bytes)
    }

    /// The configurations that a part may run with: its own, those of lower register use and of
    /// other engines that it falls back to, and those that stand in for it meanwhile.
    fn configs_of(&self, part: &Part) -> Result<Vec<EngineConfig>> {
        let target = self.device().target();
        let mut configs: Vec<EngineConfig> = Vec::new();
        let substitutes = engine::substitutes(part.graph.canonical(), target, &part.config);
        let with = |config| Part { config, ..part.clone() };
        let counted = |other: Part| match part.config.knob("dynamic_m") {
            Ok(1) => other.counting_rows(),
            _ => other,
        };
        let all = substitutes.into_iter().map(|config| counted(with(config)));
        for start in [part.clone()].into_iter().chain(all) {
            let mut next = Some(start);
            while let Some(part) = next {
                if configs.contains(&part.config) {
                    break;
                }
                configs.push(part.config.clone());
                next = part.smaller(target)?;
            }
        }
        Ok(configs)
    }

    fn parts_reusing(&self, graph: &OperationGraph, configs: &[EngineConfig]) -> Result<Vec<Part>> {
        let target = self.device().target();
        let mut parts = self.inner.parts(graph, target)?;
        for (part, config) in parts.iter_mut().zip(configs) {
            let same = part.config.engine == config.engine;
            if same && part.supported(target)?.lower(config).is_ok() {
                part.config = config.clone();
            }
        }
        Ok(parts)
    }
}
