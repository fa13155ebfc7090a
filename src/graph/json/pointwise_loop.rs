//! JSON form of pointwise loops: the program under the key `pointwise_loop`, with the names of its
//! inputs and outputs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::fields::Fields;
use super::keys::{is_false, present};
use super::pointwise::{PointwiseJson, write_program};
use super::program::{self, Typed};
use crate::error::Result;
use crate::expr::Program;
use crate::graph::{LoopFrame, Op, PointwiseLoop};
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
        frame: LoopFrame {
            states: json.states.len(),
            iterated: json.iterated.iter().map(|of| of.reverse).collect(),
            captured: json.captured.len(),
            last: (0..json.states.len()).map(|at| fields.has(&format!("last{at}"))).collect(),
            stacked: json.stacked.iter().map(|of| of.reverse).collect(),
            count: fields.has("count"),
            condition: json.condition.is_some(),
            trips_max,
        },
    }))
}

fn program(json: &LoopJson) -> Result<Program> {
    fn of(ordered: &[Ordered]) -> impl Iterator<Item = &String> {
        ordered.iter().map(|of| &of.value)
    }
    let inputs = json.states.iter().chain(of(&json.iterated)).chain(&json.captured);
    let outputs = json.next.iter().chain(of(&json.stacked)).chain(&json.condition);
    program::read(inputs, &json.operations, &json.types, outputs)
}

/// The attributes of a loop by key.
pub(super) fn write(op: &PointwiseLoop) -> Vec<(&'static str, Json)> {
    let program = &*op.program;
    let input = |at: usize| program.inputs()[at].name.clone();
    let output = |at: usize| program.name(program.outputs()[at]).to_owned();
    let ordered = |(value, reverse): (String, &bool)| Ordered { value, reverse: *reverse };
    let first_captured = op.frame.states + op.frame.iterated.len();
    let json = LoopJson {
        states: (0..op.frame.states).map(input).collect(),
        iterated: (op.frame.states..first_captured)
            .map(input)
            .zip(&op.frame.iterated)
            .map(ordered)
            .collect(),
        captured: (first_captured..first_captured + op.frame.captured).map(input).collect(),
        operations: write_program(program),
        types: program::types(program),
        next: (0..op.frame.states).map(output).collect(),
        stacked: (op.frame.states..).map(output).zip(&op.frame.stacked).map(ordered).collect(),
        condition: op.frame.condition.then(|| output(op.frame.states + op.frame.stacked.len())),
    };
    let mut keys = vec![("pointwise_loop", json!(json))];
    if op.frame.trips_max != 0 {
        keys.push(("trips_max", json!(op.frame.trips_max)));
    }
    keys
}
