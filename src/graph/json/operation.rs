//! JSON form of operations: a key that selects the operation, attributes, and a key per operand and
//! result.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::keys::reference;
use super::pointwise::{self, PointwiseJson};
use super::{
    attention, convolution, ctc, dynamic_slice, pointwise_loop, recurrence, resample,
    resident_loop, rng, signal, views,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Math;
use crate::graph::attention::is_captured;
use crate::graph::find::find;
use crate::graph::{
    BnBackwardWeights, BnFinalize, ConvolutionPass, GenStats, Matmul, MatmulMath, NormBackward,
    NormForward, NormMode, Op, Operation, Phase, Reduction, ResamplePass,
};
use crate::tensor::TensorDesc;

/// Reads the attributes of a kind of operation.
type Read = fn(&mut Fields, &[TensorDesc]) -> Result<Op>;

/// The keys that select the operation besides `pointwise`, which has a form of its own.
const KINDS: [(&str, Read); 25] = [
    ("matmul", |fields, _| {
        let maths = MatmulMath::ALL.map(|math| (math.name(), math));
        let overrides = ["m_override", "n_override", "k_override"].map(|key| fields.has(key));
        let count = "irregularly_strided_batch_count";
        let irregular_batches = fields.optional(count, "a number", Value::as_i64)?.unwrap_or(1);
        let math = fields.choice(fields.kind, &maths)?;
        Ok(Op::Matmul(Matmul { math, overrides, irregular_batches }))
    }),
    ("convolution_forward", |fields, _| convolution::read(fields, ConvolutionPass::Forward)),
    ("convolution_backward_data", |fields, _| {
        convolution::read(fields, ConvolutionPass::BackwardData)
    }),
    ("convolution_backward_filter", |fields, _| {
        convolution::read(fields, ConvolutionPass::BackwardFilter)
    }),
    ("resample_forward", |fields, _| resample::read(fields, ResamplePass::Forward)),
    ("resample_backward", |fields, _| resample::read(fields, ResamplePass::Backward)),
    ("reduction", |fields, _| {
        let text = fields.text(fields.kind)?.unwrap_or_default();
        Ok(Op::Reduction(Reduction { op: text.parse()?, math: fields.math()? }))
    }),
    ("ctc_loss", |fields, _| ctc::read(fields)),
    ("rng", |fields, _| rng::read(fields)),
    ("norm_forward", |fields, _| {
        Ok(Op::NormForward(NormForward {
            mode: fields.mode(fields.kind)?,
            phase: fields.choice("phase", &PHASES)?,
            math: fields.math()?,
            bias: fields.has("bias"),
            statistics: fields.has("inv_variance"),
            running: fields.has("exp_avg_factor"),
        }))
    }),
    ("norm_backward", |fields, _| {
        Ok(Op::NormBackward(NormBackward {
            mode: fields.mode(fields.kind)?,
            math: fields.math()?,
            bias: fields.has("dbias"),
            statistics: fields.has("inv_variance"),
        }))
    }),
    ("gen_stats", |fields, _| {
        fields.choice(fields.kind, &[("sum_sq_sum", ())])?;
        Ok(Op::GenStats(GenStats { math: fields.math()? }))
    }),
    ("bn_finalize", |fields, _| {
        Ok(Op::BnFinalize(BnFinalize {
            phase: fields.choice(fields.kind, &PHASES)?,
            math: fields.math()?,
            running: fields.has("exp_avg_factor"),
        }))
    }),
    ("bn_backward_weights", |fields, _| {
        let math = fields.choice(fields.kind, &[("f32", Math::F32), ("f64", Math::F64)])?;
        Ok(Op::BnBackwardWeights(BnBackwardWeights { math }))
    }),
    ("recurrence", |fields, _| Ok(Op::Recurrence(recurrence::read(fields)?))),
    ("pointwise_loop", pointwise_loop::read),
    ("resident_loop", resident_loop::read),
    ("attention", |fields, tensors| Ok(Op::Attention(attention::read(fields, tensors)?))),
    ("attention_backward", |fields, tensors| {
        Ok(Op::AttentionBackward(attention::read_backward(fields, tensors)?))
    }),
    ("signal", |fields, _| signal::read(fields)),
    ("slice", views::slice),
    ("transpose", views::transpose),
    ("reshape", views::reshape),
    ("concatenate", views::concatenate),
    ("dynamic_slice", dynamic_slice::read),
];

const POINTWISE: &str = "pointwise";

const PHASES: [(&str, Phase); 2] = [("inference", Phase::Inference), ("training", Phase::Training)];

pub(crate) fn read(map: Map<String, Value>, tensors: &[TensorDesc]) -> Result<Operation> {
    let known = || std::iter::once(POINTWISE).chain(KINDS.iter().map(|(kind, _)| *kind));
    let given: Vec<&str> = known().filter(|kind| map.contains_key(*kind)).collect();
    let &[kind] = &given[..] else {
        let known: Vec<&str> = known().collect();
        let (known, got) = (known.join(", "), Value::Object(map));
        let text = format!("expected one of the keys {known}, got {got}");
        return Err(Error::bad_param(text));
    };
    match KINDS.iter().find(|(other, _)| *other == kind) {
        Some((kind, read)) => {
            let mut fields = Fields { kind, map };
            let op = read(&mut fields, tensors)?;
            fields.operation(op, tensors)
        }
        None => {
            let json = serde_json::from_value(Value::Object(map))
                .map_err(|error| Error::bad_param(format!("malformed problem: {error}")))?;
            pointwise::read(json, tensors)
        }
    }
}

/// An operation to serialize, with its keys in a readable order.
pub(crate) enum Written {
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

pub(crate) fn write(operation: &Operation, tensors: &[TensorDesc]) -> Written {
    let mut keys = match &operation.op {
        Op::Pointwise(op) => {
            return Written::Pointwise(Box::new(pointwise::write(op, operation, tensors)));
        }
        op if op.moves() => return Written::Named(views::write(operation, tensors)),
        _ => attributes(operation, tensors),
    };
    let slots = operation.op.slots();
    let inputs = slots.inputs.into_iter().zip(&operation.inputs);
    // Captured tensors are named by their program.
    let inputs = inputs.filter(|(slot, _)| !is_captured(slot));
    let outputs = slots.outputs.into_iter().zip(&operation.outputs);
    keys.extend(inputs.chain(outputs).map(|(slot, uid)| (slot, json!(reference(tensors, *uid)))));
    Written::Named(keys)
}

/// The attributes by key; the key that selects the operation comes first.
fn attributes(operation: &Operation, tensors: &[TensorDesc]) -> Vec<(&'static str, Value)> {
    let op = &operation.op;
    let (value, math) = match op {
        Op::Pointwise(op) => (op.mode.name(), op.math),
        Op::Matmul(op) => (op.math.name(), Math::F32),
        Op::Reduction(op) => {
            let x = find(tensors, operation.inputs[0]).map_or(DType::F32, |x| x.dtype);
            let unsaid = op.math == Reduction::new(op.op).resolved(x).math;
            (op.op.name(), if unsaid { Math::Default } else { op.math })
        }
        Op::NormForward(op) => (op.mode.name(), op.math),
        Op::NormBackward(op) => (op.mode.name(), op.math),
        Op::GenStats(op) => ("sum_sq_sum", op.math),
        Op::BnFinalize(op) => (phase_name(op.phase), op.math),
        Op::BnBackwardWeights(op) if op.math == Math::F64 => ("f64", Math::F32),
        Op::BnBackwardWeights(_) => ("f32", Math::F32),
        Op::Convolution(op) => return convolution::write(op),
        Op::CtcLoss(op) => return ctc::write(op),
        Op::Rng(op) => return rng::write(op),
        Op::Resample(op) => return resample::write(op, operation, tensors),
        Op::Signal(op) => return signal::write(op, operation, tensors),
        Op::Recurrence(op) => return recurrence::write(op),
        Op::PointwiseLoop(op) => return pointwise_loop::write(op),
        Op::ResidentLoop(op) => return resident_loop::write(op),
        Op::DynamicSlice(op) => return dynamic_slice::write(op),
        Op::Attention(op) => return attention::write(op, operation, tensors),
        Op::AttentionBackward(op) => return attention::write(&op.forward, operation, tensors),
        Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_) | Op::Concatenate(_) => {
            return views::write(operation, tensors);
        }
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
