//! Incremental construction of an operation graph, with inferred intermediate tensors.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Pointwise;
use crate::graph::operation::{Op, Operation};
use crate::graph::{Matmul, OperationGraph, Reduction, Reshape, Rng, Signal, SignalMode};
use crate::tensor::TensorDesc;

/// Collects tensors and operations of a graph; tensors are identified by uid.
#[derive(Debug, Clone, Default)]
pub struct GraphBuilder {
    tensors: Vec<TensorDesc>,
    operations: Vec<Operation>,
}

impl OperationGraph {
    /// Returns an empty builder.
    pub fn builder() -> GraphBuilder {
        GraphBuilder::default()
    }
}

impl GraphBuilder {
    /// Adds a tensor under the uid of its descriptor.
    pub fn tensor(&mut self, tensor: TensorDesc) -> i64 {
        let uid = tensor.uid;
        self.tensors.push(tensor);
        uid
    }

    /// Everything that a graph has.
    pub(super) fn of(graph: &OperationGraph) -> GraphBuilder {
        let (tensors, operations) = (graph.tensors().to_vec(), graph.operations().to_vec());
        GraphBuilder { tensors, operations }
    }

    /// Replaces the descriptor of a tensor.
    pub(super) fn replace(&mut self, with: TensorDesc) {
        let own = self.tensors.iter_mut().find(|tensor| tensor.uid == with.uid);
        *own.expect("the tensor is known") = with;
    }

    pub(crate) fn tensors(&self) -> &[TensorDesc] {
        &self.tensors
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The descriptor of a tensor so far; `None` for an unknown uid.
    pub fn descriptor(&self, uid: i64) -> Option<&TensorDesc> {
        self.tensors.iter().find(|tensor| tensor.uid == uid)
    }

    /// Adds a packed input under a fresh uid.
    pub fn input(&mut self, name: &str, dims: &[i64], dtype: DType) -> i64 {
        let uid = self.fresh_uid();
        self.tensor(TensorDesc::packed(uid, name, dims, dtype))
    }

    /// Adds a scalar that the variant pack passes by value, with `rank` dimensions of extent 1 so
    /// that it broadcasts.
    pub fn scalar(&mut self, name: &str, rank: usize, dtype: DType) -> i64 {
        let uid = self.fresh_uid();
        let desc = TensorDesc::packed(uid, name, &vec![1; rank], dtype);
        self.tensor(TensorDesc { by_value: true, ..desc })
    }

    /// Adds a pointwise operation with a virtual result; see [`GraphBuilder::operation`].
    ///
    /// # Errors
    /// `BadParam` when an operand is unknown or the shapes are incompatible.
    pub fn pointwise(&mut self, op: Pointwise, inputs: &[i64]) -> Result<i64> {
        Ok(self.operation(Op::Pointwise(op), inputs)?[0])
    }

    /// Adds a matrix multiplication with a virtual result.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn matmul(&mut self, op: Matmul, a: i64, b: i64) -> Result<i64> {
        Ok(self.operation(Op::Matmul(op), &[a, b])?[0])
    }

    /// Adds a reduction of `x` to `dims`, which are the dimensions of `x` with the reduced ones 1.
    /// The result is virtual.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn reduction(&mut self, op: Reduction, x: i64, dims: &[i64]) -> Result<i64> {
        self.with_dims(Op::Reduction(op), &[x], dims)
    }

    /// Adds a reshape of `x` to `dims`, with a virtual result.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn reshape(&mut self, x: i64, dims: &[i64]) -> Result<i64> {
        self.with_dims(Op::Reshape(Reshape), &[x], dims)
    }

    /// Adds an operation whose virtual result has these dimensions.
    pub(super) fn with_dims(&mut self, op: Op, inputs: &[i64], dims: &[i64]) -> Result<i64> {
        let dtype = result_type(&op, &self.operands(&op, inputs)?);
        let uid = self.intermediate(dims, dtype);
        self.operation_into(op, inputs, &[uid]);
        Ok(uid)
    }

    /// Adds a tensor of random numbers of these dimensions; `inputs` are the seed, if it is a
    /// tensor, and the offset. The result is virtual.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn rng(&mut self, op: Rng, inputs: &[i64], dims: &[i64]) -> Result<i64> {
        self.with_dims(Op::Rng(op), inputs, dims)
    }

    /// Adds a signal on `flag`, a tensor in memory, that comes after what computes `x`. Returns the
    /// signal's result, a virtual tensor; `x` where the signal has none.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn signal(&mut self, op: Signal, flag: i64, x: i64) -> Result<i64> {
        let inputs = match op.mode {
            SignalMode::Set => vec![x],
            SignalMode::Wait => vec![flag, x],
        };
        let op = Op::Signal(op);
        let operands = self.operands(&op, &inputs)?;
        let (dims, dtype) = (operands[inputs.len() - 1].dims.clone(), result_type(&op, &operands));
        let slots = op.slots().outputs;
        let outputs = slots.iter().map(|slot| match *slot {
            "flag" => flag,
            _ => self.intermediate(&dims, dtype),
        });
        let outputs: Vec<i64> = outputs.collect();
        self.operation_into(op, &inputs, &outputs);
        Ok(if slots.contains(&"y") { outputs[outputs.len() - 1] } else { x })
    }

    /// Adds an operation; `inputs` are in the order of its [slots](Op::slots). The results are
    /// virtual tensors: packed, unnamed, in the math precision; those of an operation that only
    /// moves elements in the type of its operands.
    ///
    /// # Errors
    /// `BadParam` when an operand is unknown, the shapes are incompatible, or the operation is a
    /// reduction, a reshape or random numbers, whose result shape cannot be inferred.
    pub fn operation(&mut self, op: Op, inputs: &[i64]) -> Result<Vec<i64>> {
        let operands = self.operands(&op, inputs)?;
        let results = op.infer(&operands)?.ok_or_else(|| {
            Error::bad_param(format!("{op}: the dimensions of the result must be given"))
        })?;
        let dtype = result_type(&op, &operands);
        let uids: Vec<i64> = results.iter().map(|dims| self.intermediate(dims, dtype)).collect();
        self.operation_into(op, inputs, &uids);
        Ok(uids)
    }

    /// Adds an operation that writes existing tensors.
    pub fn operation_into(&mut self, op: Op, inputs: &[i64], outputs: &[i64]) {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        self.operations.push(Operation { op, inputs, outputs });
    }

    /// Adds a pointwise operation that writes an existing tensor.
    pub fn pointwise_into(&mut self, op: Pointwise, inputs: &[i64], output: i64) {
        self.operation_into(Op::Pointwise(op), inputs, &[output]);
    }

    /// Turns a tensor into an output: gives it a name, a type and storage.
    ///
    /// An unknown uid is reported by [`GraphBuilder::build`].
    pub fn output(&mut self, uid: i64, name: &str, dtype: DType) {
        match self.tensors.iter_mut().find(|tensor| tensor.uid == uid) {
            Some(tensor) => {
                tensor.name = name.to_owned();
                tensor.dtype = dtype;
                tensor.is_virtual = false;
            }
            None => {
                self.tensor(TensorDesc::packed(uid, name, &[1], dtype));
            }
        }
    }

    /// Names an intermediate and sets the type its values are rounded to.
    pub fn name(&mut self, uid: i64, name: &str, dtype: DType) {
        if let Some(tensor) = self.tensors.iter_mut().find(|tensor| tensor.uid == uid) {
            tensor.name = name.to_owned();
            tensor.dtype = dtype;
        }
    }

    /// Validates the graph and returns it.
    ///
    /// # Errors
    /// As [`OperationGraph::new`].
    pub fn build(self) -> Result<OperationGraph> {
        OperationGraph::new(self.tensors, self.operations)
    }

    pub(crate) fn fresh_uid(&self) -> i64 {
        let last = self.tensors.iter().map(|tensor| tensor.uid).max().unwrap_or(0);
        let is_free = |uid: &i64| self.tensors.iter().all(|tensor| tensor.uid != *uid);
        let free = || (1..).find(is_free).expect("there are more numbers than tensors");
        last.checked_add(1).unwrap_or_else(free)
    }

    fn intermediate(&mut self, dims: &[i64], dtype: DType) -> i64 {
        let uid = self.fresh_uid();
        let desc = TensorDesc::packed(uid, "", dims, dtype);
        self.tensors.push(TensorDesc { is_virtual: true, ..desc });
        uid
    }

    fn operands(&self, op: &Op, inputs: &[i64]) -> Result<Vec<&TensorDesc>> {
        op.check_arity(inputs.len())?;
        let find = |uid: &i64| {
            self.descriptor(*uid).ok_or_else(|| {
                let name = op.name();
                Error::bad_param(format!("{name}: no tensor of the graph has uid {uid}"))
            })
        };
        inputs.iter().map(find).collect()
    }
}

/// The type of the operation's intermediate results.
fn result_type(op: &Op, operands: &[&TensorDesc]) -> DType {
    let dtypes: Vec<DType> = operands.iter().map(|operand| operand.dtype).collect();
    op.clone().resolved(&dtypes).result_type(&dtypes)
}
