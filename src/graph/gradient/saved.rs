//! The forward and the backward graph, and what the one keeps for the other.
//!
//! What the backward graph needs of the forward one it reads, or computes again from what it
//! reads, by pointwise operations, views, and norms of known statistics; no other operation is
//! repeated. A tensor that is in memory anyway costs its bytes once, to read it; one that is kept
//! for the backward graph alone twice. A minimum cut of the forward graph, in front of what is
//! needed, costs the least bytes.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::graph::gradient::min_cut::Network;
use crate::graph::gradient::tape::Tape;
use crate::graph::operation::{Op, Operation};
use crate::graph::{NormForward, OperationGraph, Phase, find::find};
use crate::tensor::TensorDesc;

/// A graph and the graph of its vector-Jacobian product. Tensors of both with one uid are one
/// tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Vjp {
    /// The graph, with what the backward graph reads of it as further outputs.
    pub forward: OperationGraph,
    /// Computes gradients of inputs from gradients of outputs.
    pub backward: OperationGraph,
    /// What the backward graph reads of the forward one, inputs and outputs among it.
    pub saved: Vec<Saved>,
    /// For each output that was given the uid of its gradient, an input of the backward graph.
    pub output_gradients: Vec<i64>,
    /// For each input that was given the uid of its gradient, an output of the backward graph.
    pub input_gradients: Vec<i64>,
}

/// A tensor of the forward graph that the backward graph reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Saved {
    /// The tensor.
    pub uid: i64,
    /// Its elements' size.
    pub bytes: u64,
    /// Whether it is an output of the forward graph for this alone.
    pub kept: bool,
}

fn bytes(tensor: &TensorDesc) -> u64 {
    let elements = tensor.elements().unwrap_or(i64::MAX).max(0) as u64;
    elements.saturating_mul(tensor.dtype.bytes() as u64)
}

/// What computes a result again at no more than the cost of reading its operands: a pointwise
/// operation or a view itself, a norm from the statistics that it has computed.
fn again(operation: &Operation, uid: i64) -> Option<Operation> {
    match &operation.op {
        Op::Pointwise(_) | Op::Rng(_) => Some(operation.clone()),
        op if op.moves() => Some(operation.clone()),
        Op::NormForward(op) if operation.outputs[0] == uid => {
            let trained = op.statistics && op.phase == Phase::Training;
            let own = NormForward { phase: Phase::Inference, running: false, ..*op };
            let inputs = Op::NormForward(own).slots().inputs;
            let slots = operation.op.slots();
            let named = slots.inputs.iter().zip(&operation.inputs);
            let named = named.chain(slots.outputs.iter().zip(&operation.outputs));
            let named: BTreeMap<&str, i64> = named.map(|(slot, uid)| (*slot, *uid)).collect();
            let inputs = inputs.iter().map(|slot| named.get(slot).copied());
            let inputs: Option<Vec<i64>> = inputs.collect();
            let op = Op::NormForward(own);
            trained.then_some(Operation { op, inputs: inputs?, outputs: vec![uid] })
        }
        _ => None,
    }
}

impl Tape<'_> {
    /// The two graphs.
    ///
    /// # Errors
    /// As [`OperationGraph::new`].
    pub(super) fn split(self) -> Result<Vjp> {
        let forward = self.forward.operations();
        let backward = self.live(forward.len());
        let needed = self.needed(&backward);
        let cut = self.cut(&needed);
        let repeated = self.repeated(&needed, &cut);
        let saved = self.saved(&cut);
        let kept: Vec<i64> = saved.iter().filter(|of| of.kept).map(|of| of.uid).collect();
        let mut named: BTreeMap<i64, TensorDesc> = BTreeMap::new();
        for uid in &kept {
            let mut tensor = self.forward.tensor(*uid)?.clone();
            tensor.is_virtual = false;
            if tensor.name.is_empty() {
                tensor.name = format!("saved{uid}");
                let taken = |name: &str| self.builder.tensors().iter().any(|of| of.name == name);
                while taken(&tensor.name) {
                    tensor.name.push('_');
                }
            }
            named.insert(*uid, tensor);
        }
        let of = |tensor: &TensorDesc| named.get(&tensor.uid).unwrap_or(tensor).clone();
        let tensors = self.forward.tensors().iter().map(of).collect();
        let first = OperationGraph::new(tensors, forward.to_vec())?;
        let operations: Vec<Operation> = repeated.into_iter().chain(backward).collect();
        let touched: BTreeSet<i64> =
            operations.iter().flat_map(|of| of.inputs.iter().chain(&of.outputs).copied()).collect();
        let written: BTreeSet<i64> =
            operations.iter().flat_map(|of| of.outputs.iter().copied()).collect();
        let tensor = |uid: &i64| {
            let tensor = find(first.tensors(), *uid).or_else(|| self.builder.descriptor(*uid));
            let tensor = tensor.expect("operations of the tape name its tensors").clone();
            // What is computed again is not stored again.
            let again = written.contains(uid) && self.forward.tensor(*uid).is_ok();
            TensorDesc { is_virtual: tensor.is_virtual || again, ..tensor }
        };
        let second = OperationGraph::new(touched.iter().map(tensor).collect(), operations)?;
        Ok(Vjp {
            forward: first,
            backward: second,
            saved,
            output_gradients: self.output_gradients,
            input_gradients: self.input_gradients,
        })
    }

    /// The operations behind the forward ones whose results lead to a gradient.
    fn live(&self, forward: usize) -> Vec<Operation> {
        let operations = &self.builder.operations()[forward..];
        let is_output = |uid: &i64| !self.desc(*uid).is_virtual;
        let mut wanted: BTreeSet<i64> = BTreeSet::new();
        let mut live = Vec::new();
        for operation in operations.iter().rev() {
            if operation.outputs.iter().any(|uid| wanted.contains(uid) || is_output(uid)) {
                wanted.extend(&operation.inputs);
                live.push(operation.clone());
            }
        }
        live.reverse();
        live
    }

    /// Tensors of the forward graph that operations read.
    fn needed(&self, operations: &[Operation]) -> BTreeSet<i64> {
        let read = operations.iter().flat_map(|of| of.inputs.iter().copied());
        read.filter(|uid| self.forward.tensor(*uid).is_ok()).collect()
    }

    /// Whether a tensor is in memory for the backward graph alone.
    fn is_extra(&self, tensor: &TensorDesc) -> bool {
        tensor.is_virtual || self.added.contains(&tensor.uid)
    }

    fn writer(&self, uid: i64) -> Option<&Operation> {
        self.forward.operations().iter().find(|of| of.outputs.contains(&uid))
    }

    /// The tensors to read, from which all that is needed can be computed.
    fn cut(&self, needed: &BTreeSet<i64>) -> BTreeSet<i64> {
        let tensors = self.forward.tensors();
        let position = |uid: i64| {
            let found = tensors.binary_search_by_key(&uid, |tensor| tensor.uid);
            found.expect("operations of the graph name its tensors")
        };
        let cost = |tensor: &TensorDesc| match (tensor.by_value, self.is_extra(tensor)) {
            (true, _) => 0,
            (false, true) => bytes(tensor).saturating_mul(2),
            (false, false) => bytes(tensor),
        };
        let costs: Vec<u64> = tensors.iter().map(cost).collect();
        let mut network = Network::of(&costs);
        for (at, tensor) in tensors.iter().enumerate() {
            match self.writer(tensor.uid).and_then(|operation| again(operation, tensor.uid)) {
                Some(own) => {
                    own.inputs.iter().for_each(|uid| network.leads(position(*uid), at));
                }
                None => network.leads_from_source(at),
            }
        }
        needed.iter().for_each(|uid| network.leads_to_sink(position(*uid)));
        network.cut().into_iter().map(|at| tensors[at].uid).collect()
    }

    /// The forward operations that compute what is needed from what is read, in order.
    fn repeated(&self, needed: &BTreeSet<i64>, cut: &BTreeSet<i64>) -> Vec<Operation> {
        let mut wanted: BTreeSet<i64> = needed.difference(cut).copied().collect();
        let mut repeated = Vec::new();
        for operation in self.forward.operations().iter().rev() {
            let uid = operation.outputs.iter().find(|uid| wanted.contains(uid));
            if let Some(own) = uid.and_then(|uid| again(operation, *uid)) {
                let inputs = own.inputs.iter().copied();
                wanted.extend(inputs.filter(|uid| !cut.contains(uid)));
                repeated.push(own);
            }
        }
        repeated.reverse();
        repeated
    }

    fn saved(&self, cut: &BTreeSet<i64>) -> Vec<Saved> {
        let saved = |uid: &i64| {
            let tensor = self.forward.tensor(*uid).expect("a tensor of the graph");
            Saved { uid: *uid, bytes: bytes(tensor), kept: self.is_extra(tensor) }
        };
        cut.iter().map(saved).collect()
    }
}
