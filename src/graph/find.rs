//! Tensor lookup by uid.

use crate::tensor::TensorDesc;

/// Finds a tensor by uid in a slice sorted by uid.
pub(super) fn find(tensors: &[TensorDesc], uid: i64) -> Option<&TensorDesc> {
    tensors.binary_search_by_key(&uid, |tensor| tensor.uid).ok().map(|index| &tensors[index])
}
