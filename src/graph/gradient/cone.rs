//! What tensors come of.

use std::collections::BTreeSet;

use crate::graph::OperationGraph;

/// The operations of a graph, by position, that tensors come of, without those that are excepted
/// and what these alone come of.
pub(crate) fn cone(
    graph: &OperationGraph,
    of: &[i64],
    excepted: impl Fn(usize) -> bool,
) -> BTreeSet<usize> {
    let mut wanted: BTreeSet<i64> = of.iter().copied().collect();
    let mut found = BTreeSet::new();
    for (at, operation) in graph.operations().iter().enumerate().rev() {
        if operation.outputs.iter().any(|uid| wanted.contains(uid)) && !excepted(at) {
            found.insert(at);
            wanted.extend(&operation.inputs);
        }
    }
    found
}
