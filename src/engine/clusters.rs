//! Operations of a graph in groups that one engine each can run.
//!
//! Groups begin as single operations and are merged as long as an engine takes the result, the pair
//! that saves the most memory traffic first. Two may be merged where they share a tensor and no
//! third one lies between them.
//!
//! Where a workspace is excluded, a virtual tensor has no memory to pass through: operations that
//! touch one begin as one group, with those that lie between them. So every split that needs no
//! workspace is among those that merging can reach.
//!
//! The work has a bound whatever the graph: of the groups that share a tensor only the nearest
//! [`NEIGHBOURS`] are candidates, an engine is asked at most [`ASKS_MAX`] times, and of a group of
//! at most [`OPERATIONS_MAX`] operations. What is beyond that stays apart: it runs, in more
//! kernels. Memory holds at most twice `NEIGHBOURS` candidates for each tensor of a group, once for
//! each time that it has grown.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use crate::engine::{BehaviorNote, Engine, Notes, Selection, choices, engines};
use crate::graph::{CanonicalGraph, Op, OperationGraph};
use crate::target::Target;

/// Candidates for a merge among the groups that share a tensor: an attention of 512 heads has as
/// many readers of its input, all alike.
const NEIGHBOURS: usize = 16;

/// Questions to engines while a graph is split: 50 to 500 us each.
const ASKS_MAX: usize = 10_000;

/// Operations of a group that is a candidate.
const OPERATIONS_MAX: usize = 512;

/// Operations of a graph in groups.
pub(super) struct Clusters<'a> {
    graph: &'a OperationGraph,
    target: &'a Target,
    selection: &'a Selection,
    /// The operations that read what each operation writes.
    readers: Vec<Vec<usize>>,
    /// The operations that touch each tensor, ascending.
    touching: HashMap<i64, Vec<usize>>,
    /// Each group's operations, ascending; none where it was merged into another.
    all: Vec<Vec<usize>>,
    /// Each operation's group.
    of: Vec<usize>,
}

/// Two groups that share a tensor; ordered by what is merged first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Bytes that need not be moved.
    saved: u64,
    /// Whether the first of the two holds more than pointwise operations: an epilogue
    /// costs little, a prologue is computed for every tile.
    follows: bool,
    pair: Reverse<[usize; 2]>,
    /// The sizes of both when they became a candidate: a group that has grown since is another.
    sizes: [usize; 2],
}

impl<'a> Clusters<'a> {
    pub(super) fn of(
        graph: &'a OperationGraph,
        target: &'a Target,
        selection: &'a Selection,
    ) -> Clusters<'a> {
        let operations = graph.operations();
        let count = operations.len();
        let mut touching: HashMap<i64, Vec<usize>> = HashMap::new();
        let mut readers = vec![Vec::new(); count];
        let mut writers: HashMap<i64, usize> = HashMap::new();
        for (at, operation) in operations.iter().enumerate() {
            let sources: BTreeSet<usize> =
                operation.inputs.iter().filter_map(|uid| writers.get(uid).copied()).collect();
            sources.into_iter().for_each(|from| readers[from].push(at));
            let touched: BTreeSet<i64> =
                operation.inputs.iter().chain(&operation.outputs).copied().collect();
            touched.into_iter().for_each(|uid| touching.entry(uid).or_default().push(at));
            writers.extend(operation.outputs.iter().map(|uid| (*uid, at)));
        }
        let all = (0..count).map(|at| vec![at]).collect();
        Clusters { graph, target, selection, readers, touching, all, of: (0..count).collect() }
    }

    /// Puts operations into the group of this number, of which they become all.
    pub(super) fn assign(&mut self, number: usize, mut operations: Vec<usize>) {
        operations.sort_unstable();
        operations.iter().for_each(|at| self.of[*at] = number);
        self.all[number] = operations;
    }

    /// Merges what can be merged; the groups in topological order.
    pub(super) fn merged(mut self) -> Vec<Vec<usize>> {
        if self.selection.without.behavior.contains(&BehaviorNote::Workspace) {
            self.merge_virtual();
        }
        let mut candidates = BinaryHeap::new();
        for at in 0..self.all.len() {
            candidates.extend(self.candidates(at).filter(|of| of.pair.0[0] == at));
        }
        let mut asks = 0;
        while let Some(Candidate { pair: Reverse([kept, gone]), sizes, .. }) = candidates.pop() {
            if [kept, gone].map(|at| self.all[at].len()) != sizes || self.between(kept, gone) {
                continue;
            }
            let union = self.union(kept, gone);
            if union.len() > OPERATIONS_MAX {
                continue;
            }
            if asks == ASKS_MAX {
                break;
            }
            asks += 1;
            if !self.runs(self.graph.sketch(&union).view()) {
                continue;
            }
            self.all[gone].clear();
            self.assign(kept, union);
            candidates.extend(self.candidates(kept));
        }
        self.in_order()
    }

    /// Merges the groups that touch a virtual tensor, and those between them.
    fn merge_virtual(&mut self) {
        let graph = self.graph;
        // What a signal passes on in place may lie in the memory of a tensor that has some.
        let lies_nowhere =
            |uid: i64| graph.tensor(graph.memory_of(uid)).is_ok_and(|memory| memory.is_virtual);
        for tensor in graph.tensors().iter().filter(|tensor| lies_nowhere(tensor.uid)) {
            let touching = self.touching.get(&tensor.uid).into_iter().flatten();
            let groups: BTreeSet<usize> = touching.map(|at| self.of[*at]).collect();
            self.merge(groups);
        }
        let mut writers = vec![Vec::new(); self.readers.len()];
        for (at, readers) in self.readers.iter().enumerate() {
            readers.iter().for_each(|reader| writers[*reader].push(at));
        }
        for at in 0..self.all.len() {
            if self.all[at].len() > 1 {
                let [behind, before] =
                    [&self.readers, &writers].map(|edges| self.reached(at, edges));
                self.merge(behind.intersection(&before).copied().chain([at]).collect());
            }
        }
    }

    /// Merges groups.
    fn merge(&mut self, groups: BTreeSet<usize>) {
        let Some(kept) = groups.first().copied() else { return };
        let all = groups.iter().flat_map(|at| std::mem::take(&mut self.all[*at])).collect();
        self.assign(kept, all);
    }

    /// The other groups that edges between operations lead to from a group.
    fn reached(&self, from: usize, edges: &[Vec<usize>]) -> BTreeSet<usize> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            let near = self.all[at].iter().flat_map(|own| &edges[*own]).map(|own| self.of[*own]);
            open.extend(near.filter(|near| *near != from && reached.insert(*near)));
        }
        reached
    }

    /// The merges of a group with those next to it.
    fn candidates(&self, cluster: usize) -> impl Iterator<Item = Candidate> + '_ {
        let mut near: BTreeSet<usize> = BTreeSet::new();
        for uid in self.touched(cluster) {
            let others: BTreeSet<usize> =
                self.touching[&uid].iter().map(|at| self.of[*at]).collect();
            let before = others.range(..cluster).rev().take(NEIGHBOURS);
            near.extend(before.chain(others.range(cluster + 1..).take(NEIGHBOURS)));
        }
        near.into_iter().map(move |other| self.candidate(cluster.min(other), cluster.max(other)))
    }

    fn candidate(&self, first: usize, second: usize) -> Candidate {
        let anchored = |at: &usize| !self.graph.operations()[*at].is_elementwise();
        let leader = if self.all[first] < self.all[second] { first } else { second };
        Candidate {
            saved: self.saved(first, second),
            follows: self.all[leader].iter().any(anchored),
            pair: Reverse([first, second]),
            sizes: [first, second].map(|at| self.all[at].len()),
        }
    }

    /// The tensors that a group touches.
    fn touched(&self, cluster: usize) -> BTreeSet<i64> {
        let operations = self.all[cluster].iter().map(|at| &self.graph.operations()[*at]);
        operations.flat_map(|of| of.inputs.iter().chain(&of.outputs).copied()).collect()
    }

    /// The bytes of tensors that both touch and that one kernel would move once, or not at all.
    fn saved(&self, first: usize, second: usize) -> u64 {
        let [own, other] = [first, second].map(|cluster| self.touched(cluster));
        let saved = |uid: &i64| {
            let tensor = self.graph.tensor(*uid).expect("operations name known tensors");
            // Each reads a piece of it.
            if [first, second].iter().all(|cluster| self.slices(*cluster, *uid)) {
                return 0;
            }
            let outside = |at: &usize| self.of[*at] != first && self.of[*at] != second;
            let crosses = self.touching[uid].iter().any(outside);
            let bytes =
                (tensor.elements().unwrap_or(0) as u64).saturating_mul(tensor.dtype.bytes() as u64);
            match (tensor.by_value, tensor.is_virtual && !crosses) {
                (true, _) => 0,
                (false, true) => bytes.saturating_mul(2),
                (false, false) => bytes,
            }
        };
        own.intersection(&other).map(saved).fold(0, u64::saturating_add)
    }

    /// Whether a group touches a tensor by slices alone.
    fn slices(&self, cluster: usize, uid: i64) -> bool {
        let operations = self.all[cluster].iter().map(|at| &self.graph.operations()[*at]);
        let mut touching =
            operations.filter(|of| of.inputs.contains(&uid) || of.outputs.contains(&uid));
        touching.all(|of| matches!(of.op, Op::Slice(_)) && of.inputs.contains(&uid))
    }

    /// Whether an engine runs a graph, with a setting that is not excluded.
    pub(super) fn runs(&self, graph: CanonicalGraph<'_>) -> bool {
        let supports = |engine: &&dyn Engine| engine.support(graph, self.target).is_ok();
        // The most general are quick to answer.
        engines().iter().rev().any(supports)
            && (self.selection.without.of_settings() == Notes::default()
                || choices(graph, self.target, self.selection).is_ok())
    }

    pub(super) fn union(&self, first: usize, second: usize) -> Vec<usize> {
        let mut union = [self.all[first].as_slice(), &self.all[second]].concat();
        union.sort_unstable();
        union
    }

    pub(super) fn reasons(&self, operations: &[usize]) -> Vec<String> {
        let sketch = self.graph.sketch(operations);
        let reason = |engine: &&dyn Engine| {
            let reason = engine.support(sketch.view(), self.target).err()?;
            Some(format!("{}: {reason}", engine.name()))
        };
        engines().iter().filter_map(reason).collect()
    }

    /// Whether some tensor is touched by both.
    pub(super) fn share(&self, first: usize, second: usize) -> bool {
        !self.touched(first).is_disjoint(&self.touched(second))
    }

    /// Whether one needs the other by way of a third.
    pub(super) fn between(&self, first: usize, second: usize) -> bool {
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

    /// The groups, each behind those that feed it; of several that are ready the first.
    fn in_order(&self) -> Vec<Vec<usize>> {
        let count = self.all.len();
        let next: Vec<BTreeSet<usize>> =
            (0..count).map(|at| self.successors(at).filter(|next| *next != at).collect()).collect();
        let mut waiting = vec![0; count];
        next.iter().flatten().for_each(|at| waiting[*at] += 1);
        let groups = (0..count).filter(|at| !self.all[*at].is_empty());
        let mut ready: BTreeSet<usize> = groups.filter(|at| waiting[*at] == 0).collect();
        let mut ordered = Vec::new();
        while let Some(at) = ready.pop_first() {
            ordered.push(self.all[at].clone());
            for next in &next[at] {
                waiting[*next] -= 1;
                if waiting[*next] == 0 {
                    ready.insert(*next);
                }
            }
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::engine::{cuts, partition};
    use crate::expr::{Mode, Pointwise};
    use crate::graph::{Matmul, Reduction, ReductionOp};

    /// A graph of so many operations that each read one or two of what there is; where `stored`,
    /// one in two of what they write is an output.
    fn random_graph(seed: u64, operations: usize, stored: bool) -> OperationGraph {
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
        for at in 1..values.len() {
            if !read[at] || stored && below(2) == 0 {
                graph.output(values[at].0, &format!("y{at}"), DType::F16);
            }
        }
        graph.build().expect("valid")
    }

    /// The fewest parts that run a graph, by trying all; `None` where none do.
    fn fewest(graph: &OperationGraph, target: &Target, selection: &Selection) -> Option<usize> {
        let operations = graph.operations();
        let clusters = Clusters::of(graph, target, selection);
        let stored = selection.without.behavior.contains(&BehaviorNote::Workspace);
        let count = operations.len();
        let members =
            |set: usize| -> Vec<usize> { (0..count).filter(|at| set >> at & 1 == 1).collect() };
        let connected = |part: &[usize]| graph.subgraph(part).is_ok();
        let passes = |part: &[usize]| {
            let virtuals = graph.tensors().iter().filter(|tensor| tensor.is_virtual);
            let mut touching = virtuals.map(|tensor| &clusters.touching[&tensor.uid]);
            touching.any(|own| {
                let inside = own.iter().filter(|at| part.contains(at)).count();
                inside > 0 && inside < own.len()
            })
        };
        let runs: Vec<bool> = (0..1usize << count)
            .map(|set| {
                let part = members(set);
                let legal = set != 0 && connected(&part) && !(stored && passes(&part));
                legal && clusters.runs(graph.sketch(&part).view())
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
        Some(parts[(1 << count) - 1]).filter(|count| *count < usize::MAX)
    }

    #[test]
    fn merging_finds_the_fewest_parts_or_one_more() {
        let target = Target::named("h200").expect("known");
        let (mut most, mut more) = (0, 0);
        for seed in 1..=60 {
            let graph = random_graph(seed, 2 + seed as usize % 6, false);
            let found = partition(&graph, &target, &Selection::default()).expect("supported").len();
            let fewest = fewest(&graph, &target, &Selection::default()).expect("supported");
            assert!(found <= fewest + 1, "{found} parts, {fewest} would do: {graph}");
            more += usize::from(found > fewest);
            most = most.max(fewest);
        }
        assert!(most >= 3 && more <= 3, "{more} of 60 graphs have a part too many");
    }

    #[test]
    fn a_split_without_a_workspace_is_found_where_there_is_one() {
        let target = Target::named("h200").expect("known");
        let without = "workspace".parse().expect("a note");
        let selection = Selection { without, ..Selection::default() };
        let (mut split, mut refused, mut otherwise) = (0, 0, 0);
        for seed in 200..320 {
            let graph = random_graph(seed, 2 + seed as usize % 6, true);
            let found = partition(&graph, &target, &selection);
            let fewest = fewest(&graph, &target, &selection);
            assert_eq!(found.is_ok(), fewest.is_some(), "{fewest:?} {found:?}: {graph}");
            let Ok(found) = found else {
                refused += 1;
                continue;
            };
            let written = found.iter().flat_map(|part| part.graph.outputs());
            let mut written = written.map(|tensor| graph.tensor(tensor.uid).expect("its own"));
            assert!(written.all(|tensor| !tensor.is_virtual), "{graph}");
            split += usize::from(found.len() > 1);
            let free = partition(&graph, &target, &Selection::default()).expect("supported");
            otherwise += usize::from(
                free.len() > 1
                    && free.iter().any(|part| {
                        part.graph
                            .outputs()
                            .any(|of| graph.tensor(of.uid).is_ok_and(|of| of.is_virtual))
                    }),
            );
        }
        // All that there is to distinguish has come.
        assert!(split > 10 && refused > 10 && otherwise > 0, "{split} {refused} {otherwise}");
    }

    #[test]
    fn parts_run_in_an_order_that_feeds_them() {
        let target = Target::named("h200").expect("known");
        for seed in 100..130 {
            let graph = random_graph(seed, 12, false);
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
