//! JSON form of attention: its attributes, and programs over scores as lists of pointwise
//! operations.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::fields::Fields;
use super::keys::{reference, referred};
use super::pointwise::PointwiseJson;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Program, Real, Value};
use crate::graph::attention::{COORDINATES, SCORE, captured_slots, normalised};
use crate::graph::{
    Attention, AttentionBackward, AttentionShape, Band, Diagonal, MatmulMath, Op, Operation,
    ScoreInput, Softcap, score_inputs,
};
use crate::tensor::TensorDesc;

const DIAGONALS: [(&str, Diagonal); 2] =
    [("top_left", Diagonal::TopLeft), ("bottom_right", Diagonal::BottomRight)];

/// A program: captured tensors, operations in order, and the name of its result.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramJson {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    captured: Vec<String>,
    operations: Vec<PointwiseJson>,
    output: String,
}

/// Reads the attributes. Names of captured tensors are stored under the keys of their slots.
pub(super) fn read(fields: &mut Fields, tensors: &[TensorDesc]) -> Result<Attention> {
    let maths = [MatmulMath::F32, MatmulMath::Tf32, MatmulMath::F64];
    let math = fields.choice(fields.kind, &maths.map(|math| (math.name(), math)))?;
    let cap = real(fields, "softcap")?;
    let last = fields.optional("softcap_last", "true or false", Json::as_bool)?.unwrap_or(false);
    if last && cap.is_none() {
        return fields.fail("key `softcap_last` without `softcap`");
    }
    let diagonal = fields.choice_or("diagonal", &DIAGONALS, Diagonal::TopLeft)?;
    let mut keys = |key: &str| fields.optional(key, "a number of keys", Json::as_i64);
    let band = Band { diagonal, left: keys("left")?, right: keys("right")? };
    let dropout = real(fields, "dropout")?;
    if let Some(key) = ["seed", "offset"].into_iter().find(|key| fields.has(key))
        && dropout.is_none()
    {
        return fields.fail(format_args!("key `{key}` without `dropout`"));
    }
    let mut op = Attention {
        scale: real(fields, "scale")?.map(Real::new),
        softcap: cap.map(|cap| Softcap { cap: Real::new(cap), last }),
        band,
        paged: fields.has("page_table"),
        queries_max: fields.optional("queries_max", "a number of queries", Json::as_i64)?,
        keys_max: fields.optional("keys_max", "a number of keys", Json::as_i64)?,
        intervals: fields.has("key_begin") || fields.has("key_end"),
        descale_q: fields.has("descale_q"),
        descale_k: fields.has("descale_k"),
        descale_v: fields.has("descale_v"),
        bias: fields.has("bias"),
        slopes: fields.has("slopes"),
        mask: fields.has("mask"),
        sinks: fields.has("sinks"),
        query_lengths: fields.has("query_lengths"),
        key_lengths: fields.has("key_lengths"),
        dropout: dropout.map(Real::new),
        statistics: fields.has("lse"),
        ..Attention::new(math)
    };
    for name in ["score", "keep"] {
        let Some(json) = fields.value(name) else { continue };
        let json: ProgramJson = serde_json::from_value(json)
            .map_err(|error| Error::bad_param(format!("attention: malformed {name}: {error}")))?;
        let shape = shape(&op, fields, tensors)?;
        let program = program(&json, op.score_dtype(), &shape, tensors)
            .map_err(|error| error.context(format_args!("attention: {name}")))?;
        for (slot, tensor) in captured_slots(name).zip(json.captured) {
            fields.put(slot, tensor);
        }
        *(if name == "score" { &mut op.score } else { &mut op.keep }) = Some(program.into());
    }
    Ok(op)
}

/// Reads the attributes of gradients: those of the forward operation, and which there are.
pub(super) fn read_backward(
    fields: &mut Fields,
    tensors: &[TensorDesc],
) -> Result<AttentionBackward> {
    let forward = read(fields, tensors)?;
    Ok(AttentionBackward {
        dlse: fields.has("dlse"),
        dbias: fields.has("dbias"),
        dslopes: fields.has("dslopes"),
        dsinks: fields.has("dsinks"),
        dscore: std::array::from_fn(|at| fields.has(&format!("dscore_{at}"))),
        ..AttentionBackward::new(forward)
    })
}

fn real(fields: &mut Fields, key: &str) -> Result<Option<f64>> {
    fields.optional(key, "a number", Json::as_f64)
}

/// Derives the extents from the operands that have been named.
fn shape(op: &Attention, fields: &Fields, tensors: &[TensorDesc]) -> Result<AttentionShape> {
    let operand = |slot: &str| {
        let uid = fields.peek(slot).and_then(|name| referred(tensors, name));
        match tensors.iter().find(|tensor| Some(tensor.uid) == uid) {
            Some(tensor) => Ok(tensor),
            None => fields.fail(format_args!("key `{slot}` names no tensor of the graph")),
        }
    };
    let places = Attention { score: None, keep: None, ..op.clone() };
    let slots = Op::Attention(places.clone()).slots();
    let operands = slots.inputs.iter().map(|slot| operand(slot)).collect::<Result<Vec<_>>>()?;
    places.shape(&operands)
}

fn fail<T>(name: &str, rule: &str) -> Result<T> {
    Err(Error::bad_param(format!("`{name}` {rule}")))
}

fn program(
    json: &ProgramJson,
    score: DType,
    shape: &AttentionShape,
    tensors: &[TensorDesc],
) -> Result<Program> {
    let mut program = Program::new();
    let mut values = vec![(SCORE.to_owned(), program.input(SCORE, score))];
    for (axis, name) in COORDINATES.into_iter().enumerate() {
        let value = program.index(name, axis, shape.scores()[axis]);
        values.push((name.to_owned(), value));
    }
    for name in &json.captured {
        let uid = referred(tensors, name);
        match tensors.iter().find(|tensor| Some(tensor.uid) == uid) {
            Some(tensor) => values.push((name.clone(), program.input(name, tensor.dtype))),
            None => return fail(name, "is not a tensor of the graph"),
        }
    }
    let value = |values: &[(String, Value)], name: &String| match values
        .iter()
        .find(|(known, _)| known == name)
    {
        Some((_, value)) => Ok(*value),
        None => fail(name, "is neither a coordinate, captured nor a result so far"),
    };
    for operation in &json.operations {
        let name = &operation.output;
        if values.iter().any(|(known, _)| known == name) {
            return fail(name, "is given twice");
        }
        let operands = operation.inputs.iter().map(|name| value(&values, name));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let result = program.push(name.as_str(), operation.op()?, &operands, score)?;
        values.push((name.clone(), result));
    }
    program.output(value(&values, &json.output)?);
    Ok(program)
}

/// Writes the attributes, without operands and results.
pub(super) fn write(
    op: &Attention,
    operation: &Operation,
    tensors: &[TensorDesc],
) -> Vec<(&'static str, Json)> {
    let mut keys = vec![(operation.op.name(), json!(op.math.name()))];
    let mut put = |key: &'static str, value: Option<Json>| {
        keys.extend(value.map(|value| (key, value)));
    };
    put("scale", op.scale.map(|scale| json!(scale.get())));
    put("softcap", op.softcap.map(|softcap| json!(softcap.cap.get())));
    put("softcap_last", op.softcap.filter(|of| of.last).map(|_| json!(true)));
    let Band { diagonal, left, right } = op.band;
    let name = DIAGONALS.iter().find(|(_, known)| *known == diagonal).map(|(name, _)| *name);
    put("diagonal", name.filter(|_| diagonal != Diagonal::TopLeft).map(|name| json!(name)));
    put("left", left.map(|left| json!(left)));
    put("right", right.map(|right| json!(right)));
    put("queries_max", op.queries_max.map(|most| json!(most)));
    put("keys_max", op.keys_max.map(|most| json!(most)));
    put("dropout", op.dropout.map(|probability| json!(probability.get())));
    let slots = operation.op.slots();
    for (name, program) in [("score", &op.score), ("keep", &op.keep)] {
        let captured = |slot: &str| {
            let at = slots.inputs.iter().position(|known| *known == slot)?;
            Some(operation.inputs[at])
        };
        let captured: Vec<i64> = captured_slots(name).map_while(captured).collect();
        let written = |program| json!(written(&normalised(name, program), &captured, tensors));
        put(name, program.as_deref().map(written));
    }
    keys
}

fn written(program: &Program, captured: &[i64], tensors: &[TensorDesc]) -> ProgramJson {
    let inputs = score_inputs(program);
    let own = |name: &str| {
        let results = program.instructions().iter().map(|line| line.name.as_str());
        [SCORE].into_iter().chain(COORDINATES).chain(results).any(|known| known == name)
    };
    let reference = |uid: i64| {
        let name = reference(tensors, uid);
        if own(&name) { format!("#{uid}") } else { name }
    };
    let name = |value: &Value| match value {
        Value::Input(at) => match inputs[*at] {
            ScoreInput::Captured(at) => reference(captured[at]),
            _ => program.inputs()[*at].name.clone(),
        },
        Value::Result(at) => program.instructions()[*at].name.clone(),
    };
    let operation = |(at, line): (usize, &crate::expr::Instruction)| {
        let operands = line.operands.iter().map(name).collect();
        let dtypes = line.operands.iter().map(|value| program.dtype(*value)).collect();
        PointwiseJson::of(&line.op, (operands, dtypes), name(&Value::Result(at)))
    };
    ProgramJson {
        captured: captured.iter().map(|uid| reference(*uid)).collect(),
        operations: program.instructions().iter().enumerate().map(operation).collect(),
        output: name(&program.outputs()[0]),
    }
}
