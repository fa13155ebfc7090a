//! JSON form of resident loops: the stages under the key `resident_loop`, whose values have
//! numbers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::fields::Fields;
use super::keys::{is_false, present};
use super::pointwise::{PointwiseJson, write_program};
use super::program::{self, Typed};
use crate::error::Result;
use crate::expr::{Program, Value};
use crate::graph::{LoopFold, LoopFrame, LoopStage, LoopView, Op, ResidentLoop};
use crate::tensor::TensorDesc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopJson {
    states: usize,
    /// For each iterated tensor whether it is read from the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    iterated: Vec<bool>,
    #[serde(default)]
    captured: usize,
    stages: Vec<StageJson>,
    /// The next value of each state.
    next: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stacked: Vec<StackedJson>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    condition: Option<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StackedJson {
    value: usize,
    #[serde(default, skip_serializing_if = "is_false")]
    reverse: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageJson {
    extents: Vec<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    folds: Vec<FoldJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    operands: Vec<ViewJson>,
    program: ProgramJson,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FoldJson {
    op: String,
    extents: Vec<i64>,
    operands: Vec<ViewJson>,
    term: ProgramJson,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewJson {
    value: usize,
    #[serde(default)]
    first: i64,
    strides: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramJson {
    inputs: Vec<String>,
    operations: Vec<PointwiseJson>,
    /// Of values that are not f32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    types: Vec<Typed>,
    outputs: Vec<String>,
}

pub(super) fn read(fields: &mut Fields, _tensors: &[TensorDesc]) -> Result<Op> {
    let json = fields.value(fields.kind).unwrap_or_default();
    let json: LoopJson = match serde_json::from_value(json) {
        Ok(json) => json,
        Err(error) => return fields.fail(format_args!("malformed loop: {error}")),
    };
    let trips_max = fields.optional("trips_max", "a whole number", Json::as_i64)?.unwrap_or(0);
    let stages = json.stages.iter().map(StageJson::read).collect::<Result<Vec<_>>>();
    let yields = json.next.iter().copied().chain(json.stacked.iter().map(|of| of.value));
    Ok(Op::ResidentLoop(ResidentLoop {
        stages: stages.map_err(|error| error.context(fields.kind))?,
        yields: yields.chain(json.condition).collect(),
        frame: LoopFrame {
            states: json.states,
            iterated: json.iterated,
            captured: json.captured,
            last: (0..json.states).map(|at| fields.has(&format!("last{at}"))).collect(),
            stacked: json.stacked.iter().map(|of| of.reverse).collect(),
            count: fields.has("count"),
            condition: json.condition.is_some(),
            trips_max,
        },
    }))
}

/// The attributes of a loop by key.
pub(super) fn write(op: &ResidentLoop) -> Vec<(&'static str, Json)> {
    let ResidentLoop { stages, yields, frame } = op;
    let (next, rest) = yields.split_at(frame.states.min(yields.len()));
    let stacked = rest.iter().zip(&frame.stacked);
    let json = LoopJson {
        states: frame.states,
        iterated: frame.iterated.clone(),
        captured: frame.captured,
        stages: stages.iter().map(StageJson::of).collect(),
        next: next.to_vec(),
        stacked: stacked
            .map(|(value, reverse)| StackedJson { value: *value, reverse: *reverse })
            .collect(),
        condition: yields.last().filter(|_| frame.condition).copied(),
    };
    let mut keys = vec![("resident_loop", json!(json))];
    if frame.trips_max != 0 {
        keys.push(("trips_max", json!(frame.trips_max)));
    }
    keys
}

impl StageJson {
    fn of(stage: &LoopStage) -> StageJson {
        StageJson {
            extents: stage.extents.clone(),
            folds: stage.folds.iter().map(FoldJson::of).collect(),
            operands: stage.operands.iter().map(ViewJson::of).collect(),
            program: ProgramJson::of(&stage.program),
        }
    }

    fn read(&self) -> Result<LoopStage> {
        Ok(LoopStage {
            extents: self.extents.clone(),
            folds: self.folds.iter().map(FoldJson::read).collect::<Result<_>>()?,
            operands: self.operands.iter().map(ViewJson::read).collect(),
            program: self.program.read()?,
        })
    }
}

impl FoldJson {
    fn of(fold: &LoopFold) -> FoldJson {
        FoldJson {
            op: fold.op.name().to_owned(),
            extents: fold.extents.clone(),
            operands: fold.operands.iter().map(ViewJson::of).collect(),
            term: ProgramJson::of(&fold.term),
        }
    }

    fn read(&self) -> Result<LoopFold> {
        Ok(LoopFold {
            op: self.op.parse()?,
            extents: self.extents.clone(),
            operands: self.operands.iter().map(ViewJson::read).collect(),
            term: self.term.read()?,
        })
    }
}

impl ViewJson {
    fn of(view: &LoopView) -> ViewJson {
        let LoopView { value, first, strides } = view;
        ViewJson { value: *value, first: *first, strides: strides.clone() }
    }

    fn read(&self) -> LoopView {
        let ViewJson { value, first, strides } = self;
        LoopView { value: *value, first: *first, strides: strides.clone() }
    }
}

impl ProgramJson {
    fn of(program: &Program) -> ProgramJson {
        let output = |value: &Value| program.name(*value).to_owned();
        ProgramJson {
            inputs: program.inputs().iter().map(|input| input.name.clone()).collect(),
            operations: write_program(program),
            types: program::types(program),
            outputs: program.outputs().iter().map(output).collect(),
        }
    }

    fn read(&self) -> Result<Arc<Program>> {
        let ProgramJson { inputs, operations, types, outputs } = self;
        program::read(inputs.iter(), operations, types, outputs.iter()).map(Arc::new)
    }
}
