//! Extraction of subgraphs.
//!
//! Tensors that cross the boundary of a subgraph become non-virtual: packed, and named if unnamed;
//! those that signals pass on in place lie as the tensor does whose memory it is.
//! Values of virtual tensors are rounded to their type, so results do not change.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::error::Result;
use crate::graph::operation::Operation;
use crate::graph::views::{Place, Resolved, resolve};
use crate::graph::{CanonicalGraph, OperationGraph};
use crate::tensor::{ALIGNMENT_MAX, TensorDesc};

/// A subgraph in the form of a canonical graph, for engine queries. Its operations are in
/// topological, not necessarily canonical, order.
#[derive(Debug, Clone)]
pub(crate) struct Sketch {
    tensors: Vec<TensorDesc>,
    operations: Vec<Operation>,
    uids: Vec<i64>,
    offsets: Vec<i64>,
}

impl Sketch {
    /// The view that engines expect.
    pub(crate) fn view(&self) -> CanonicalGraph<'_> {
        let Sketch { tensors, operations, uids, offsets } = self;
        CanonicalGraph { tensors, operations, uids, offsets }
    }
}

/// Operations with their tensors' positions for uids.
fn sketched(
    mut tensors: Vec<TensorDesc>,
    operations: &[Operation],
    places: &BTreeMap<i64, Place>,
) -> Sketch {
    let positions: HashMap<i64, i64> = tensors.iter().map(|of| of.uid).zip(0..).collect();
    let mut uids = Vec::new();
    let mut offsets = Vec::new();
    for (tensor, position) in tensors.iter_mut().zip(0..) {
        let own = Place { uid: tensor.uid, offset: 0 };
        let Place { uid, offset } = *places.get(&tensor.uid).unwrap_or(&own);
        uids.push(uid);
        offsets.push(offset);
        tensor.uid = position;
    }
    let renamed = |uids: &[i64]| uids.iter().map(|uid| positions[uid]).collect();
    let renamed = |Operation { op, inputs, outputs }: &Operation| Operation {
        op: op.clone(),
        inputs: renamed(inputs),
        outputs: renamed(outputs),
    };
    let operations = operations.iter().map(renamed).collect();
    Sketch { tensors, operations, uids, offsets }
}

impl OperationGraph {
    /// Minimum memory traffic of any implementation, in bytes: every input and every output once.
    pub fn bytes_min(&self) -> u64 {
        let bytes = |tensor: &TensorDesc| {
            (tensor.elements().unwrap_or(0) as u64).saturating_mul(tensor.dtype.bytes() as u64)
        };
        let moved = self.tensors.iter().filter(|tensor| !tensor.is_virtual && !tensor.by_value);
        moved.map(bytes).fold(0, u64::saturating_add)
    }

    /// Extracts the operations at these ascending indices of [`OperationGraph::operations`]. Uids
    /// are preserved.
    ///
    /// # Errors
    /// `BadParam` when the operations are not connected.
    pub(crate) fn subgraph(&self, operations: &[usize]) -> Result<OperationGraph> {
        let tensors = self.tensors_of(operations);
        let operations = operations.iter().map(|at| self.operations[*at].clone()).collect();
        OperationGraph::new(tensors, operations)
    }

    /// Like [`OperationGraph::subgraph`], without validation and canonical order.
    pub(crate) fn sketch(&self, operations: &[usize]) -> Sketch {
        let tensors = self.tensors_of(operations);
        let operations: Vec<Operation> =
            operations.iter().map(|at| self.operations[*at].clone()).collect();
        match resolve(&tensors, &operations) {
            Ok(Some(Resolved { tensors, operations, places })) => {
                sketched(tensors, &operations, &places)
            }
            _ => sketched(tensors, &operations, &BTreeMap::new()),
        }
    }

    /// All operations as they are, with those that move elements.
    pub(crate) fn with_moves(&self) -> Sketch {
        sketched(self.tensors.clone(), &self.operations, &BTreeMap::new())
    }

    /// Whether an operation moves elements and computes nothing.
    pub(crate) fn moves(&self) -> bool {
        self.operations.iter().any(|operation| operation.op.moves())
    }

    /// The tensors of some operations, sorted by uid; those that other operations use are
    /// non-virtual, and lie as their operands do.
    fn tensors_of(&self, operations: &[usize]) -> Vec<TensorDesc> {
        let inside = |at: &usize| operations.binary_search(at).is_ok();
        let own = operations.iter().map(|at| &self.operations[*at]);
        let written: BTreeSet<i64> = own.clone().flat_map(|of| of.outputs.clone()).collect();
        let others = (0..self.operations.len()).filter(|at| !inside(at));
        let read_elsewhere: BTreeSet<i64> =
            others.flat_map(|at| self.operations[at].inputs.clone()).collect();
        let touched: BTreeSet<i64> =
            own.flat_map(|of| of.inputs.iter().chain(&of.outputs).copied()).collect();
        let tensor = |uid: &i64| {
            let tensor = self.tensor(*uid).expect("operations name known tensors");
            let crosses = !written.contains(uid) || read_elsewhere.contains(uid);
            if !tensor.is_virtual || !crosses {
                return tensor.clone();
            }
            let packed = TensorDesc::packed(*uid, self.name_of(tensor), &tensor.dims, tensor.dtype);
            match self.tensor(self.memory_of(*uid)) {
                Ok(TensorDesc { strides, alignment, is_virtual: false, .. }) => {
                    TensorDesc { strides: strides.clone(), alignment: *alignment, ..packed }
                }
                _ => {
                    let strides = self.virtual_strides.get(uid).unwrap_or(&packed.strides).clone();
                    TensorDesc { strides, alignment: ALIGNMENT_MAX, ..packed }
                }
            }
        };
        touched.iter().map(tensor).collect()
    }

    /// Returns the tensor's name, or a unique one if it is unnamed.
    fn name_of(&self, tensor: &TensorDesc) -> String {
        let mut name = tensor.name.clone();
        if name.is_empty() {
            name = format!("t{}", tensor.uid);
            while self.tensors.iter().any(|other| other.name == name) {
                name.push('_');
            }
        }
        name
    }
}
