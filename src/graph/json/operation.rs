//! Operations in JSON: a key that says which, attributes, and a key for each operand and result.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::pointwise::{self, PointwiseJson, read_math};
use super::{attention, recurrence, referred};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Math;
use crate::graph::attention::is_captured;
use crate::graph::{
    BnBackwardWeights, BnFinalize, GenStats, Matmul, MatmulMath, NormBackward, NormForward,
    NormMode, Op, Operation, OperationGraph, Phase, Reduction, find,
};
use crate::tensor::TensorDesc;

/// The keys that say which operation it is.
const KINDS: [&str; 10] = [
    "pointwise",
    "matmul",
    "reduction",
    "norm_forward",
    "norm_backward",
    "gen_stats",
    "bn_finalize",
    "bn_backward_weights",
    "recurrence",
    "attention",
];

/// What is left to read of an operation.
pub(super) struct Fields {
    kind: &'static str,
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn fail<T>(&self, text: impl std::fmt::Display) -> Result<T> {
        Err(Error::bad_param(format!("{}: {text}", self.kind)))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(super) fn value(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// A whole number.
    pub(super) fn number(&mut self, key: &str) -> Result<i64> {
        match self.value(key).as_ref().map(|value| (value, value.as_i64())) {
            None => self.fail(format_args!("key `{key}` is missing")),
            Some((_, Some(number))) => Ok(number),
            Some((value, None)) => {
                self.fail(format_args!("key `{key}` is {value}, expected a whole number"))
            }
        }
    }

    /// The text under a key, which stays.
    pub(super) fn peek(&self, key: &str) -> Option<&str> {
        self.map.get(key).and_then(Value::as_str)
    }

    /// A text under a key that had none.
    pub(super) fn put(&mut self, key: &str, text: String) {
        self.map.insert(key.to_owned(), Value::String(text));
    }

    /// A value that may be missing.
    pub(super) fn optional<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.map.remove(key) else { return Ok(None) };
        match read(&value) {
            None => self.fail(format_args!("key `{key}` is {value}, expected {expected}")),
            found => Ok(found),
        }
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.map.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => self.fail(format_args!("key `{key}` is {other}, expected a string")),
        }
    }

    /// A text that is one of these.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, choices: &[(&str, T)]) -> Result<T> {
        let text = self.text(key)?.unwrap_or_default();
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                self.fail(format_args!("key `{key}` is `{text}`, expected one of {names}"))
            }
        }
    }

    /// A text that is one of these, or is not there.
    pub(super) fn choice_or<T: Copy>(
        &mut self,
        key: &str,
        choices: &[(&str, T)],
        default: T,
    ) -> Result<T> {
        if self.has(key) { self.choice(key, choices) } else { Ok(default) }
    }

    fn math(&mut self) -> Result<Math> {
        let text = self.text("math")?;
        read_math(&self.kind, text.as_deref())
    }

    fn mode(&mut self, kind: &'static str) -> Result<NormMode> {
        let groups = self.optional("groups", "a number", Value::as_i64)?;
        let modes = [NormMode::Layer, NormMode::Rms, NormMode::Instance, NormMode::Batch];
        let mut choices = modes.map(|mode| (mode.name(), mode)).to_vec();
        choices.push(("group", NormMode::Group(groups.unwrap_or(0))));
        let mode = self.choice(kind, &choices)?;
        match (mode, groups) {
            (NormMode::Group(_), None) => self.fail("key `groups` is missing"),
            (NormMode::Group(_), Some(_)) | (_, None) => Ok(mode),
            (_, Some(_)) => self.fail("key `groups` is that of group norm"),
        }
    }

    /// The tensors of the slots; nothing may be left.
    fn operation(mut self, op: Op, tensors: &[TensorDesc]) -> Result<Operation> {
        let slots = op.slots();
        let mut read = |slot: &'static str| {
            let Some(name) = self.text(slot)? else {
                return self.fail(format_args!("key `{slot}` is missing"));
            };
            match referred(tensors, &name) {
                Some(uid) => Ok(uid),
                None => self.fail(format_args!("no tensor of the graph is named `{name}`")),
            }
        };
        let inputs = slots.inputs.iter().map(|slot| read(slot)).collect::<Result<_>>()?;
        let outputs = slots.outputs.iter().map(|slot| read(slot)).collect::<Result<_>>()?;
        match self.map.keys().next() {
            Some(key) => self.fail(format_args!("unknown key `{key}`")),
            None => Ok(Operation { op, inputs, outputs }),
        }
    }
}

const PHASES: [(&str, Phase); 2] = [("inference", Phase::Inference), ("training", Phase::Training)];

pub(super) fn read(map: Map<String, Value>, tensors: &[TensorDesc]) -> Result<Operation> {
    let kinds: Vec<&'static str> =
        KINDS.into_iter().filter(|kind| map.contains_key(*kind)).collect();
    let &[kind] = &kinds[..] else {
        let known = KINDS.join(", ");
        let text = format!("an operation has one of the keys {known}, got {}", Value::Object(map));
        return Err(Error::bad_param(text));
    };
    if kind == "pointwise" {
        let json = serde_json::from_value(Value::Object(map))
            .map_err(|error| Error::bad_param(format!("malformed problem: {error}")))?;
        return pointwise::read(json, tensors);
    }
    let mut fields = Fields { kind, map };
    let op = match kind {
        "matmul" => {
            let maths = MatmulMath::ALL.map(|math| (math.name(), math));
            let overrides = ["m_override", "n_override", "k_override"].map(|key| fields.has(key));
            let count = "irregularly_strided_batch_count";
            let count = fields.optional(count, "a number", Value::as_i64)?;
            let irregular_batches = count.unwrap_or(1);
            Op::Matmul(Matmul { math: fields.choice(kind, &maths)?, overrides, irregular_batches })
        }
        "reduction" => {
            let text = fields.text(kind)?.unwrap_or_default();
            Op::Reduction(Reduction { op: text.parse()?, math: fields.math()? })
        }
        "norm_forward" => Op::NormForward(NormForward {
            mode: fields.mode(kind)?,
            phase: fields.choice("phase", &PHASES)?,
            math: fields.math()?,
            bias: fields.has("bias"),
            statistics: fields.has("inv_variance"),
            running: fields.has("exp_avg_factor"),
        }),
        "norm_backward" => Op::NormBackward(NormBackward {
            mode: fields.mode(kind)?,
            math: fields.math()?,
            bias: fields.has("dbias"),
            statistics: fields.has("inv_variance"),
        }),
        "gen_stats" => {
            fields.choice(kind, &[("sum_sq_sum", ())])?;
            Op::GenStats(GenStats { math: fields.math()? })
        }
        "bn_finalize" => Op::BnFinalize(BnFinalize {
            phase: fields.choice(kind, &PHASES)?,
            math: fields.math()?,
            running: fields.has("exp_avg_factor"),
        }),
        "recurrence" => Op::Recurrence(recurrence::read(&mut fields)?),
        "attention" => Op::Attention(attention::read(&mut fields, tensors)?),
        _ => {
            let math = fields.choice(kind, &[("f32", Math::F32), ("f64", Math::F64)])?;
            Op::BnBackwardWeights(BnBackwardWeights { math })
        }
    };
    fields.operation(op, tensors)
}

/// An operation to be written, its keys in a readable order.
pub(super) enum Written {
    Pointwise(Box<PointwiseJson>),
    Named(Vec<(&'static str, Value)>),
}

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Written::Pointwise(json) => json.serialize(serializer),
            Written::Named(keys) => {
                serializer.collect_map(keys.iter().map(|(key, value)| (key, value)))
            }
        }
    }
}

pub(super) fn write(operation: &Operation, graph: &OperationGraph) -> Written {
    let mut keys = match &operation.op {
        Op::Pointwise(op) => {
            return Written::Pointwise(Box::new(pointwise::write(op, operation, graph)));
        }
        _ => attributes(operation, graph),
    };
    let slots = operation.op.slots();
    let inputs = slots.inputs.into_iter().zip(&operation.inputs);
    // A program names the tensors it captures.
    let inputs = inputs.filter(|(slot, _)| !is_captured(slot));
    let outputs = slots.outputs.into_iter().zip(&operation.outputs);
    keys.extend(inputs.chain(outputs).map(|(slot, uid)| (slot, json!(graph.reference(*uid)))));
    Written::Named(keys)
}

/// The attributes of an operation, each under its key, first that which says what it is.
fn attributes(operation: &Operation, graph: &OperationGraph) -> Vec<(&'static str, Value)> {
    let op = &operation.op;
    let (value, math) = match op {
        Op::Pointwise(op) => (op.mode.name(), op.math),
        Op::Matmul(op) => (op.math.name(), Math::F32),
        Op::Reduction(op) => {
            let x = find(&graph.tensors, operation.inputs[0]).map_or(DType::F32, |x| x.dtype);
            let unsaid = op.math == Reduction::new(op.op).resolved(x).math;
            (op.op.name(), if unsaid { Math::Default } else { op.math })
        }
        Op::NormForward(op) => (op.mode.name(), op.math),
        Op::NormBackward(op) => (op.mode.name(), op.math),
        Op::GenStats(op) => ("sum_sq_sum", op.math),
        Op::BnFinalize(op) => (phase_name(op.phase), op.math),
        Op::BnBackwardWeights(op) if op.math == Math::F64 => ("f64", Math::F32),
        Op::BnBackwardWeights(_) => ("f32", Math::F32),
        Op::Recurrence(op) => return recurrence::write(op),
        Op::Attention(op) => return attention::write(op, operation, graph),
    };
    let mut keys = vec![(op.name(), json!(value))];
    if let Op::NormForward(op) = op {
        keys.push(("phase", json!(phase_name(op.phase))));
    }
    if let Op::NormForward(NormForward { mode: NormMode::Group(groups), .. })
    | Op::NormBackward(NormBackward { mode: NormMode::Group(groups), .. }) = op
    {
        keys.push(("groups", json!(groups)));
    }
    let is_said = math != Math::F32 || matches!(op, Op::Reduction(_));
    if let Some(name) = math.name().filter(|_| is_said) {
        keys.push(("math", json!(name)));
    }
    keys
}

fn phase_name(phase: Phase) -> &'static str {
    PHASES.iter().find(|(_, other)| *other == phase).map_or("", |(name, _)| name)
}
