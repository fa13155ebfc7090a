//! JSON form of pointwise loops: the program under the key `pointwise_loop`, with the names of its
//! inputs and outputs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::fields::Fields;
use super::keys::{is_false, present};
use super::pointwise::{PointwiseJson, write_program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Program, Value};
use crate::graph::{Op, PointwiseLoop};
use crate::tensor::TensorDesc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopJson {
    states: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    iterated: Vec<Ordered>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    captured: Vec<String>,
    operations: Vec<PointwiseJson>,
    /// Of values that are not f32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    types: Vec<Typed>,
    /// The next value of each state.
    next: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stacked: Vec<Ordered>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
}

/// A value with its type.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    value: String,
    dtype: String,
}

/// A value with the order of its elements.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ordered {
    value: String,
    #[serde(default, skip_serializing_if = "is_false")]
    reverse: bool,
}

pub(super) fn read(fields: &mut Fields, _tensors: &[TensorDesc]) -> Result<Op> {
    let json = fields.value(fields.kind).unwrap_or_default();
    let json: LoopJson = match serde_json::from_value(json) {
        Ok(json) => json,
        Err(error) => return fields.fail(format_args!("malformed loop: {error}")),
    };
    let trips_max = fields.optional("trips_max", "a whole number", Json::as_i64)?.unwrap_or(0);
    let program = program(&json).map_err(|error| error.context(fields.kind))?;
    Ok(Op::PointwiseLoop(PointwiseLoop {
        program: Arc::new(program),
        states: json.states.len(),
        iterated: json.iterated.iter().map(|of| of.reverse).collect(),
        captured: json.captured.len(),
        last: (0..json.states.len()).map(|at| fields.has(&format!("last{at}"))).collect(),
        stacked: json.stacked.iter().map(|of| of.reverse).collect(),
        count: fields.has("count"),
        condition: json.condition.is_some(),
        trips_max,
    }))
}

fn program(json: &LoopJson) -> Result<Program> {
    let dtype = |name: &str| {
        let typed = json.types.iter().find(|of| of.value == name);
        typed.map_or(Ok(DType::F32), |of| of.dtype.parse())
    };
    let mut program = Program::new();
    let mut values: Vec<(&str, Value)> = Vec::new();
    let iterated = json.iterated.iter().map(|of| &of.value);
    for name in json.states.iter().chain(iterated).chain(&json.captured) {
        values.push((name.as_str(), program.input(name, dtype(name)?)));
    }
    let find = |values: &[(&str, Value)], name: &str| {
        let found = values.iter().rev().find(|(known, _)| *known == name);
        let unknown = || Error::bad_param(format!("no value is named `{name}`"));
        found.map(|(_, value)| *value).ok_or_else(unknown)
    };
    for operation in &json.operations {
        let operands = operation.inputs.iter().map(|name| find(&values, name));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let name = operation.output.as_str();
        values.push((name, program.push(name, operation.op()?, &operands, dtype(name)?)?));
    }
    let stacked = json.stacked.iter().map(|of| &of.value);
    for name in json.next.iter().chain(stacked).chain(&json.condition) {
        program.output(find(&values, name)?);
    }
    Ok(program)
}

/// The attributes of a loop by key.
pub(super) fn write(op: &PointwiseLoop) -> Vec<(&'static str, Json)> {
    let program = &*op.program;
    let input = |at: usize| program.inputs()[at].name.clone();
    let output = |at: usize| program.name(program.outputs()[at]).to_owned();
    let ordered = |(value, reverse): (String, &bool)| Ordered { value, reverse: *reverse };
    let first_captured = op.states + op.iterated.len();
    let all = (0..program.inputs().len()).map(Value::Input);
    let all = all.chain((0..program.instructions().len()).map(Value::Result));
    let types = all.filter(|value| program.dtype(*value) != DType::F32);
    let json = LoopJson {
        states: (0..op.states).map(input).collect(),
        iterated: (op.states..first_captured).map(input).zip(&op.iterated).map(ordered).collect(),
        captured: (first_captured..first_captured + op.captured).map(input).collect(),
        operations: write_program(program),
        types: types
            .map(|value| Typed {
                value: program.name(value).to_owned(),
                dtype: program.dtype(value).to_string(),
            })
            .collect(),
        next: (0..op.states).map(output).collect(),
        stacked: (op.states..).map(output).zip(&op.stacked).map(ordered).collect(),
        condition: op.condition.then(|| output(op.states + op.stacked.len())),
    };
    let mut keys = vec![("pointwise_loop", json!(json))];
    if op.trips_max != 0 {
        keys.push(("trips_max", json!(op.trips_max)));
    }
    keys
}
