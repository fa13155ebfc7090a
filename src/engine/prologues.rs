//! Prologues of products that had better be kernels of their own.
//!
//! A prologue is computed for every tile that reads an operand, and passes through registers on its
//! way there: TMA, and with it the tensor cores' full rate on sm_90, has no place for it. Merging
//! counts kernels and bytes; whether it pays is a question for the cost model.

use std::collections::BTreeSet;

use crate::engine::part::{Part, parts_of};
use crate::engine::{BehaviorNote, CostModel, Mode, Selection, choose, predicted_us};
use crate::graph::{Op, OperationGraph, cone};
use crate::target::Target;

/// How many times longer one kernel must take by the cost model, which is within 11 % of measured
/// products (`benches/results`).
pub(super) const GAIN_MIN: f64 = 1.15;

/// A part, or several in the place of it where these take less time: without prologues of a
/// product, and what computes them before.
pub(super) fn apart(part: Part, target: &Target, selection: &Selection) -> Vec<Part> {
    let without_workspace = selection.without.behavior.contains(&BehaviorNote::Workspace);
    if selection.mode == Mode::Fallback || without_workspace {
        return vec![part];
    }
    let prologues = prologues(&part.graph);
    if prologues.is_empty() {
        return vec![part];
    }
    let model = CostModel::of(target);
    let splits = prologues.iter().filter_map(|of| without(&part.graph, of, target, selection));
    let timed = splits.map(|parts| (parts_us(&parts, target, &model), parts));
    let best = timed.min_by(|(us, _), (other, _)| us.total_cmp(other));
    let own_us = parts_us(std::slice::from_ref(&part), target, &model);
    match best {
        Some((us, parts)) if us * GAIN_MIN < own_us => parts,
        _ => vec![part],
    }
}

/// The microseconds that parts take one after the other, by the cost model.
pub(super) fn parts_us(parts: &[Part], target: &Target, model: &CostModel) -> f64 {
    let us = |part: &Part| {
        let supported = part.supported(target);
        supported.map_or(f64::INFINITY, |own| predicted_us(&*own, model, &part.config))
    };
    parts.iter().map(us).sum()
}

/// The operations of prologues that can be kernels of their own, those of each kernel: of either
/// operand of a product, and of both.
fn prologues(graph: &OperationGraph) -> Vec<Vec<BTreeSet<usize>>> {
    let operations = graph.operations();
    let is_product = |at: &usize| matches!(operations[*at].op, Op::Matmul(_) | Op::Convolution(_));
    let mut all = Vec::new();
    for product in (0..operations.len()).filter(is_product) {
        let of_operand = |at: usize| {
            let computed = cone(graph, &[operations[product].inputs[at]], |_| false);
            let results = computed.iter().map(|at| &operations[*at]);
            let results = results.filter(|of| of.is_elementwise()).flat_map(|of| &of.outputs);
            // Views in front of the product stay with it.
            let results: Vec<i64> = results.copied().collect();
            cone(graph, &results, |_| false)
        };
        let [a, b] = [0, 1].map(of_operand);
        if [&a, &b].iter().any(|own| own.iter().any(is_product)) {
            continue;
        }
        let others: BTreeSet<usize> = b.difference(&a).copied().collect();
        let found = [vec![a.clone()], vec![b], vec![a, others]];
        let is_whole = |own: &Vec<BTreeSet<usize>>| own.iter().all(|set| !set.is_empty());
        all.extend(found.into_iter().filter(is_whole));
    }
    all
}

/// The parts of a graph without some operations, behind those of these; `None` where no engine
/// runs what is left, or some that are to be together are not connected.
fn without(
    graph: &OperationGraph,
    before: &[BTreeSet<usize>],
    target: &Target,
    selection: &Selection,
) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for operations in before {
        let own = graph.subgraph(&operations.iter().copied().collect::<Vec<_>>()).ok()?;
        parts.extend(parts_of(&own, target, selection).ok()?);
    }
    let is_left = |at: &usize| before.iter().all(|own| !own.contains(at));
    let rest: Vec<usize> = (0..graph.operations().len()).filter(is_left).collect();
    let graph = graph.subgraph(&rest).ok()?;
    let config = choose(graph.canonical(), target, selection).ok()?;
    parts.push(Part { graph, config });
    Some(parts)
}
