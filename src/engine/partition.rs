//! Splitting a graph into parts that one engine each can run.
//!
//! The fewest kernels and, among those, the fewest bytes, as far as merging neighbours finds them
//! (`clusters`, which says how much work that is at most); but prologues of products are kernels
//! of their own where the cost model says that they had better be (`prologues`), and so are copies
//! of operands of products (`copies`).
//!
//! Where no engine takes a single operation, the graph is first written in what its operations
//! mean: a gradient that reduces along several dimensions becomes several reductions. Where that
//! cannot be done for all of them at once, it is done for those operations alone.

use std::collections::BTreeSet;
use std::fmt;

use crate::engine::clusters::Clusters;
use crate::engine::copies::{self, Copied, with_copies};
use crate::engine::decompose::{primitives, primitives_beside};
use crate::engine::part::{Part, parts_of};
use crate::engine::{BehaviorNote, CostModel, Selection, choose, prologues};
use crate::error::{Error, Result};
use crate::graph::{Operation, OperationGraph};
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Two neighbouring parts, and why they are not one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Positions of the parts.
    pub parts: [usize; 2],
    /// The reason of each engine, or that a third part lies between.
    pub reasons: Vec<String>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.parts.map(|part| part + 1);
        write!(f, "parts {first} and {second}: {}", self.reasons.join("; "))
    }
}

/// The parts of a graph in the order they run, each with the engine and knobs expected to run best.
///
/// # Errors
/// `NotSupported` when no engine runs one of the operations, with every engine's reason; when a
/// workspace is excluded and no split does without one.
pub fn partition(
    graph: &OperationGraph,
    target: &Target,
    selection: &Selection,
) -> Result<Vec<Part>> {
    let parts = uncopied(graph, target, selection)?;
    Ok(copies::apart(graph, parts, target, selection))
}

/// The same without copies of operands.
///
/// # Errors
/// As [`partition`].
pub(crate) fn uncopied(
    graph: &OperationGraph,
    target: &Target,
    selection: &Selection,
) -> Result<Vec<Part>> {
    let apart = |part| prologues::apart(part, target, selection);
    if let Ok(config) = choose(graph.canonical(), target, selection) {
        return Ok(apart(Part { graph: graph.clone(), config }));
    }
    let parts: Vec<Part> =
        several_parts(graph, target, selection)?.into_iter().flat_map(apart).collect();
    let is_passed = |of: &TensorDesc| graph.tensor(of.uid).map_or(true, |own| own.is_virtual);
    let without_workspace = selection.without.behavior.contains(&BehaviorNote::Workspace);
    if without_workspace && parts.iter().any(|part| part.graph.outputs().any(is_passed)) {
        let text = "workspace is excluded, and parts pass virtual tensors to each other";
        return Err(Error::not_supported(text));
    }
    Ok(parts)
}

/// The parts of a graph that no engine runs whole.
fn several_parts(
    graph: &OperationGraph,
    target: &Target,
    selection: &Selection,
) -> Result<Vec<Part>> {
    parts_of(graph, target, selection).or_else(|error| match primitives(graph) {
        Ok(primitives) if primitives.operations().len() > graph.operations().len() => {
            parts_of(&primitives, target, selection)
        }
        Ok(_) => Err(error),
        Err(rule) => match parts_apart(graph, target, selection) {
            Ok(Some(parts)) => Ok(parts),
            Ok(None) | Err(_) => Err(Error::not_supported(format!("{error}; {rule}"))),
        },
    })
}

/// The parts where only those operations are written in what they mean that no engine runs; none
/// where an engine runs each.
fn parts_apart(
    graph: &OperationGraph,
    target: &Target,
    selection: &Selection,
) -> Result<Option<Vec<Part>>> {
    let groups = Clusters::of(graph, target, selection).merged();
    let clusters = Clusters::of(graph, target, selection);
    let mut refused: Vec<usize> = groups
        .iter()
        .filter_map(|group| match group[..] {
            [at] if !clusters.runs(graph.sketch(&[at]).view()) => Some(at),
            _ => None,
        })
        .collect();
    if refused.is_empty() {
        return Ok(None);
    }
    refused.sort_unstable();
    let meanings = meanings(graph, &refused)?;
    let mut parts = Vec::new();
    for operations in groups {
        match refused.iter().position(|at| operations == [*at]) {
            Some(at) => parts.extend(parts_of(&meanings[at], target, selection)?),
            None => {
                let graph = graph.subgraph(&operations)?;
                let config = choose(graph.canonical(), target, selection)?;
                parts.push(Part { graph, config });
            }
        }
    }
    Ok(Some(parts))
}

/// What some operations of a graph mean, each as a graph of its own; intermediates have uids that
/// neither the graph nor another of these has.
///
/// # Errors
/// `NotSupported` where one cannot be decomposed.
fn meanings(graph: &OperationGraph, operations: &[usize]) -> Result<Vec<OperationGraph>> {
    let mut taken: BTreeSet<i64> = graph.tensors().iter().map(|tensor| tensor.uid).collect();
    let meaning = |at: &usize| {
        let meaning = primitives_beside(&graph.subgraph(&[*at])?, &taken)?;
        taken.extend(meaning.tensors().iter().map(|tensor| tensor.uid));
        Ok(meaning)
    };
    operations.iter().map(meaning).collect()
}

/// What the parts of a graph are of.
#[derive(Debug, Clone)]
pub(crate) enum Division {
    /// Its operations.
    Whole,
    /// What all of its operations mean.
    Primitives(OperationGraph),
    /// Its operations, products behind copies of operands.
    Copies(Vec<Copied>, OperationGraph),
    /// Its operations, but what those at these positions mean.
    Apart(Vec<usize>, Vec<OperationGraph>),
}

impl Division {
    /// Into the operations of a graph but those at these positions, each of which is decomposed.
    ///
    /// # Errors
    /// `NotSupported` where one cannot be decomposed.
    pub(crate) fn apart(graph: &OperationGraph, mut decomposed: Vec<usize>) -> Result<Division> {
        decomposed.sort_unstable();
        decomposed.dedup();
        let meanings = meanings(graph, &decomposed)?;
        Ok(Division::Apart(decomposed, meanings))
    }

    /// The division that parts come of.
    ///
    /// # Errors
    /// `NotSupported` when there is none.
    pub(crate) fn of(graph: &OperationGraph, parts: &[Part]) -> Result<Division> {
        let written = || parts.iter().flat_map(|part| part.graph.operations());
        let all_of = |graph: &OperationGraph| {
            let known = |uid: &i64| graph.tensor(*uid).is_ok();
            written().flat_map(|operation| &operation.outputs).all(known)
        };
        if all_of(graph) {
            return Ok(Division::Whole);
        }
        let copied = copies::copied(graph, parts);
        if !copied.is_empty() {
            let with = with_copies(graph, &copied)?;
            return Ok(Division::Copies(copied, with));
        }
        if let Ok(primitives) = primitives(graph)
            && all_of(&primitives)
        {
            return Ok(Division::Primitives(primitives));
        }
        let runs = |own: &Operation| {
            written().any(|other| other.outputs == own.outputs && other.op == own.op)
        };
        let operations = graph.operations();
        Division::apart(graph, (0..operations.len()).filter(|at| !runs(&operations[*at])).collect())
    }

    /// The graph that a part's operations are of, and the operation that it is the meaning of, if
    /// it is one's.
    pub(crate) fn source<'a>(
        &'a self,
        graph: &'a OperationGraph,
        part: &Part,
    ) -> (&'a OperationGraph, Option<usize>) {
        match self {
            Division::Whole => (graph, None),
            Division::Primitives(written) | Division::Copies(_, written) => (written, None),
            Division::Apart(decomposed, meanings) => {
                let writes = |meaning: &OperationGraph| {
                    part.graph.operations().iter().all(|own| meaning.operations().contains(own))
                };
                match meanings.iter().position(writes) {
                    Some(at) => (&meanings[at], Some(decomposed[at])),
                    None => (graph, None),
                }
            }
        }
    }
}

/// Why the parts of a graph are not fewer: for every two that share a tensor.
pub fn cuts(graph: &OperationGraph, target: &Target, parts: &[Part]) -> Vec<Cut> {
    let Ok(division) = Division::of(graph, parts) else { return Vec::new() };
    let sources: Vec<_> = parts.iter().map(|part| division.source(graph, part)).collect();
    let decomposed: Vec<Option<usize>> = sources.iter().map(|(_, operation)| *operation).collect();
    let mut cuts = Vec::new();
    for (at, (source, operation)) in sources.iter().enumerate() {
        if !decomposed[..at].contains(operation) {
            let own = parts.iter().enumerate().filter(|(at, _)| decomposed[*at] == *operation);
            cuts.extend(cuts_within(source, target, &own.collect::<Vec<_>>()));
        }
    }
    let touched = |part: &Part| -> BTreeSet<i64> {
        part.graph.tensors().iter().map(|tensor| tensor.uid).collect()
    };
    for second in 0..parts.len() {
        for first in (0..second).filter(|first| decomposed[*first] != decomposed[second]) {
            if !touched(&parts[first]).is_disjoint(&touched(&parts[second])) {
                let alone = [first, second].into_iter().filter_map(|part| decomposed[part]);
                let name = |at: usize| graph.operations()[at].op.name();
                let reason = |at| format!("{} is run by itself as what it means", name(at));
                cuts.push(Cut { parts: [first, second], reasons: alone.map(reason).collect() });
            }
        }
    }
    cuts.sort_by_key(|cut| [cut.parts[1], cut.parts[0]]);
    cuts
}

/// Why parts of one graph are apart, pair by pair; each part comes with its number among all.
fn cuts_within(graph: &OperationGraph, target: &Target, parts: &[(usize, &Part)]) -> Vec<Cut> {
    let any = Selection::default();
    let mut clusters = Clusters::of(graph, target, &any);
    // A wait for a signal may write nothing.
    let touches = |of: &Operation| [of.inputs.clone(), of.outputs.clone()];
    let writes = |part: &Part, own: &Operation| {
        part.graph.operations().iter().any(|other| touches(other) == touches(own))
    };
    let operations = graph.operations();
    let in_part = |at: &usize| parts.iter().any(|(_, part)| writes(part, &operations[*at]));
    // Each of the others stays a group by itself.
    let others = (0..operations.len()).filter(|at| !in_part(at)).map(|at| vec![at]);
    let own = parts.iter().map(|(_, part)| {
        (0..operations.len()).filter(|at| writes(part, &operations[*at])).collect()
    });
    let groups: Vec<Vec<usize>> = own.chain(others).collect();
    groups.into_iter().enumerate().for_each(|(number, group)| clusters.assign(number, group));
    let mut cuts = Vec::new();
    for second in 0..parts.len() {
        for first in (0..second).filter(|first| clusters.share(*first, second)) {
            let reasons = match clusters.between(first, second) {
                true => vec!["another part lies between them".to_owned()],
                false => {
                    let pair = [parts[first].1, parts[second].1];
                    reasons(&clusters, pair, &clusters.union(first, second), graph, target)
                }
            };
            cuts.push(Cut { parts: [parts[first].0, parts[second].0], reasons });
        }
    }
    cuts
}

/// Why two parts are not one, which has these operations of the graph.
fn reasons(
    clusters: &Clusters<'_>,
    pair: [&Part; 2],
    union: &[usize],
    graph: &OperationGraph,
    target: &Target,
) -> Vec<String> {
    let Ok(graph) = graph.subgraph(union) else { return clusters.reasons(union) };
    let Ok(config) = choose(graph.canonical(), target, &Selection::default()) else {
        return clusters.reasons(union);
    };
    let model = CostModel::of(target);
    let us = |parts: &[Part]| prologues::parts_us(parts, target, &model);
    let [one, two] = [us(&[Part { graph, config }]), us(&pair.map(Part::clone))];
    vec![format!("{two:.1} us by the cost model, {one:.1} us as one kernel")]
}
