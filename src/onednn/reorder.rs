//! Graphs that move a tensor from one format or type to another.

use crate::error::Result;
use crate::expr::{Mode, Pointwise};
use crate::graph::{Op, Operation, OperationGraph};
use crate::tensor::TensorDesc;

/// A copy of a tensor, rounded to the type of the other.
pub(super) fn copy(from: TensorDesc, to: TensorDesc) -> Result<OperationGraph> {
    graph(Mode::Identity, vec![from], to)
}

/// The sum of two tensors.
pub(super) fn sum(a: TensorDesc, b: TensorDesc, to: TensorDesc) -> Result<OperationGraph> {
    graph(Mode::Add, vec![a, b], to)
}

fn graph(mode: Mode, from: Vec<TensorDesc>, to: TensorDesc) -> Result<OperationGraph> {
    let inputs = from.iter().map(|tensor| tensor.uid).collect();
    let op = Op::Pointwise(Pointwise::new(mode));
    let operation = Operation { op, inputs, outputs: vec![to.uid] };
    OperationGraph::new([from, vec![to]].concat(), vec![operation])
}
