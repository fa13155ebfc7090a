//! Building a graph step by step, with inferred intermediates.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Pointwise;
use crate::graph::operation::{Op, Operation};
use crate::graph::{Matmul, OperationGraph, Reduction};
use crate::tensor::TensorDesc;

/// Collects tensors and operations; tensors are referred to by uid.
#[derive(Debug, Clone, Default)]
pub struct GraphBuilder {
    tensors: Vec<TensorDesc>,
    operations: Vec<Operation>,
}

impl OperationGraph {
    /// An empty builder.
    pub fn builder() -> GraphBuilder {
        GraphBuilder::default()
    }
}

impl GraphBuilder {
    /// Adds a tensor as described, under its own uid.
    pub fn tensor(&mut self, tensor: TensorDesc) -> i64 {
        let uid = tensor.uid;
        self.tensors.push(tensor);
        uid
    }

    /// Adds a packed input under a fresh uid.
    pub fn input(&mut self, name: &str, dims: &[i64], dtype: DType) -> i64 {
        let uid = self.fresh_uid();
        self.tensor(TensorDesc::packed(uid, name, dims, dtype))
    }

    /// Adds a scalar that the variant pack passes by value, to be broadcast against `rank`
    /// dimensions.
    pub fn scalar(&mut self, name: &str, rank: usize, dtype: DType) -> i64 {
        let uid = self.fresh_uid();
        let desc = TensorDesc::packed(uid, name, &vec![1; rank], dtype);
        self.tensor(TensorDesc { by_value: true, ..desc })
    }

    /// Adds a pointwise operation whose result is a virtual tensor, as [`GraphBuilder::operation`].
    ///
    /// # Errors
    /// `BadParam` when an operand is unknown or the shapes do not fit.
    pub fn pointwise(&mut self, op: Pointwise, inputs: &[i64]) -> Result<i64> {
        Ok(self.operation(Op::Pointwise(op), inputs)?[0])
    }

    /// Adds a product of matrices whose result is a virtual tensor.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn matmul(&mut self, op: Matmul, a: i64, b: i64) -> Result<i64> {
        Ok(self.operation(Op::Matmul(op), &[a, b])?[0])
    }

    /// Adds a reduction to these dimensions, those of the operand with some of them 1; its result
    /// is a virtual tensor.
    ///
    /// # Errors
    /// As [`GraphBuilder::pointwise`].
    pub fn reduction(&mut self, op: Reduction, x: i64, dims: &[i64]) -> Result<i64> {
        let op = Op::Reduction(op);
        let dtype = math(&op, &self.operands(&op, &[x])?);
        let uid = self.intermediate(dims, dtype);
        self.operation_into(op, &[x], &[uid]);
        Ok(uid)
    }

    /// Adds an operation with its operands in the order of its slots. Its results are virtual
    /// tensors: packed, unnamed, in the math precision.
    ///
    /// # Errors
    /// `BadParam` when an operand is unknown, the shapes do not fit, or the operation is a
    /// reduction, whose operand leaves its result open.
    pub fn operation(&mut self, op: Op, inputs: &[i64]) -> Result<Vec<i64>> {
        let operands = self.operands(&op, inputs)?;
        let results = op.infer(&operands)?.ok_or_else(|| {
            Error::bad_param(format!("{op}: the dimensions of the result must be given"))
        })?;
        let dtype = math(&op, &operands);
        let uids: Vec<i64> = results.iter().map(|dims| self.intermediate(dims, dtype)).collect();
        self.operation_into(op, inputs, &uids);
        Ok(uids)
    }

    /// Adds an operation that writes tensors added before.
    pub fn operation_into(&mut self, op: Op, inputs: &[i64], outputs: &[i64]) {
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        self.operations.push(Operation { op, inputs, outputs });
    }

    /// Adds an operation that writes a tensor added before.
    pub fn pointwise_into(&mut self, op: Pointwise, inputs: &[i64], output: i64) {
        self.operation_into(Op::Pointwise(op), inputs, &[output]);
    }

    /// Gives a tensor a name, a type and storage: it becomes an output.
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

    /// Gives an intermediate a name and the type its values are rounded to.
    pub fn name(&mut self, uid: i64, name: &str, dtype: DType) {
        if let Some(tensor) = self.tensors.iter_mut().find(|tensor| tensor.uid == uid) {
            tensor.name = name.to_owned();
            tensor.dtype = dtype;
        }
    }

    /// Validates what was collected.
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
            self.tensors.iter().find(|tensor| tensor.uid == *uid).ok_or_else(|| {
                let name = op.name();
                Error::bad_param(format!("{name}: no tensor of the graph has uid {uid}"))
            })
        };
        inputs.iter().map(find).collect()
    }
}

/// What an operation computes these operands in.
fn math(op: &Op, operands: &[&TensorDesc]) -> DType {
    let dtypes: Vec<DType> = operands.iter().map(|operand| operand.dtype).collect();
    op.clone().resolved(&dtypes).math()
}
