//! JSON form of a graph, the value of the key `graph` of a problem file.
//!
//! Tensors are referred to by name, unnamed ones by `#uid`. Keys with a default may be omitted;
//! unknown keys are an error.

mod attention;
mod convolution;
mod ctc;
mod dynamic_slice;
mod fields;
mod keys;
mod operation;
mod pointwise;
mod pointwise_loop;
mod program;
mod recurrence;
mod resample;
mod resident_loop;
mod rng;
mod signal;
mod views;

use keys::{is_false, present};
pub(crate) use keys::{reference, referred};
pub(crate) use operation::{read as read_operation, write as write_operation};
pub(crate) use pointwise::JsonReal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::OperationGraph;
use crate::tensor::{TensorDesc, packed_strides};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProblemJson<O> {
    graph: GraphJson<O>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphJson<O> {
    tensors: Vec<TensorJson>,
    operations: Vec<O>,
}

/// A tensor in a document.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TensorJson {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    uid: Option<i64>,
    dtype: String,
    dims: Vec<i64>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    strides: Option<Vec<i64>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    alignment: Option<usize>,
    #[serde(default, rename = "virtual", skip_serializing_if = "is_false")]
    is_virtual: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    by_value: bool,
}

impl OperationGraph {
    /// Reads a problem document whose only key is `graph`.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON, with the name for an unknown tensor,
    /// type or mode, and as [`OperationGraph::new`].
    pub fn from_json(text: &str) -> Result<Self> {
        let problem: ProblemJson<Map<String, Value>> = serde_json::from_str(text)
            .map_err(|error| Error::bad_param(format!("malformed problem: {error}")))?;
        let GraphJson { tensors, operations } = problem.graph;
        let tensors = read_tensors(tensors)?;
        let operations = operations
            .into_iter()
            .map(|operation| operation::read(operation, &tensors))
            .collect::<Result<Vec<_>>>()?;
        OperationGraph::new(tensors, operations)
    }

    /// Writes the document that [`OperationGraph::from_json`] reads.
    pub fn to_json(&self) -> String {
        let graph = GraphJson {
            tensors: self.tensors.iter().map(write_tensor).collect(),
            operations: self
                .operations
                .iter()
                .map(|of| operation::write(of, &self.tensors))
                .collect(),
        };
        serde_json::to_string_pretty(&ProblemJson { graph }).expect("plain data is JSON")
    }
}

impl OperationGraph {
    /// Reference to a tensor in documents: its name, or `#uid` if it is unnamed.
    pub(crate) fn reference(&self, uid: i64) -> String {
        keys::reference(&self.tensors, uid)
    }

    /// Resolves a reference to a uid.
    pub(crate) fn referred(&self, name: &str) -> Option<i64> {
        referred(&self.tensors, name)
    }
}

/// Reads the tensors of a document; those without a uid get one that is free.
pub(crate) fn read_tensors(tensors: Vec<TensorJson>) -> Result<Vec<TensorDesc>> {
    let taken: Vec<i64> = tensors.iter().filter_map(|tensor| tensor.uid).collect();
    let mut fresh = (1..).filter(|uid| !taken.contains(uid));
    let tensors = tensors.into_iter().map(|tensor| {
        let uid = tensor.uid.or_else(|| fresh.next()).expect("uids do not run out");
        read_tensor(tensor, uid)
    });
    tensors.collect()
}

fn read_tensor(json: TensorJson, uid: i64) -> Result<TensorDesc> {
    let dtype: DType = json
        .dtype
        .parse()
        .map_err(|error: Error| error.context(format_args!("tensor `{}`", json.name)))?;
    Ok(TensorDesc {
        uid,
        strides: json.strides.unwrap_or_else(|| packed_strides(&json.dims)),
        dims: json.dims,
        name: json.name,
        dtype,
        alignment: json.alignment.unwrap_or(16),
        is_virtual: json.is_virtual,
        by_value: json.by_value,
    })
}

pub(crate) fn write_tensor(tensor: &TensorDesc) -> TensorJson {
    let packed = tensor.strides == packed_strides(&tensor.dims);
    TensorJson {
        name: tensor.name.clone(),
        uid: Some(tensor.uid),
        dtype: tensor.dtype.name().to_owned(),
        dims: tensor.dims.clone(),
        strides: (!packed).then(|| tensor.strides.clone()),
        alignment: (tensor.alignment != 16).then_some(tensor.alignment),
        is_virtual: tensor.is_virtual,
        by_value: tensor.by_value,
    }
}
