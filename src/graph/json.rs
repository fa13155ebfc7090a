//! The JSON form of a graph, as problem files hold it under the key `graph`.
//!
//! Tensors are referred to by name, unnamed ones by `#uid`. Everything that has a default may be
//! left out; a key that is not known is an error.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, NanPropagation, Pointwise, Real};
use crate::graph::operation::Operation;
use crate::graph::{OperationGraph, find};
use crate::tensor::{TensorDesc, packed_strides};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProblemJson {
    graph: GraphJson,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphJson {
    tensors: Vec<TensorJson>,
    operations: Vec<OperationJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorJson {
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationJson {
    pointwise: String,
    inputs: Vec<String>,
    output: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    math: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    propagate_nan: bool,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    alpha1: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    alpha2: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    relu_lower_clip: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    relu_upper_clip: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    relu_lower_clip_slope: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    elu_alpha: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    softplus_beta: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    swish_beta: Option<JsonReal>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    axis: Option<i64>,
}

/// A number that may be infinite, which JSON's numbers can not be: `"inf"` and `"-inf"`.
#[derive(Clone, Copy)]
struct JsonReal(f64);

impl Serialize for JsonReal {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            f64::INFINITY => serializer.serialize_str("inf"),
            f64::NEG_INFINITY => serializer.serialize_str("-inf"),
            number => serializer.serialize_f64(number),
        }
    }
}

impl<'de> Deserialize<'de> for JsonReal {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Text(String),
        }
        let expected = || serde::de::Error::custom("expected a number, \"inf\" or \"-inf\"");
        match Form::deserialize(from).map_err(|_| expected())? {
            Form::Number(number) => Ok(JsonReal(number)),
            Form::Text(text) if text == "inf" => Ok(JsonReal(f64::INFINITY)),
            Form::Text(text) if text == "-inf" => Ok(JsonReal(f64::NEG_INFINITY)),
            Form::Text(_) => Err(expected()),
        }
    }
}

/// A key that is there has a value: null does not stand for the default.
fn present<'de, D, T>(from: D) -> std::result::Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}

fn is_false(value: &bool) -> bool {
    !value
}

impl OperationGraph {
    /// Reads a problem document whose one key is `graph`.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON, with the name for an unknown tensor,
    /// type or mode, and whatever [`OperationGraph::new`] finds.
    pub fn from_json(text: &str) -> Result<Self> {
        let problem: ProblemJson = serde_json::from_str(text)
            .map_err(|error| Error::bad_param(format!("malformed problem: {error}")))?;
        let GraphJson { tensors, operations } = problem.graph;
        let taken: Vec<i64> = tensors.iter().filter_map(|tensor| tensor.uid).collect();
        let mut fresh = (1..).filter(|uid| !taken.contains(uid));
        let tensors = tensors
            .into_iter()
            .map(|tensor| {
                let uid = tensor.uid.or_else(|| fresh.next()).expect("uids do not run out");
                read_tensor(tensor, uid)
            })
            .collect::<Result<Vec<_>>>()?;
        let operations = operations
            .into_iter()
            .map(|operation| read_operation(operation, &tensors))
            .collect::<Result<Vec<_>>>()?;
        OperationGraph::new(tensors, operations)
    }

    /// Writes the document that [`OperationGraph::from_json`] reads.
    pub fn to_json(&self) -> String {
        let graph = GraphJson {
            tensors: self.tensors.iter().map(write_tensor).collect(),
            operations: self.operations.iter().map(|op| write_operation(op, self)).collect(),
        };
        serde_json::to_string_pretty(&ProblemJson { graph }).expect("plain data is JSON")
    }
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

fn write_tensor(tensor: &TensorDesc) -> TensorJson {
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

fn read_operation(json: OperationJson, tensors: &[TensorDesc]) -> Result<Operation> {
    let mode = json.pointwise.parse()?;
    let find = |name: &String| {
        let named = |tensor: &&TensorDesc| match name.strip_prefix('#') {
            Some(uid) => uid.parse() == Ok(tensor.uid),
            None => tensor.name == *name,
        };
        tensors.iter().find(named).map(|tensor| tensor.uid).ok_or_else(|| {
            Error::bad_param(format!("{mode}: no tensor of the graph is named `{name}`"))
        })
    };
    let default = Pointwise::new(mode);
    let real =
        |value: Option<JsonReal>, default: Real| value.map_or(default, |value| Real::new(value.0));
    let math = match json.math.as_deref() {
        None | Some("f32") => Math::F32,
        Some("f64") => Math::F64,
        Some(other) => {
            let text = format!("{mode}: unknown math precision `{other}`: expected f32 or f64");
            return Err(Error::bad_param(text));
        }
    };
    let op = Pointwise {
        mode,
        math,
        nan: match json.propagate_nan {
            true => NanPropagation::Propagate,
            false => NanPropagation::NotPropagate,
        },
        alpha1: real(json.alpha1, default.alpha1),
        alpha2: real(json.alpha2, default.alpha2),
        relu_lower_clip: real(json.relu_lower_clip, default.relu_lower_clip),
        relu_upper_clip: real(json.relu_upper_clip, default.relu_upper_clip),
        relu_lower_clip_slope: real(json.relu_lower_clip_slope, default.relu_lower_clip_slope),
        elu_alpha: real(json.elu_alpha, default.elu_alpha),
        softplus_beta: real(json.softplus_beta, default.softplus_beta),
        swish_beta: real(json.swish_beta, default.swish_beta),
        axis: json.axis.unwrap_or(default.axis),
    };
    let inputs = json.inputs.iter().map(find).collect::<Result<_>>()?;
    Ok(Operation::Pointwise { op, inputs, output: find(&json.output)? })
}

fn write_operation(operation: &Operation, graph: &OperationGraph) -> OperationJson {
    let Operation::Pointwise { op, inputs, output } = operation;
    let name = |uid: i64| match find(&graph.tensors, uid) {
        Some(tensor) if !tensor.name.is_empty() => tensor.name.clone(),
        _ => format!("#{uid}"),
    };
    let default = Pointwise::new(op.mode);
    let real = |value: Real, default: Real| (value != default).then(|| JsonReal(value.get()));
    OperationJson {
        pointwise: op.mode.name().to_owned(),
        inputs: inputs.iter().map(|uid| name(*uid)).collect(),
        output: name(*output),
        math: (op.math == Math::F64).then(|| "f64".to_owned()),
        propagate_nan: op.nan == NanPropagation::Propagate,
        alpha1: real(op.alpha1, default.alpha1),
        alpha2: real(op.alpha2, default.alpha2),
        relu_lower_clip: real(op.relu_lower_clip, default.relu_lower_clip),
        relu_upper_clip: real(op.relu_upper_clip, default.relu_upper_clip),
        relu_lower_clip_slope: real(op.relu_lower_clip_slope, default.relu_lower_clip_slope),
        elu_alpha: real(op.elu_alpha, default.elu_alpha),
        softplus_beta: real(op.softplus_beta, default.softplus_beta),
        swish_beta: real(op.swish_beta, default.swish_beta),
        axis: (op.axis != default.axis).then_some(op.axis),
    }
}
