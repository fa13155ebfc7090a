//! Tensors by uid, and who writes them.

use crate::graph::operation::Operation;
use crate::tensor::TensorDesc;

/// Whether an operation writes a tensor.
pub(super) fn writes(operations: &[Operation], uid: i64) -> bool {
    operations.iter().any(|operation| operation.outputs.contains(&uid))
}

/// The tensor of a uid, among tensors sorted by uid.
pub(super) fn find(tensors: &[TensorDesc], uid: i64) -> Option<&TensorDesc> {
    tensors.binary_search_by_key(&uid, |tensor| tensor.uid).ok().map(|index| &tensors[index])
}
