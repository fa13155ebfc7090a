//! The operation graph: what is computed, never how.
//!
//! An [`OperationGraph`] is a set of tensors and the operations between them, valid by
//! construction: [`GraphBuilder::build`] checks everything the backend document checks at
//! finalisation. Every graph knows its [canonical form](OperationGraph::canonical), which is the
//! same for graphs that differ only in uids and insertion order.
//!
//! ```
//! use kiln::expr::{Mode, Pointwise};
//! use kiln::graph::OperationGraph;
//! use kiln::DType;
//!
//! let mut graph = OperationGraph::builder();
//! let x = graph.input("x", &[64, 768], DType::Bf16);
//! let bias = graph.input("bias", &[1, 768], DType::Bf16);
//! let sum = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias])?;
//! let y = graph.pointwise(Pointwise::new(Mode::GeluFwd), &[sum])?;
//! graph.output(y, "y", DType::Bf16);
//! let graph = graph.build()?;
//! assert_eq!(graph.operations().len(), 2);
//! # Ok::<(), kiln::Error>(())
//! ```

mod attention;
mod builder;
mod canonical;
mod cell;
mod json;
mod matmul;
mod norm;
mod operation;
mod recurrence;
mod reduction;
mod shape;
mod statistics;
mod subgraph;
mod validate;

use std::fmt;

pub use attention::{
    Attention, AttentionShape, Band, CAPTURED_MAX, Diagonal, ScoreInput, Softcap, score_inputs,
};
pub use builder::GraphBuilder;
pub use cell::{Cell, CellValue, Moments, Product, Stage};
pub(crate) use json::JsonReal;
pub use matmul::{Matmul, MatmulMath};
pub use norm::{NormBackward, NormForward, NormMode, Phase};
pub use operation::{Op, Operation, Slots};
pub use recurrence::{Direction, Recurrence, RecurrenceSlots, RowLayout};
pub use reduction::{Reduction, ReductionOp};
pub use statistics::{BnBackwardWeights, BnFinalize, GenStats};

use crate::error::{Error, Result};
use crate::tensor::TensorDesc;

/// A digest of a graph's meaning.
pub type GraphDigest = [u8; 32];

/// A valid, immutable operation graph (`MCDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR`, 8.2.2.25).
#[derive(Debug, Clone)]
pub struct OperationGraph {
    /// Sorted by uid.
    tensors: Vec<TensorDesc>,
    /// In topological order.
    operations: Vec<Operation>,
    canonical: canonical::Canonical,
}

impl OperationGraph {
    /// An empty builder.
    pub fn builder() -> GraphBuilder {
        GraphBuilder::default()
    }

    /// Validates tensors and operations given in any order.
    ///
    /// # Errors
    /// `BadParam` or `NotSupported` with the tensor or operation and the rule it breaks.
    pub fn new(mut tensors: Vec<TensorDesc>, operations: Vec<Operation>) -> Result<Self> {
        tensors.sort_by_key(|tensor| tensor.uid);
        let operations = operations.into_iter().map(|of| of.in_own_math(&tensors)).collect();
        let operations = validate::validate(&tensors, operations)?;
        let canonical = canonical::canonical(&tensors, &operations);
        Ok(OperationGraph { tensors, operations, canonical })
    }

    /// All tensors, sorted by uid.
    pub fn tensors(&self) -> &[TensorDesc] {
        &self.tensors
    }

    /// All operations, each after those that produce its operands.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The tensor with this uid.
    ///
    /// # Errors
    /// `BadParam` when there is none.
    pub fn tensor(&self, uid: i64) -> Result<&TensorDesc> {
        find(&self.tensors, uid)
            .ok_or_else(|| Error::bad_param(format!("no tensor of the graph has uid {uid}")))
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// `BadParam` when there is none.
    pub fn tensor_named(&self, name: &str) -> Result<&TensorDesc> {
        self.tensors
            .iter()
            .find(|tensor| tensor.name == name)
            .ok_or_else(|| Error::bad_param(format!("no tensor of the graph is named `{name}`")))
    }

    /// Tensors with storage that no operation writes, sorted by uid.
    pub fn inputs(&self) -> impl Iterator<Item = &TensorDesc> {
        self.tensors.iter().filter(|tensor| !tensor.is_virtual && !self.is_written(tensor.uid))
    }

    /// Tensors with storage that an operation writes, sorted by uid.
    pub fn outputs(&self) -> impl Iterator<Item = &TensorDesc> {
        self.tensors.iter().filter(|tensor| !tensor.is_virtual && self.is_written(tensor.uid))
    }

    fn is_written(&self, uid: i64) -> bool {
        writes(&self.operations, uid)
    }

    /// The least that any implementation must move: every input once, every output once.
    pub fn bytes_min(&self) -> u64 {
        subgraph::bytes_min(&self.tensors)
    }

    /// The canonical form: uids are positions, names are reduced to identifiers.
    pub fn canonical(&self) -> CanonicalGraph<'_> {
        CanonicalGraph {
            tensors: &self.canonical.tensors,
            operations: &self.canonical.operations,
            uids: &self.canonical.uids,
        }
    }

    /// The digest of the canonical form: equal for graphs that may share kernels.
    pub fn form_digest(&self) -> GraphDigest {
        self.canonical.form_digest
    }

    /// The digest of the canonical form, its uids and names: equal for graphs that may share a
    /// plan.
    pub fn digest(&self) -> GraphDigest {
        self.canonical.digest
    }
}

/// Graphs are equal when they mean the same under the same uids and names.
impl PartialEq for OperationGraph {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for OperationGraph {}

impl std::hash::Hash for OperationGraph {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

/// A graph's canonical form: tensor `i` of it is tensor `uids[i]` of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CanonicalGraph<'a> {
    /// Tensors whose uid is their position.
    pub tensors: &'a [TensorDesc],
    /// Operations over those uids, in canonical order.
    pub operations: &'a [Operation],
    /// The graph's own uid of each tensor.
    pub uids: &'a [i64],
}

impl CanonicalGraph<'_> {
    /// Whether an operation writes the tensor at this position.
    pub(crate) fn is_written(&self, at: usize) -> bool {
        writes(self.operations, at as i64)
    }
}

fn writes(operations: &[Operation], uid: i64) -> bool {
    operations.iter().any(|operation| operation.outputs.contains(&uid))
}

pub(crate) fn find(tensors: &[TensorDesc], uid: i64) -> Option<&TensorDesc> {
    tensors.binary_search_by_key(&uid, |tensor| tensor.uid).ok().map(|index| &tensors[index])
}

impl fmt::Display for OperationGraph {
    /// Inputs, operations and outputs, one per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |uid: i64| self.reference(uid);
        for tensor in self.inputs() {
            writeln!(f, "input  {tensor}")?;
        }
        for operation in &self.operations {
            let output = |uid: &i64| find(&self.tensors, *uid).expect("validated");
            let result = |uid: &i64| {
                let TensorDesc { dtype, dims, .. } = output(uid);
                format!("{}: {dtype}{dims:?}", name(*uid))
            };
            let results: Vec<String> = operation.outputs.iter().map(result).collect();
            let operands: Vec<String> = operation.inputs.iter().map(|uid| name(*uid)).collect();
            let stored = operation.outputs.iter().any(|uid| !output(uid).is_virtual);
            let kept = if stored { "output " } else { "" };
            let (results, operands) = (results.join(", "), operands.join(", "));
            writeln!(f, "{kept:7}{results} = {}({operands})", operation.op)?;
        }
        Ok(())
    }
}
