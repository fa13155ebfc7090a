//! The operation graph and its accessors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::expr::Mode;
use crate::graph::canonical::{Canonical, CanonicalGraph, Digests, GraphDigest, canonical};
use crate::graph::find::find;
use crate::graph::memory_order::strides_of_virtual;
use crate::graph::operation::{Op, Operation, writes};
use crate::graph::pass_through::decided;
use crate::graph::validate::validate;
use crate::progression::Progression;
use crate::tensor::TensorDesc;

/// A valid, immutable operation graph (`MCDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR`, 8.2.2.25).
#[derive(Debug, Clone)]
pub struct OperationGraph {
    /// Tensors sorted by uid.
    pub(super) tensors: Vec<TensorDesc>,
    /// Operations in topological order.
    pub(super) operations: Vec<Operation>,
    /// The tensor in whose memory a tensor lies that signals pass on in place, by uid.
    memory: BTreeMap<i64, i64>,
    /// The strides of virtual tensors that would not lie in row-major order, by uid.
    pub(super) virtual_strides: BTreeMap<i64, Vec<i64>>,
    canonical: Canonical,
    /// Of the canonical form; computed when they are first asked for.
    digests: OnceLock<Box<Digests>>,
}

/// A tensor that lies in the memory of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InPlace {
    /// The tensor.
    pub uid: i64,
    /// The tensor whose memory it is.
    pub within: i64,
    /// Distance of their addresses.
    pub offset_bytes: u64,
}

impl OperationGraph {
    /// Validates tensors and operations, which may be in any order.
    ///
    /// # Errors
    /// `BadParam` or `NotSupported`, naming the tensor or operation and the rule it violates.
    pub fn new(mut tensors: Vec<TensorDesc>, operations: Vec<Operation>) -> Result<Self> {
        tensors.sort_by_key(|tensor| tensor.uid);
        let operations = operations.into_iter().map(|of| of.resolved(&tensors)).collect();
        let mut operations = validate(&tensors, operations)?;
        let memory = decided(&tensors, &mut operations);
        let virtual_strides = strides_of_virtual(&tensors, &operations);
        let canonical = canonical(&tensors, &operations);
        let digests = OnceLock::new();
        Ok(OperationGraph { tensors, operations, memory, virtual_strides, canonical, digests })
    }

    /// All tensors, sorted by uid.
    pub fn tensors(&self) -> &[TensorDesc] {
        &self.tensors
    }

    /// All operations in topological order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// What results are added to, with these: `beta` scales what the memory of a result held, a
    /// residual is added to a product or a sum, and a gradient stays as it was. Both are in memory,
    /// and nothing else reads the former.
    pub(crate) fn added(&self) -> impl Iterator<Item = [i64; 2]> + '_ {
        let stored = |uid: &i64| self.tensor(*uid).is_ok_and(|of| !of.is_virtual && !of.by_value);
        let readers = |uid: &i64| {
            let read = self.operations.iter().flat_map(|of| &of.inputs);
            read.filter(|input| *input == uid).count()
        };
        let sums = |of: &Operation| matches!(of.op, Op::Matmul(_) | Op::Reduction(_));
        let sums = self.operations.iter().any(sums);
        self.operations.iter().filter_map(move |operation| {
            let mut result = *operation.outputs.first()?;
            let before = match &operation.op {
                Op::Convolution(op) if op.reads_result() => operation.inputs.last(),
                Op::Resample(op) if op.reads_result() => operation.inputs.last(),
                // The gradient of what has no loss.
                Op::CtcLoss(op) if op.reads_result() => {
                    result = operation.outputs[1];
                    operation.inputs.last()
                }
                // A residual that is added to a product or a sum.
                Op::Pointwise(op) if op.mode == Mode::Add && sums => {
                    let mut residuals = operation.inputs.iter().filter(|uid| stored(uid));
                    residuals.next().filter(|_| residuals.next().is_none())
                }
                _ => None,
            }?;
            let pair = [*before, result];
            (pair.iter().all(stored) && readers(before) == 1).then_some(pair)
        })
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

    /// Non-virtual tensors that no operation writes, sorted by uid.
    pub fn inputs(&self) -> impl Iterator<Item = &TensorDesc> {
        self.tensors.iter().filter(|tensor| !tensor.is_virtual && !self.is_written(tensor.uid))
    }

    /// Non-virtual tensors that an operation writes, sorted by uid.
    pub fn outputs(&self) -> impl Iterator<Item = &TensorDesc> {
        self.tensors.iter().filter(|tensor| !tensor.is_virtual && self.is_written(tensor.uid))
    }

    /// Whether some operation is a recurrence.
    pub(crate) fn is_recurrent(&self) -> bool {
        self.operations().iter().any(|of| matches!(of.op, Op::Recurrence(_)))
    }

    /// A tensor as it lies in memory, a virtual one as where it passes between parts.
    pub(crate) fn laid(&self, uid: i64) -> Option<TensorDesc> {
        let tensor = self.tensor(uid).ok()?.clone();
        let strides = self.virtual_strides.get(&uid).filter(|_| tensor.is_virtual);
        Some(TensorDesc { strides: strides.unwrap_or(&tensor.strides).clone(), ..tensor })
    }

    /// The graph, whose virtual tensors lie in memory as those of another one.
    pub(crate) fn laid_as(self, other: &OperationGraph) -> OperationGraph {
        OperationGraph { virtual_strides: other.virtual_strides.clone(), ..self }
    }

    /// The tensor in whose memory a tensor lies: another one's where signals pass it on in place.
    pub(crate) fn memory_of(&self, uid: i64) -> i64 {
        self.memory.get(&uid).copied().unwrap_or(uid)
    }

    /// Operands of concatenations, signals and slices that lie in the output's memory already.
    pub fn in_place(&self) -> impl Iterator<Item = InPlace> + '_ {
        let concatenated = |of: &Operation| {
            let Op::Concatenate(op) = &of.op else { return None };
            let at = op.in_place? as usize;
            let axis = op.axis as usize;
            let (uid, within) = (of.inputs[at], of.outputs[0]);
            let extent = |uid: &i64| find(&self.tensors, *uid).map_or(0, |of| of.dims[axis]);
            let before: i64 = of.inputs[..at].iter().map(extent).sum();
            let output = find(&self.tensors, within)?;
            let elements = before.saturating_mul(output.strides[axis]) as u64;
            let offset_bytes = elements.saturating_mul(output.dtype.bytes() as u64);
            Some(InPlace { uid, within, offset_bytes })
        };
        let whole = |of: &Operation| {
            let same = of.in_same_memory(&self.tensors);
            same.into_iter().map(|(uid, within)| InPlace { uid, within, offset_bytes: 0 })
        };
        let operations = self.operations.iter();
        operations.flat_map(move |of| concatenated(of).into_iter().chain(whole(of)))
    }

    fn is_written(&self, uid: i64) -> bool {
        writes(&self.operations, uid)
    }

    /// The canonical form: uids are indices, names are reduced to identifiers, and what moves
    /// elements is expressed by strides wherever it can be.
    pub fn canonical(&self) -> CanonicalGraph<'_> {
        CanonicalGraph {
            tensors: &self.canonical.tensors,
            operations: &self.canonical.operations,
            uids: &self.canonical.uids,
            offsets: &self.canonical.offsets,
        }
    }

    /// Digest of the canonical form; graphs with equal digests share kernels.
    pub fn form_digest(&self) -> GraphDigest {
        self.digests().form
    }

    /// Digest of the canonical form with uids and names; graphs with equal digests share a plan.
    pub fn digest(&self) -> GraphDigest {
        self.digests().whole
    }

    fn digests(&self) -> &Digests {
        self.digests
            .get_or_init(|| Box::new(self.canonical.digests(&self.tensors, &self.operations)))
    }
}

/// Extents, strides, offsets and slices grow; other operations stay.
impl Progression for OperationGraph {
    fn term(first: &OperationGraph, second: &OperationGraph, at: i64) -> Option<OperationGraph> {
        let tensors = Vec::term(&first.tensors, &second.tensors, at)?;
        let operations = Vec::term(&first.operations, &second.operations, at)?;
        let virtual_strides = match first.virtual_strides.is_empty() {
            true => BTreeMap::new(),
            false => strides_of_virtual(&tensors, &operations),
        };
        Some(OperationGraph {
            tensors,
            operations,
            virtual_strides,
            memory: first.memory.clone(),
            canonical: Canonical::term(&first.canonical, &second.canonical, at)?,
            digests: OnceLock::new(),
        })
    }
}

/// Graphs are equal if their canonical forms, uids and names are.
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

impl fmt::Display for OperationGraph {
    /// Prints inputs, operations and outputs, one per line.
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
