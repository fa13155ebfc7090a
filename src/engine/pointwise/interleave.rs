//! Tensors whose elements take turns in memory, as neighbours of a rotary embedding do: what is
//! between two elements of one are elements of the others, so that all are accessed as one.

use crate::engine::pointwise::domain::Domain;
use crate::graph::CanonicalGraph;

/// The most tensors that take turns.
const PARTS_MAX: i64 = 8;

/// A tensor's place among those that take turns with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interleave {
    /// Their positions in the graph, in the order of their elements; the first stands for all.
    pub(super) parts: Vec<usize>,
    /// Which of them it is.
    pub(super) part: usize,
}

/// The place of a tensor among those of `beside` that take turns with it; `None` where the turn of
/// some is missing.
pub(super) fn interleave(
    graph: CanonicalGraph<'_>,
    domain: &Domain,
    at: usize,
    beside: &[usize],
) -> Option<Interleave> {
    let count = domain.column_stride(at);
    if !(2..=PARTS_MAX).contains(&count) {
        return None;
    }
    let begins = |at: usize| graph.offset(at);
    let first = begins(at) - begins(at) % count;
    let lies_alike = |other: &usize| {
        graph.uids.get(*other) == graph.uids.get(at)
            && domain.strides[*other] == domain.strides[at]
            && graph.tensors[*other].dtype == graph.tensors[at].dtype
    };
    let turn = |part: i64| {
        let mut alike = beside.iter().copied().filter(lies_alike);
        alike.find(|other| begins(*other) == first + part)
    };
    let parts = (0..count).map(turn).collect::<Option<Vec<usize>>>()?;
    let part = parts.iter().position(|part| *part == at)?;
    Some(Interleave { parts, part })
}
