//! Uids and names that no tensor of a graph has.

use crate::graph::OperationGraph;
use crate::tensor::TensorDesc;

/// The uid of this number among those that no tensor of a graph has: those behind the last one,
/// then those in front of it.
pub(super) fn uid(graph: &OperationGraph, number: i64) -> Option<i64> {
    let last = graph.tensors().iter().map(|own| own.uid).max()?;
    let behind = i64::MAX.saturating_sub(last);
    match number < behind {
        true => Some(last + 1 + number),
        false => {
            let is_free = |uid: &i64| graph.tensors().iter().all(|own| own.uid != *uid);
            (1..).filter(is_free).nth((number - behind) as usize)
        }
    }
}

/// A name, or one that begins with it.
pub(super) fn name(graph: &OperationGraph, mut name: String) -> String {
    while graph.tensors().iter().any(|own| own.name == name) {
        name.push('_');
    }
    name
}

/// What a tensor is called in names of others.
pub(super) fn called(graph: &OperationGraph, tensor: &TensorDesc) -> String {
    match tensor.name.is_empty() {
        true => name(graph, format!("t{}", tensor.uid)),
        false => tensor.name.clone(),
    }
}
