//! Building a graph step by step, with inferred intermediates.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Pointwise};
use crate::graph::operation::Operation;
use crate::graph::{OperationGraph, shape};
use crate::tensor::TensorDesc;

/// Collects tensors and operations; tensors are referred to by uid.
#[derive(Debug, Clone, Default)]
pub struct GraphBuilder {
    tensors: Vec<TensorDesc>,
    operations: Vec<Operation>,
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

    /// Adds an operation whose result is a virtual tensor: packed, unnamed, in the math precision.
    ///
    /// # Errors
    /// `BadParam` when an operand is unknown or the shapes do not fit.
    pub fn pointwise(&mut self, op: Pointwise, inputs: &[i64]) -> Result<i64> {
        let operands = self.operands(&op, inputs)?;
        let dims = shape::infer(&op, &operands)?;
        let dtype = match op.math {
            Math::F32 => DType::F32,
            Math::F64 => DType::F64,
        };
        let uid = self.fresh_uid();
        let desc = TensorDesc::packed(uid, "", &dims, dtype);
        self.tensors.push(TensorDesc { is_virtual: true, ..desc });
        self.pointwise_into(op, inputs, uid);
        Ok(uid)
    }

    /// Adds an operation that writes a tensor added before.
    pub fn pointwise_into(&mut self, op: Pointwise, inputs: &[i64], output: i64) {
        self.operations.push(Operation::Pointwise { op, inputs: inputs.to_vec(), output });
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

    fn fresh_uid(&self) -> i64 {
        self.tensors.iter().map(|tensor| tensor.uid).max().unwrap_or(0).saturating_add(1)
    }

    fn operands(&self, op: &Pointwise, inputs: &[i64]) -> Result<Vec<&TensorDesc>> {
        let (mode, arity, given) = (op.mode, op.mode.arity(), inputs.len());
        if arity != given {
            return Err(Error::bad_param(format!("{mode}: takes {arity} operands, got {given}")));
        }
        let find = |uid: &i64| {
            self.tensors.iter().find(|tensor| tensor.uid == *uid).ok_or_else(|| {
                Error::bad_param(format!("{mode}: no tensor of the graph has uid {uid}"))
            })
        };
        inputs.iter().map(find).collect()
    }
}
