//! Planning graphs that differ from another one in their number of rows only: in its parts, with
//! their configurations and, where rows are counted at run time, their kernels.

use crate::engine::{self, EngineConfig, Part};
use crate::error::Result;
use crate::graph::{Operation, OperationGraph};
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe;
use crate::plan::workspace::Contents;

/// The parts of a graph with all configurations that each may run with: its own, those of lower
/// register use and of other engines that it falls back to, and those that stand in for it
/// meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Candidates {
    graph: OperationGraph,
    parts: Vec<(Part, Vec<EngineConfig>)>,
}

impl Kiln {
    /// Plans a graph that differs from that of another plan in its number of rows only, like that
    /// plan: nothing is chosen, and of kernels that count rows at run time nothing is rendered.
    /// Where it cannot be divided so, it is planned by itself.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_like(
        &self,
        graph: &OperationGraph,
        like: &ExecutionPlan,
    ) -> Result<ExecutionPlan> {
        self.plan_divided(graph, divided_like(graph, like.graph(), &like.parts()), like)
    }

    /// Plans a graph that is a cut of another plan's, but for its number of rows and for what
    /// operations read besides, in the parts of that plan. Where it cannot be divided so, it is
    /// planned by itself.
    ///
    /// # Errors
    /// As [`Kiln::plan`].
    pub(crate) fn plan_cut(
        &self,
        graph: &OperationGraph,
        of: &ExecutionPlan,
    ) -> Result<ExecutionPlan> {
        self.plan_divided(graph, cut(graph, &of.parts()), of)
    }

    /// Plans a graph in these parts, if it can be divided so, sharing the kernels of a plan; by
    /// itself otherwise.
    fn plan_divided(
        &self,
        graph: &OperationGraph,
        parts: Option<Vec<Part>>,
        like: &ExecutionPlan,
    ) -> Result<ExecutionPlan> {
        let shared = parts.map(|parts| self.plan_parts_sharing(graph, parts, like.kernels()));
        match shared {
            Some(Ok(plan)) => Ok(plan),
            Some(Err(_)) | None => self.plan_anew(graph),
        }
    }

    /// The parts of a plan of a graph, with all that may run them.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason.
    pub(crate) fn candidates(&self, graph: &OperationGraph) -> Result<Candidates> {
        let parts = self.inner.parts(graph, self.device().target())?;
        let parts = parts.into_iter().map(|part| {
            let configs = self.configs_of(&part)?;
            Ok((part, configs))
        });
        Ok(Candidates { graph: graph.clone(), parts: parts.collect::<Result<_>>()? })
    }

    /// What a workspace must hold for any plan of a graph that is planned like another one, which
    /// differs in its number of rows only, or is the graph. Nothing is compiled.
    ///
    /// # Errors
    /// `NotSupported` with every engine's reason.
    pub(crate) fn workspace_max(
        &self,
        graph: &OperationGraph,
        like: &Candidates,
    ) -> Result<Contents> {
        let parts: Vec<&Part> = like.parts.iter().map(|(part, _)| part).collect();
        let mut contents = Contents::default();
        if let Some(parts) = divided_like(graph, &like.graph, &parts) {
            let configs = like.parts.iter().map(|(_, configs)| configs);
            let parts: Vec<_> = parts.into_iter().zip(configs).collect();
            let all_legal;
            (contents, all_legal) = self.contents_of(graph, &parts)?;
            if all_legal && !self.compiles_nothing() {
                return Ok(contents);
            }
        }
        // It may be planned by itself, as where nothing is compiled and the other has no kernels.
        let own = self.candidates(graph)?;
        let own: Vec<_> = own.parts.iter().map(|(part, all)| (part.clone(), all)).collect();
        Ok(contents.or_alone(self.contents_of(graph, &own)?.0))
    }

    /// What a workspace holds of a graph's parts, each of which runs with one of these
    /// configurations where that is legal, and whether all are legal. Without a legal one for each
    /// part it is nothing.
    fn contents_of(
        &self,
        graph: &OperationGraph,
        parts: &[(Part, &Vec<EngineConfig>)],
    ) -> Result<(Contents, bool)> {
        let target = self.device().target();
        let mut all_legal = true;
        // Distinct sizes of the scratch buffers of each part.
        let mut all: Vec<Vec<Vec<u64>>> = Vec::new();
        for (part, configs) in parts {
            let canonical = part.graph.canonical();
            let scratch = |config: &EngineConfig| {
                engine::supported(&config.engine, canonical, target)?.scratch(config)
            };
            let mut own: Vec<Vec<u64>> = Vec::new();
            for config in configs.iter() {
                match scratch(config) {
                    Ok(sizes) if own.contains(&sizes) => {}
                    Ok(sizes) => own.push(sizes),
                    Err(_) => all_legal = false,
                }
            }
            all.push(own);
        }
        let with = |scratch: &[&Vec<u64>]| {
            let parts = parts.iter().zip(scratch);
            let parts: Vec<_> = parts.map(|((part, _), scratch)| (part, &scratch[..])).collect();
            recipe::lifetimes(graph, &parts)
        };
        // Parts use their own memory one after the other: the most of each is the most of all, but
        // for how it is laid out around what passes between them.
        let most = all.iter().map(|of| of.iter().max_by_key(|of| of.iter().sum::<u64>()));
        let Some(most) = most.collect::<Option<Vec<_>>>() else {
            return Ok((Contents::default(), false));
        };
        let first: Vec<_> = all.iter().map(|of| &of[0]).collect();
        let mut contents = vec![with(&most)?];
        if first != most {
            contents.push(with(&first)?);
        }
        for (at, others) in all.iter().enumerate() {
            for other in others.iter().filter(|other| **other != *most[at]) {
                let mut with_other = most.clone();
                with_other[at] = other;
                contents.push(with(&with_other)?);
            }
        }
        Ok((Contents::like_another(contents), all_legal))
    }

    fn configs_of(&self, part: &Part) -> Result<Vec<EngineConfig>> {
        let target = self.device().target();
        let mut configs: Vec<EngineConfig> = Vec::new();
        let substitutes = engine::substitutes(part.graph.canonical(), target, &part.config);
        let with = |config| Part { config, ..part.clone() }.counting_as(&part.config);
        let all = substitutes.into_iter().map(with);
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
}

/// A graph in those parts of another one, with their configurations, that have its operations by
/// what they write; `None` where it has some of a part's.
fn cut(graph: &OperationGraph, parts: &[&Part]) -> Option<Vec<Part>> {
    let own = graph.operations();
    let mut all = Vec::new();
    let mut count = 0;
    for part in parts {
        let theirs = part.graph.operations();
        let position = |of: &Operation| own.iter().position(|own| own.outputs == of.outputs);
        let mut operations: Vec<usize> = theirs.iter().filter_map(position).collect();
        if operations.is_empty() {
            continue;
        }
        if operations.len() != theirs.len() {
            return None;
        }
        operations.sort_unstable();
        count += operations.len();
        all.push(Part { graph: graph.subgraph(&operations).ok()?, config: part.config.clone() });
    }
    (count == own.len()).then_some(all)
}

/// A graph in the parts of another one that differs from it in its number of rows only, with their
/// configurations; `None` where its operations are others, or parts are of what operations mean.
fn divided_like(
    graph: &OperationGraph,
    like: &OperationGraph,
    parts: &[&Part],
) -> Option<Vec<Part>> {
    let (own, others) = (graph.operations(), like.operations());
    let alike = |(own, other): (&Operation, &Operation)| {
        own.inputs == other.inputs && own.outputs == other.outputs
    };
    if own.len() != others.len() || !own.iter().zip(others).all(alike) {
        return None;
    }
    let part = |part: &&Part| {
        let config = part.config.clone();
        let position = |of: &Operation| {
            others.iter().position(|other| other.outputs == of.outputs && !of.outputs.is_empty())
        };
        let operations = part.graph.operations().iter().map(position);
        let mut operations: Vec<usize> = operations.collect::<Option<_>>()?;
        operations.sort_unstable();
        let whole = operations.len() == own.len();
        let graph = if whole { graph.clone() } else { graph.subgraph(&operations).ok()? };
        Some(Part { graph, config })
    };
    parts.iter().map(part).collect()
}
