//! JSON form of recurrent layers: the cell under the key `recurrence`, the layer's attributes
//! beside it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fields::Fields;
use super::keys::{is_false, present};
use super::pointwise::{JsonReal, PointwiseJson, read_program, write_program};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Real;
use crate::graph::{
    Cell, Direction, LayerNormStatistics, MatmulMath, Quantization, Recurrence, RecurrenceSlots,
    RecurrentGemm, RowLayout, Stage,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellJson {
    name: String,
    gates: Vec<String>,
    states: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    row_inputs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unit_inputs: Vec<String>,
    stages: Vec<StageJson>,
    #[serde(default, skip_serializing_if = "is_false")]
    projected: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageJson {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    gemm: Option<GemmJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    statistics: Vec<StatisticsJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    program: Vec<PointwiseJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GemmJson {
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    operand: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    operands: Vec<String>,
    gates: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    transposed: bool,
}

impl From<GemmJson> for RecurrentGemm {
    fn from(json: GemmJson) -> RecurrentGemm {
        let GemmJson { operand, operands, gates, transposed } = json;
        RecurrentGemm { operands: operand.into_iter().chain(operands).collect(), gates, transposed }
    }
}

impl From<RecurrentGemm> for GemmJson {
    fn from(gemm: RecurrentGemm) -> GemmJson {
        let RecurrentGemm { mut operands, gates, transposed } = gemm;
        let operand = if operands.len() == 1 { operands.pop() } else { None };
        GemmJson { operand, operands, gates, transposed }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatisticsJson {
    name: String,
    of: Vec<String>,
    epsilon: JsonReal,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuantizationJson {
    scale: JsonReal,
    #[serde(default)]
    shift: i64,
}

impl Quantization {
    /// Reads the form of problem documents.
    pub(crate) fn from_json(json: Value) -> Result<Quantization> {
        let json = serde_json::from_value(json);
        let QuantizationJson { scale, shift } =
            json.map_err(|error| Error::bad_param(format!("malformed quantization: {error}")))?;
        Ok(Quantization::new(scale.0, shift))
    }
}

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::Reverse, Direction::Both];
const LAYOUTS: [RowLayout; 3] =
    [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed];

pub(super) fn read(fields: &mut Fields) -> Result<Recurrence> {
    let cell: CellJson =
        match serde_json::from_value(fields.value("recurrence").unwrap_or_default()) {
            Ok(cell) => cell,
            Err(error) => return fields.fail(format_args!("malformed cell: {error}")),
        };
    let maths = [MatmulMath::F32, MatmulMath::Tf32, MatmulMath::F64].map(|at| (at.name(), at));
    let math = fields.choice_or("math", &maths, MatmulMath::F32)?;
    let layouts = LAYOUTS.map(|at| (at.name(), at));
    let with = RecurrenceSlots {
        x_bias: fields.has("x_bias"),
        r_bias: fields.has("r_bias"),
        h_initial: fields.has("h_initial"),
        states_initial: fields.has("states_initial"),
        lengths: fields.has("lengths"),
        reset: fields.has("reset"),
        h_final: fields.has("h_final"),
        states_final: fields.has("states_final"),
        history: fields.has("history"),
    };
    let fill = match fields.value("fill").map(serde_json::from_value::<JsonReal>) {
        None => Real::new(0.0),
        Some(Ok(JsonReal(fill))) => Real::new(fill),
        Some(Err(error)) => return fields.fail(format_args!("key `fill`: {error}")),
    };
    Ok(Recurrence {
        cell: Arc::new(read_cell(cell, math.dtype())?),
        math,
        direction: fields.choice_or(
            "direction",
            &DIRECTIONS.map(|at| (at.name(), at)),
            Direction::Forward,
        )?,
        layout: fields.choice_or("layout", &layouts, RowLayout::SequenceMajor)?,
        batch: fields.number("batch")?,
        hidden_size: fields.number("hidden_size")?,
        apart: fields.optional("apart", "true or false", Value::as_bool)?.unwrap_or(false),
        fill,
        with,
        saved: match fields.value("saves").map(serde_json::from_value) {
            None => Vec::new(),
            Some(Ok(names)) => names,
            Some(Err(error)) => return fields.fail(format_args!("key `saves`: {error}")),
        },
        backward: fields.optional("backward", "true or false", Value::as_bool)?.unwrap_or(false),
        quantization: fields.value("quantization").map(Quantization::from_json).transpose()?,
        fast_activations: fields
            .optional("fast_activations", "true or false", Value::as_bool)?
            .unwrap_or(false),
    })
}

impl Cell {
    /// Reads a cell from the form of problem documents; its programs compute in `dtype`.
    pub(crate) fn from_json(json: Value, dtype: DType) -> Result<Cell> {
        let json = serde_json::from_value(json)
            .map_err(|error| Error::bad_param(format!("malformed cell: {error}")))?;
        read_cell(json, dtype)
    }
}

fn read_cell(json: CellJson, dtype: DType) -> Result<Cell> {
    let context = |error: Error| error.context(format_args!("cell {}", json.name));
    let stage = |stage: &StageJson| {
        let gemm = stage.gemm.clone().map(RecurrentGemm::from);
        let statistics =
            |StatisticsJson { name, of, epsilon }: &StatisticsJson| LayerNormStatistics {
                name: name.clone(),
                of: of.clone(),
                epsilon: Real::new(epsilon.0),
            };
        let program = read_program(&stage.program, &stage.outputs, dtype)?;
        Ok(Stage { gemm, statistics: stage.statistics.iter().map(statistics).collect(), program })
    };
    let stages = json.stages.iter().map(stage).collect::<Result<Vec<_>>>().map_err(context)?;
    let CellJson { name, gates, states, parameters, row_inputs, unit_inputs, projected, .. } = json;
    Ok(Cell { name, gates, states, parameters, row_inputs, unit_inputs, stages, projected })
}

/// The attributes of a layer by key.
pub(super) fn write(op: &Recurrence) -> Vec<(&'static str, Value)> {
    let mut keys = vec![("recurrence", json!(write_cell(&op.cell)))];
    let mut named = |key, name: &'static str, default: &'static str| {
        if name != default {
            keys.push((key, json!(name)));
        }
    };
    named("math", op.math.name(), MatmulMath::F32.name());
    named("direction", op.direction.name(), Direction::Forward.name());
    named("layout", op.layout.name(), RowLayout::SequenceMajor.name());
    keys.extend([("batch", json!(op.batch)), ("hidden_size", json!(op.hidden_size))]);
    if op.apart {
        keys.push(("apart", json!(true)));
    }
    if op.fill != Real::new(0.0) {
        keys.push(("fill", json!(JsonReal(op.fill.get()))));
    }
    if !op.saved.is_empty() {
        keys.push(("saves", json!(op.saved)));
    }
    if op.backward {
        keys.push(("backward", json!(true)));
    }
    if let Some(Quantization { scale, shift }) = op.quantization {
        let json = QuantizationJson { scale: JsonReal(scale.get()), shift };
        keys.push(("quantization", json!(json)));
    }
    if op.fast_activations {
        keys.push(("fast_activations", json!(true)));
    }
    keys
}

fn write_cell(cell: &Cell) -> CellJson {
    let stage = |Stage { gemm, statistics, program }: &Stage| StageJson {
        gemm: gemm.clone().map(GemmJson::from),
        statistics: statistics
            .iter()
            .map(|LayerNormStatistics { name, of, epsilon }| StatisticsJson {
                name: name.clone(),
                of: of.clone(),
                epsilon: JsonReal(epsilon.get()),
            })
            .collect(),
        program: write_program(program),
        outputs: program.outputs().iter().map(|value| program.name(*value).to_owned()).collect(),
    };
    let Cell { name, gates, states, parameters, row_inputs, unit_inputs, projected, stages } =
        cell.clone();
    let stages = stages.iter().map(stage).collect();
    CellJson { name, gates, states, parameters, row_inputs, unit_inputs, stages, projected }
}
