//! Deserialization of keys shared by all operations.

use serde::Deserialize;

use crate::graph::find::find;
use crate::tensor::TensorDesc;

/// Rejects null: a key that is present must have a value.
pub(super) fn present<'de, D, T>(from: D) -> std::result::Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

/// Whether a flag has its default, `false`.
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

/// Reference to a tensor: its name, or `#uid` if it is unnamed. `tensors` are sorted by uid.
pub(crate) fn reference(tensors: &[TensorDesc], uid: i64) -> String {
    match find(tensors, uid) {
        Some(tensor) if !tensor.name.is_empty() => tensor.name.clone(),
        _ => format!("#{uid}"),
    }
}

/// Finds the tensor that an operation refers to by name or `#uid`.
pub(crate) fn referred(tensors: &[TensorDesc], name: &str) -> Option<i64> {
    let named = |tensor: &&TensorDesc| match name.strip_prefix('#') {
        Some(uid) => uid.parse() == Ok(tensor.uid),
        None => tensor.name == *name,
    };
    tensors.iter().find(named).map(|tensor| tensor.uid)
}
