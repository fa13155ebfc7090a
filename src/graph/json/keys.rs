//! What keys of documents may hold, whatever the operation.

use serde::Deserialize;

use crate::tensor::TensorDesc;

/// A key that is there has a value: null does not stand for the default.
pub(super) fn present<'de, D, T>(from: D) -> std::result::Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

/// Whether a flag has its default.
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

/// The tensor that an operation calls so.
pub(super) fn referred(tensors: &[TensorDesc], name: &str) -> Option<i64> {
    let named = |tensor: &&TensorDesc| match name.strip_prefix('#') {
        Some(uid) => uid.parse() == Ok(tensor.uid),
        None => tensor.name == *name,
    };
    tensors.iter().find(named).map(|tensor| tensor.uid)
}
