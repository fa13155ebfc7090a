//! JSON form of pointwise operations and their attributes.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::keys::{is_false, present, reference, referred};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Instruction, Lines, Math, NanPropagation, Pointwise, Program, Real, Value};
use crate::graph::Operation;
use crate::graph::find::find;
use crate::tensor::TensorDesc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PointwiseJson {
    pointwise: String,
    pub(super) inputs: Vec<String>,
    pub(super) output: String,
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

/// A number that may be infinite, which JSON numbers cannot be: `"inf"` and `"-inf"`.
#[derive(Clone, Copy)]
pub(crate) struct JsonReal(pub(crate) f64);

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

impl PointwiseJson {
    /// Returns the operation without its operands.
    pub(super) fn op(&self) -> Result<Pointwise> {
        let mode = self.pointwise.parse()?;
        let default = Pointwise::new(mode);
        let real = |value: &Option<JsonReal>, default: Real| {
            value.as_ref().map_or(default, |value| Real::new(value.0))
        };
        Ok(Pointwise {
            mode,
            math: read_math(&mode, self.math.as_deref())?,
            nan: match self.propagate_nan {
                true => NanPropagation::Propagate,
                false => NanPropagation::NotPropagate,
            },
            alpha1: real(&self.alpha1, default.alpha1),
            alpha2: real(&self.alpha2, default.alpha2),
            relu_lower_clip: real(&self.relu_lower_clip, default.relu_lower_clip),
            relu_upper_clip: real(&self.relu_upper_clip, default.relu_upper_clip),
            relu_lower_clip_slope: real(&self.relu_lower_clip_slope, default.relu_lower_clip_slope),
            elu_alpha: real(&self.elu_alpha, default.elu_alpha),
            softplus_beta: real(&self.softplus_beta, default.softplus_beta),
            swish_beta: real(&self.swish_beta, default.swish_beta),
            axis: self.axis.unwrap_or(default.axis),
        })
    }

    /// Returns the JSON of an operation on operands with these names and types.
    pub(super) fn of(
        op: &Pointwise,
        (inputs, dtypes): (Vec<String>, Vec<DType>),
        output: String,
    ) -> PointwiseJson {
        let unsaid = op.math(Math::Default).resolved(&dtypes).math;
        let default = Pointwise::new(op.mode);
        let real = |value: Real, default: Real| (value != default).then(|| JsonReal(value.get()));
        PointwiseJson {
            pointwise: op.mode.name().to_owned(),
            inputs,
            output,
            math: op.math.name().filter(|_| op.math != unsaid).map(str::to_owned),
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
}

pub(super) fn read(json: PointwiseJson, tensors: &[TensorDesc]) -> Result<Operation> {
    let op = json.op()?;
    let find = |name: &String| {
        referred(tensors, name).ok_or_else(|| {
            let mode = op.mode;
            Error::bad_param(format!("{mode}: no tensor of the graph is named `{name}`"))
        })
    };
    let inputs = json.inputs.iter().map(find).collect::<Result<Vec<_>>>()?;
    Ok(Operation::pointwise(op, &inputs, find(&json.output)?))
}

/// Reads a program as a list of operations whose operands and results are values, not tensors.
pub(super) fn read_program(
    lines: &[PointwiseJson],
    outputs: &[String],
    dtype: DType,
) -> Result<Program> {
    let mut program = Lines::new(dtype);
    for line in lines {
        let operands: Vec<&str> = line.inputs.iter().map(String::as_str).collect();
        program.line(&line.output, line.op()?, &operands)?;
    }
    program.finish(&outputs.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Writes what [`read_program`] reads; every value of a program has a unique name.
pub(super) fn write_program(program: &Program) -> Vec<PointwiseJson> {
    let name = |value: &Value| program.name(*value).to_owned();
    let line = |line: &Instruction| {
        let operands = line.operands.iter().map(name).collect();
        let dtypes = line.operands.iter().map(|value| program.dtype(*value)).collect();
        PointwiseJson::of(&line.op, (operands, dtypes), line.name.clone())
    };
    program.instructions().iter().map(line).collect()
}

/// Reads `f32`, `f64` or `i32`; the operands determine the default.
pub(super) fn read_math(what: &dyn fmt::Display, text: Option<&str>) -> Result<Math> {
    match text {
        None => Ok(Math::Default),
        Some("f32") => Ok(Math::F32),
        Some("f64") => Ok(Math::F64),
        Some("i32") => Ok(Math::I32),
        Some(other) => Err(Error::bad_param(format!(
            "{what}: unknown math precision `{other}`: expected f32, f64 or i32"
        ))),
    }
}

pub(super) fn write(
    op: &Pointwise,
    operation: &Operation,
    tensors: &[TensorDesc],
) -> PointwiseJson {
    let inputs = operation.inputs.iter().map(|uid| reference(tensors, *uid)).collect();
    let dtype = |uid: &i64| find(tensors, *uid).map_or(DType::F32, |of| of.dtype);
    let dtypes = operation.inputs.iter().map(dtype).collect();
    PointwiseJson::of(op, (inputs, dtypes), reference(tensors, operation.outputs[0]))
}
