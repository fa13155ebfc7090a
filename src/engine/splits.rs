//! Other splits of a graph than the one that is found: what one part fuses, in two, and what two
//! parts one behind the other do, in one.
//!
//! Merging counts kernels and bytes, and the cost model knows prologues; whether an epilogue of a
//! GEMM is profitable, or a reduction in it, only a measurement tells, and which kernels exist
//! already, a cache.

use crate::engine::part::Part;
use crate::engine::{BehaviorNote, Selection, choose};
use crate::graph::{Operation, OperationGraph};
use crate::target::Target;

/// Splits that are made of one: each costs a measurement of the whole graph.
const SPLITS_MAX: usize = 8;

/// The parts of a graph with one of them cut in two, at places that are spread evenly over all
/// where an engine runs both sides, with settings that the selection allows.
pub fn splits_undone(parts: &[Part], target: &Target, selection: &Selection) -> Vec<Vec<Part>> {
    let places: Vec<(usize, usize)> = parts
        .iter()
        .enumerate()
        .flat_map(|(number, part)| (1..part.graph.operations().len()).map(move |at| (number, at)))
        .collect();
    let step = places.len().div_ceil(SPLITS_MAX).max(1);
    let without_workspace = selection.without.behavior.contains(&BehaviorNote::Workspace);
    let undone = |(number, at): (usize, usize)| {
        let graph = &parts[number].graph;
        let side = |operations: std::ops::Range<usize>| {
            let graph = graph.subgraph(&operations.collect::<Vec<_>>()).ok()?;
            let config = choose(graph.canonical(), target, selection).ok()?;
            Some(Part { graph, config })
        };
        let sides = [side(0..at)?, side(at..graph.operations().len())?];
        let is_stored = |uid: i64| graph.tensor(uid).is_ok_and(|tensor| !tensor.is_virtual);
        let passes = sides[0].graph.outputs().any(|tensor| !is_stored(tensor.uid));
        if without_workspace && passes {
            return None;
        }
        let mut split = parts.to_vec();
        split.splice(number..=number, sides);
        Some(split)
    };
    places.into_iter().step_by(step).filter_map(undone).collect()
}

/// The parts of a graph with two neighbours in one, where an engine runs that.
pub fn splits_fused(
    graph: &OperationGraph,
    parts: &[Part],
    target: &Target,
    selection: &Selection,
) -> Vec<Vec<Part>> {
    let place = |own: &Operation| graph.operations().iter().position(|of| of == own);
    let fused = |first: usize| {
        let both = parts[first..first + 2].iter().flat_map(|part| part.graph.operations());
        let mut operations: Vec<usize> = both.map(place).collect::<Option<_>>()?;
        operations.sort_unstable();
        let graph = graph.subgraph(&operations).ok()?;
        let config = choose(graph.canonical(), target, selection).ok()?;
        let mut fused = parts.to_vec();
        fused.splice(first..first + 2, [Part { graph, config }]);
        Some(fused)
    };
    (1..parts.len()).map(|second| second - 1).filter_map(fused).take(SPLITS_MAX).collect()
}
