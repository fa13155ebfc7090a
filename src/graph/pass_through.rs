//! Which tensors are in the same memory as others: what signals pass on in place, and tensors that
//! slices are written to.

use std::collections::BTreeMap;

use crate::graph::find::find;
use crate::graph::operation::{Op, Operation};
use crate::graph::signal::{PassThrough, Signal};
use crate::tensor::TensorDesc;

impl Operation {
    /// The operand and the result of a signal that passes one on.
    pub(super) fn passed(&self) -> Option<(&Signal, i64, i64)> {
        match &self.op {
            Op::Signal(op) if op.pass != PassThrough::Nothing => {
                Some((op, *self.inputs.last()?, *self.outputs.last()?))
            }
            _ => None,
        }
    }

    /// Operands that are in the same memory as a result, with that.
    pub(super) fn in_same_memory(&self, tensors: &[TensorDesc]) -> Vec<(i64, i64)> {
        let tensor = |uid: i64| find(tensors, uid).expect("operations were checked");
        match (&self.op, self.passed()) {
            (Op::DynamicSlice(op), _) => {
                let copied = op.copied(&self.inputs, &self.outputs);
                copied.filter_map(|of| Some((of.before?, of.y))).collect()
            }
            (_, Some((op, x, y))) if op.is_shared(tensor(x), tensor(y)) => vec![(x, y)],
            _ => Vec::new(),
        }
    }
}

/// Decides which signals copy, and returns the tensor in whose memory each tensor lies that signals
/// pass on in place; a tensor that is left out has its own. `operations` are in topological order.
pub(super) fn decided(tensors: &[TensorDesc], operations: &mut [Operation]) -> BTreeMap<i64, i64> {
    let tensor = |uid: i64| find(tensors, uid).expect("the operations were checked");
    let mut memory: BTreeMap<i64, i64> = BTreeMap::new();
    for operation in operations {
        let Some((op, x, y)) = operation.passed() else { continue };
        let shared = op.is_shared(tensor(x), tensor(y));
        let x = memory.get(&x).copied().unwrap_or(x);
        let apart = !tensor(x).is_virtual && !tensor(y).is_virtual;
        let pass = match op.pass {
            PassThrough::Default | PassThrough::InPlace if !apart || shared => PassThrough::InPlace,
            PassThrough::Default | PassThrough::InPlace => PassThrough::Copy,
            decided => decided,
        };
        if pass == PassThrough::InPlace && !apart {
            let [kept, gone] = if tensor(y).is_virtual { [x, y] } else { [y, x] };
            memory.values_mut().filter(|of| **of == gone).for_each(|of| *of = kept);
            memory.insert(gone, kept);
        }
        operation.op = Op::Signal(Signal { pass, ..*op });
    }
    memory
}
