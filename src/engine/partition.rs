//! Splitting a graph into parts that one engine each can run.
//!
//! The fewest kernels and, among those, the fewest bytes: parts begin as single operations and are
//! merged as long as an engine takes the result, the pair that saves the most memory traffic first.
//! Two parts may be merged where they share a tensor and no third one lies between them.
//!
//! Where no engine takes a single operation, the graph is first written in what its operations
//! mean: a gradient that reduces along several dimensions becomes several reductions.

use std::cmp::Reverse;
use std::fmt;

use crate::engine::expand::primitives;
use crate::engine::{
    Engine, EngineConfig, Notes, Selection, Supported, choices, choose, engines, supported,
};
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, OperationGraph};
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
}

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
/// `NotSupported` when no engine runs one of the operations, with every engine's reason.
pub fn partition(
    graph: &OperationGraph,
    target: &Target,
    selection: &Selection,
) -> Result<Vec<Part>> {
    if let Ok(config) = choose(graph.canonical(), target, selection) {
        return Ok(vec![Part { graph: graph.clone(), config }]);
    }
    parts_of(graph, target, selection).or_else(|error| match primitives(graph) {
        Ok(primitives) if primitives.operations().len() > graph.operations().len() => {
            parts_of(&primitives, target, selection)
        }
        Ok(_) => Err(error),
        Err(rule) => Err(Error::not_supported(format!("{error}; {rule}"))),
    })
}

fn parts_of(graph: &OperationGraph, target: &Target, selection: &Selection) -> Result<Vec<Part>> {
    let part = |operations: &Vec<usize>| {
        let graph = graph.subgraph(operations)?;
        let config = choose(graph.canonical(), target, selection)?;
        Ok(Part { graph, config })
    };
    Clusters::of(graph, target, selection).merged().iter().map(part).collect()
}

/// The graph that parts are of: the whole, or what its operations mean.
///
/// # Errors
/// `NotSupported` when they are of neither.
pub(crate) fn divided(graph: &OperationGraph, parts: &[Part]) -> Result<OperationGraph> {
    let known = |uid: &i64| graph.tensor(*uid).is_ok();
    let written = parts.iter().flat_map(|part| part.graph.operations());
    match written.flat_map(|operation| &operation.outputs).all(known) {
        true => Ok(graph.clone()),
        false => primitives(graph),
    }
}

/// Why the parts of a graph are not fewer: for every two that share a tensor.
pub fn cuts(graph: &OperationGraph, target: &Target, parts: &[Part]) -> Vec<Cut> {
    let Ok(graph) = divided(graph, parts) else { return Vec::new() };
    let any = Selection::default();
    let mut clusters = Clusters::of(&graph, target, &any);
    let position = |outputs: &[i64]| {
        graph.operations().iter().position(|operation| operation.outputs == outputs)
    };
    for (number, part) in parts.iter().enumerate() {
        let mut own: Vec<usize> =
            part.graph.operations().iter().filter_map(|of| position(&of.outputs)).collect();
        own.sort_unstable();
        own.iter().for_each(|at| clusters.of[*at] = number);
        clusters.all[number] = own;
    }
    let mut cuts = Vec::new();
    for second in 0..parts.len() {
        for first in 0..second {
            if !clusters.share(first, second) {
                continue;
            }
            let reasons = match clusters.between(first, second) {
                true => vec!["another part lies between them".to_owned()],
                false => clusters.reasons(&clusters.union(first, second)),
            };
            cuts.push(Cut { parts: [first, second], reasons });
        }
    }
    cuts
}

/// Operations of a graph in groups.
struct Clusters<'a> {
    graph: &'a OperationGraph,
    target: &'a Target,
    selection: &'a Selection,
    /// The operations that read what each operation writes.
    readers: Vec<Vec<usize>>,
    /// Each group's operations, ascending; none where it was merged into another.
    all: Vec<Vec<usize>>,
    /// Each operation's group.
    of: Vec<usize>,
}

/// Two clusters that an engine would run as one.
struct Merge {
    pair: [usize; 2],
    union: Vec<usize>,
    /// Bytes that need not be moved.
    saved: u64,
    /// Whether the first of the two holds more than pointwise operations: what follows a product
    /// costs it nothing, what precedes it is computed for every tile.
    follows: bool,
}

impl Clusters<'_> {
    fn of<'a>(
        graph: &'a OperationGraph,
        target: &'a Target,
        selection: &'a Selection,
    ) -> Clusters<'a> {
        let operations = graph.operations();
        let reads = |from: usize, at: &usize| {
            operations[*at].inputs.iter().any(|uid| operations[from].outputs.contains(uid))
        };
        let count = operations.len();
        let readers = |from: usize| (from + 1..count).filter(|at| reads(from, at)).collect();
        Clusters {
            graph,
            target,
            selection,
            readers: (0..count).map(readers).collect(),
            all: (0..count).map(|at| vec![at]).collect(),
            of: (0..count).collect(),
        }
    }

    /// Merges what can be merged; the groups in topological order.
    fn merged(mut self) -> Vec<Vec<usize>> {
        let mut merges: Vec<Merge> = Vec::new();
        for second in 0..self.all.len() {
            merges.extend((0..second).filter_map(|first| self.merge(first, second)));
        }
        loop {
            merges.sort_by_key(|of| (of.saved, of.follows, Reverse(of.pair)));
            let Some(best) = merges.pop() else { break };
            if self.between(best.pair[0], best.pair[1]) {
                continue;
            }
            let [kept, gone] = best.pair;
            self.all[kept] = best.union;
            self.all[gone].clear();
            self.all[kept].iter().for_each(|at| self.of[*at] = kept);
            merges.retain(|of| !of.pair.contains(&kept) && !of.pair.contains(&gone));
            let others = (0..self.all.len()).filter(|at| *at != kept);
            merges.extend(others.filter_map(|at| self.merge(kept.min(at), kept.max(at))));
        }
        self.in_order()
    }

    /// The merge of two clusters, where an engine takes it.
    fn merge(&self, first: usize, second: usize) -> Option<Merge> {
        if !self.share(first, second) || self.between(first, second) {
            return None;
        }
        let union = self.union(first, second);
        let sketch = self.graph.sketch(&union);
        if !self.runs(sketch.view()) {
            return None;
        }
        let bytes = |of: &[usize]| self.graph.sketch(of).bytes_min();
        let apart = bytes(&self.all[first]) + bytes(&self.all[second]);
        let anchored = |at: &usize| !matches!(self.graph.operations()[*at].op, Op::Pointwise(_));
        let leads = |at: usize| self.all[at].first() == union.first();
        let leader = if leads(first) { first } else { second };
        Some(Merge {
            pair: [first, second],
            saved: apart.saturating_sub(sketch.bytes_min()),
            follows: self.all[leader].iter().any(anchored),
            union,
        })
    }

    /// Whether an engine runs a graph, with a setting that is not excluded.
    fn runs(&self, graph: CanonicalGraph<'_>) -> bool {
        let supports = |engine: &&dyn Engine| engine.support(graph, self.target).is_ok();
        // The most general are quick to answer.
        engines().iter().rev().any(supports)
            && (self.selection.without == Notes::default()
                || choices(graph, self.target, self.selection).is_ok())
    }

    fn union(&self, first: usize, second: usize) -> Vec<usize> {
        let mut union = [self.all[first].as_slice(), &self.all[second]].concat();
        union.sort_unstable();
        union
    }

    fn reasons(&self, operations: &[usize]) -> Vec<String> {
        let sketch = self.graph.sketch(operations);
        let reason = |engine: &&dyn Engine| {
            let reason = engine.support(sketch.view(), self.target).err()?;
            Some(format!("{}: {reason}", engine.name()))
        };
        engines().iter().filter_map(reason).collect()
    }

    /// Whether some tensor is touched by both.
    fn share(&self, first: usize, second: usize) -> bool {
        let touched = |cluster: usize| {
            let operations = self.all[cluster].iter().map(|at| &self.graph.operations()[*at]);
            operations.flat_map(|operation| operation.inputs.iter().chain(&operation.outputs))
        };
        touched(first).any(|uid| touched(second).any(|other| other == uid))
    }

    /// Whether one needs the other by way of a third.
    fn between(&self, first: usize, second: usize) -> bool {
        self.reaches_around(first, second) || self.reaches_around(second, first)
    }

    /// Whether a path leads from one to the other that leaves both.
    fn reaches_around(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.all.len()];
        let mut open = vec![from];
        while let Some(cluster) = open.pop() {
            for next in self.successors(cluster) {
                match next {
                    next if next == to && cluster != from => return true,
                    next if next == to || next == from || seen[next] => {}
                    next => {
                        seen[next] = true;
                        open.push(next);
                    }
                }
            }
        }
        false
    }

    /// The groups that read what a group writes; one may come several times.
    fn successors(&self, cluster: usize) -> impl Iterator<Item = usize> + '_ {
        let readers = self.all[cluster].iter().flat_map(|at| &self.readers[*at]);
        readers.map(|reader| self.of[*reader])
    }

    fn in_order(&self) -> Vec<Vec<usize>> {
        let mut left: Vec<usize> = Vec::new();
        left.extend((0..self.all.len()).filter(|at| !self.all[*at].is_empty()));
        let mut ordered = Vec::new();
        while !left.is_empty() {
            let feeds = |other: usize, at: usize| {
                other != at && self.successors(other).any(|next| next == at)
            };
            let ready = left.iter().position(|at| !left.iter().any(|other| feeds(*other, *at)));
            let at = left.remove(ready.expect("merging closes no cycle"));
            ordered.push(self.all[at].clone());
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::expr::{Mode, Pointwise};
    use crate::graph::{Matmul, Reduction, ReductionOp};

    /// A graph of so many operations that each read one or two of what there is.
    fn random_graph(seed: u64, operations: usize) -> OperationGraph {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |count: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % count as u64) as usize
        };
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[32, 32], DType::F16);
        let mut values = vec![(x, [32, 32])];
        let mut read = vec![true];
        for _ in 0..operations {
            let a = below(values.len());
            let (x, dims) = values[a];
            read[a] = true;
            let alike: Vec<usize> = (0..values.len()).filter(|at| values[*at].1 == dims).collect();
            let b = alike[below(alike.len())];
            let (uid, dims) = match below(6) {
                0 if dims == [32, 32] => {
                    read[b] = true;
                    (graph.matmul(Matmul::default(), x, values[b].0), dims)
                }
                1 => {
                    let sum = Reduction::new(ReductionOp::Add);
                    (graph.reduction(sum, x, &[dims[0], 1]), [dims[0], 1])
                }
                2 | 3 => {
                    read[b] = true;
                    (graph.pointwise(Pointwise::new(Mode::Add), &[x, values[b].0]), dims)
                }
                _ => (graph.pointwise(Pointwise::new(Mode::ReluFwd), &[x]), dims),
            };
            let uid = uid.expect("valid");
            graph.name(uid, "", DType::F16);
            values.push((uid, dims));
            read.push(false);
        }
        for at in (1..values.len()).filter(|at| !read[*at]) {
            graph.output(values[at].0, &format!("y{at}"), DType::F16);
        }
        graph.build().expect("valid")
    }

    /// The fewest parts that run a graph, by trying all.
    fn fewest(graph: &OperationGraph, target: &Target) -> usize {
        let (operations, selection) = (graph.operations(), Selection::default());
        let clusters = Clusters::of(graph, target, &selection);
        let count = operations.len();
        let members =
            |set: usize| -> Vec<usize> { (0..count).filter(|at| set >> at & 1 == 1).collect() };
        let connected = |part: &[usize]| graph.subgraph(part).is_ok();
        let runs: Vec<bool> = (0..1usize << count)
            .map(|set| {
                let part = members(set);
                set != 0 && connected(&part) && clusters.runs(graph.sketch(&part).view())
            })
            .collect();
        let ready = |done: usize, part: usize| {
            members(part).into_iter().all(|at| {
                let writes = |other: usize| clusters.readers[other].contains(&at);
                (0..count).all(|other| !writes(other) || (done | part) >> other & 1 == 1)
            })
        };
        let mut parts = vec![usize::MAX; 1 << count];
        parts[0] = 0;
        for done in 0..1usize << count {
            if parts[done] == usize::MAX {
                continue;
            }
            let left = ((1 << count) - 1) & !done;
            let mut part = left;
            while part > 0 {
                if runs[part] && ready(done, part) {
                    parts[done | part] = parts[done | part].min(parts[done] + 1);
                }
                part = (part - 1) & left;
            }
        }
        parts[(1 << count) - 1]
    }

    #[test]
    fn merging_finds_the_fewest_parts_or_one_more() {
        let target = Target::named("h200").expect("known");
        let (mut most, mut more) = (0, 0);
        for seed in 1..=60 {
            let graph = random_graph(seed, 2 + seed as usize % 6);
            let found = partition(&graph, &target, &Selection::default()).expect("supported").len();
            let fewest = fewest(&graph, &target);
            assert!(found <= fewest + 1, "{found} parts, {fewest} would do: {graph}");
            more += usize::from(found > fewest);
            most = most.max(fewest);
        }
        assert!(most >= 3 && more <= 3, "{more} of 60 graphs have a part too many");
    }

    #[test]
    fn parts_run_in_an_order_that_feeds_them() {
        let target = Target::named("h200").expect("known");
        for seed in 100..130 {
            let graph = random_graph(seed, 12);
            let parts = partition(&graph, &target, &Selection::default()).expect("supported");
            let mut written: Vec<i64> = graph.inputs().map(|tensor| tensor.uid).collect();
            for part in &parts {
                assert!(part.graph.inputs().all(|tensor| written.contains(&tensor.uid)));
                written.extend(part.graph.outputs().map(|tensor| tensor.uid));
            }
            assert!(graph.outputs().all(|tensor| written.contains(&tensor.uid)));
            let operations: usize = parts.iter().map(|part| part.graph.operations().len()).sum();
            assert_eq!(operations, 12);
            let cuts = cuts(&graph, &target, &parts);
            assert!(cuts.iter().all(|cut| !cut.reasons.is_empty()), "{cuts:?}");
        }
    }
}
