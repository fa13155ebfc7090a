//! A backward graph in two, of which the second runs later or not at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::expr::Mode;
use crate::graph::gradient::cone::cone;
use crate::graph::gradient::saved::Vjp;
use crate::graph::operation::{Op, Operation};
use crate::graph::{OperationGraph, find::find};
use crate::tensor::TensorDesc;

/// A backward graph in two. Tensors with one uid are one tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    /// Computes some of the gradients.
    pub first: OperationGraph,
    /// Compute the others: as many graphs as there are that have no tensor in common.
    pub second: Vec<OperationGraph>,
    /// What the first keeps for the second alone, by uid.
    pub kept: Vec<i64>,
}

/// Whether an operation costs as little as reading what it reads.
fn is_repeated(operation: &Operation) -> bool {
    let copies = |op: &Op| matches!(op, Op::Pointwise(op) if op.mode == Mode::Identity);
    operation.op.moves() || copies(&operation.op)
}

impl Vjp {
    /// The backward graph in two: one of the gradients `first`, by uid, and of virtual tensors
    /// among them, with all that they come of, and one of the rest. What the first computes and the
    /// second reads is kept in memory; casts and views are made again.
    ///
    /// # Errors
    /// As [`OperationGraph::new`].
    pub fn staged(&self, first: &[i64]) -> Result<Staged> {
        let operations = self.backward.operations();
        let of_first = cone(&self.backward, first, |_| false);
        let writers: BTreeMap<i64, usize> = operations
            .iter()
            .enumerate()
            .flat_map(|(at, operation)| operation.outputs.iter().map(move |uid| (*uid, at)))
            .collect();
        let mut repeated = BTreeSet::new();
        let mut kept = BTreeSet::new();
        let rest = operations.iter().enumerate().filter(|(at, _)| !of_first.contains(at));
        let mut open: Vec<i64> = rest.flat_map(|(_, of)| of.inputs.clone()).collect();
        while let Some(uid) = open.pop() {
            let Some(at) = writers.get(&uid).copied().filter(|at| of_first.contains(at)) else {
                continue;
            };
            if !find(self.backward.tensors(), uid).is_some_and(|tensor| tensor.is_virtual) {
                continue;
            }
            if !is_repeated(&operations[at]) || first.contains(&uid) {
                kept.insert(uid);
            } else if repeated.insert(at) {
                open.extend(&operations[at].inputs);
            }
        }
        let graph = |own: Vec<Operation>| {
            let touched: BTreeSet<i64> =
                own.iter().flat_map(|of| of.inputs.iter().chain(&of.outputs).copied()).collect();
            let tensor = |uid: &i64| {
                let tensor = find(self.backward.tensors(), *uid);
                let tensor = tensor.expect("operations of the graph name its tensors").clone();
                match kept.contains(uid) {
                    true => {
                        let name = format!("kept{uid}");
                        TensorDesc { is_virtual: false, name, ..tensor }
                    }
                    false => tensor,
                }
            };
            OperationGraph::new(touched.iter().map(tensor).collect(), own)
        };
        let pick = |second: bool| {
            let all = operations.iter().enumerate();
            let own = all.filter(|(at, _)| match second {
                false => of_first.contains(at),
                true => !of_first.contains(at) || repeated.contains(at),
            });
            own.map(|(_, operation)| operation.clone()).collect::<Vec<Operation>>()
        };
        Ok(Staged {
            first: graph(pick(false))?,
            second: connected(pick(true)).into_iter().map(graph).collect::<Result<_>>()?,
            kept: kept.into_iter().collect(),
        })
    }
}

/// The operations by the graphs that they form.
fn connected(operations: Vec<Operation>) -> Vec<Vec<Operation>> {
    let mut graphs: Vec<(BTreeSet<i64>, Vec<usize>)> = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        let mut uids: BTreeSet<i64> =
            operation.inputs.iter().chain(&operation.outputs).copied().collect();
        let mut own = vec![at];
        graphs.retain(|(known, positions)| {
            let apart = known.is_disjoint(&uids);
            if !apart {
                uids.extend(known);
                own.extend(positions);
            }
            apart
        });
        own.sort_unstable();
        graphs.push((uids, own));
    }
    graphs.sort_by_key(|(_, positions)| positions[0]);
    let pick = |positions: Vec<usize>| positions.iter().map(|at| operations[*at].clone()).collect();
    graphs.into_iter().map(|(_, positions)| pick(positions)).collect()
}
