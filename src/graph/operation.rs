//! Nodes of an operation graph.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{MOVED, Math, Pointwise};
use crate::graph::attention::Attention;
use crate::graph::find::find;
use crate::graph::matmul::Matmul;
use crate::graph::norm::{NormBackward, NormForward};
use crate::graph::recurrence::Recurrence;
use crate::graph::reduction::Reduction;
use crate::graph::shape;
use crate::graph::slots::Slots;
use crate::graph::statistics::{self, BnBackwardWeights, BnFinalize, GenStats};
use crate::tensor::TensorDesc;

/// An operation and its tensors, identified by uid in the order of the operation's
/// [slots](Op::slots).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The computation.
    pub op: Op,
    /// Uids of the operands.
    pub inputs: Vec<i64>,
    /// Uids of the results.
    pub outputs: Vec<i64>,
}

/// The computation of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Elementwise operation (section 8.2.2.19). Operands are in the order of the document's
    /// formula: `x`, then `b` or `dy`, then `t`.
    Pointwise(Pointwise),
    /// Matrix multiplication (section 8.2.2.16).
    Matmul(Matmul),
    /// Reduction along some dimensions (section 8.2.2.20).
    Reduction(Reduction),
    /// Normalisation (section 8.2.2.18).
    NormForward(NormForward),
    /// Gradients of a normalisation (section 8.2.2.17).
    NormBackward(NormBackward),
    /// Per-channel sum and sum of squares (section 8.2.2.15).
    GenStats(GenStats),
    /// Per-channel scale and bias of a batch norm from the sums of [`GenStats`].
    BnFinalize(BnFinalize),
    /// Gradients of a batch norm's scale and bias, and the coefficients of the data gradient.
    BnBackwardWeights(BnBackwardWeights),
    /// Scaled dot-product attention.
    Attention(Attention),
    /// Recurrent layer without its input GEMM (section 6.2.1.36).
    Recurrence(Recurrence),
}

impl Operation {
    /// Returns a pointwise operation.
    pub fn pointwise(op: Pointwise, inputs: &[i64], output: i64) -> Operation {
        Operation { op: Op::Pointwise(op), inputs: inputs.to_vec(), outputs: vec![output] }
    }

    /// Resolves the default precision from the operand types, and raises programs to f64 if the
    /// operation computes in f64.
    pub(super) fn in_own_math(self, tensors: &[TensorDesc]) -> Operation {
        let dtype = |uid: &i64| find(tensors, *uid).map_or(DType::F32, |tensor| tensor.dtype);
        let dtypes: Vec<DType> = self.inputs.iter().map(dtype).collect();
        let op = match self.op.resolved(&dtypes) {
            Op::Recurrence(op) => Op::Recurrence(op.in_own_math()),
            Op::Attention(op) => Op::Attention(op.in_own_math()),
            other => other,
        };
        Operation { op, ..self }
    }

    /// Returns the pointwise operation, if it is one.
    pub fn as_pointwise(&self) -> Option<&Pointwise> {
        match &self.op {
            Op::Pointwise(op) => Some(op),
            _ => None,
        }
    }
}

impl Op {
    /// Name in messages and problem files.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Pointwise(op) => op.mode.name(),
            Op::Matmul(_) => "matmul",
            Op::Reduction(_) => "reduction",
            Op::NormForward(_) => "norm_forward",
            Op::NormBackward(_) => "norm_backward",
            Op::GenStats(_) => "gen_stats",
            Op::BnFinalize(_) => "bn_finalize",
            Op::BnBackwardWeights(_) => "bn_backward_weights",
            Op::Attention(_) => "attention",
            Op::Recurrence(_) => "recurrence",
        }
    }

    /// Replaces the default precision by the one that follows from the operand types.
    #[must_use]
    pub(super) fn resolved(self, operands: &[DType]) -> Op {
        let single = |math| if math == Math::Default { Math::F32 } else { math };
        match self {
            Op::Pointwise(op) => Op::Pointwise(op.resolved(operands)),
            Op::Reduction(op) => {
                Op::Reduction(op.resolved(operands.first().copied().unwrap_or(DType::F32)))
            }
            Op::NormForward(op) => Op::NormForward(NormForward { math: single(op.math), ..op }),
            Op::NormBackward(op) => Op::NormBackward(NormBackward { math: single(op.math), ..op }),
            Op::GenStats(op) => Op::GenStats(GenStats { math: single(op.math) }),
            Op::BnFinalize(op) => Op::BnFinalize(BnFinalize { math: single(op.math), ..op }),
            Op::BnBackwardWeights(op) => {
                Op::BnBackwardWeights(BnBackwardWeights { math: single(op.math) })
            }
            other => other,
        }
    }

    /// Checks that the operation is defined in its precision for operands of these types.
    fn check_math(&self, inputs: &[&TensorDesc]) -> Result<()> {
        let computes = !matches!(self, Op::Pointwise(_) | Op::Attention(_) | Op::Recurrence(_));
        let long = inputs.iter().find(|of| computes && of.dtype == DType::I64);
        if let Some(TensorDesc { name, dtype, .. }) = long {
            let op = self.name();
            let text = format!("{op}: `{name}` is {dtype}, {MOVED}");
            return Err(Error::not_supported(text));
        }
        match self {
            Op::Pointwise(op) => {
                let operand = |of: &&TensorDesc| (of.name.clone(), of.dtype);
                op.check_operands(&inputs.iter().map(operand).collect::<Vec<_>>())
            }
            Op::Matmul(_) | Op::Reduction(_) | Op::Attention(_) => Ok(()),
            other if other.math() == DType::I32 => {
                let text = format!("{}: not defined for math i32", other.name());
                Err(Error::bad_param(text))
            }
            _ => Ok(()),
        }
    }

    /// Checks the number of operands.
    pub(super) fn check_arity(&self, given: usize) -> Result<()> {
        let (name, arity) = (self.name(), self.slots().inputs.len());
        match given == arity {
            true => Ok(()),
            false => {
                let text = format!("{name}: expected {arity} operands, got {given}");
                Err(Error::bad_param(text))
            }
        }
    }

    /// Names of the operands and results, including the optional ones that the attributes enable.
    pub fn slots(&self) -> Slots {
        match self {
            Op::Pointwise(op) => Slots::new(&["x", "b", "t"][..op.mode.arity()], &["y"]),
            Op::Matmul(op) => op.slots(),
            Op::Reduction(_) => Slots::new(&["x"], &["y"]),
            Op::NormForward(op) => op.slots(),
            Op::NormBackward(op) => op.slots(),
            Op::GenStats(_) => Slots::new(&["x"], &["sum", "sq_sum"]),
            Op::BnFinalize(op) => op.slots(),
            Op::BnBackwardWeights(_) => BnBackwardWeights::slots(),
            Op::Attention(op) => op.slots(),
            Op::Recurrence(op) => op.slots(),
        }
    }

    /// Infers the dimensions of the results; `None` if the operands do not determine them.
    pub(super) fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let channels = |x: &TensorDesc| statistics::channels(self, x);
        Ok(Some(match self {
            Op::Pointwise(op) => vec![shape::infer(op, inputs)?],
            Op::Matmul(op) => vec![op.infer(inputs[0], inputs[1])?],
            Op::Reduction(_) => return Ok(None),
            Op::NormForward(op) => op.infer(inputs)?,
            Op::NormBackward(op) => op.infer(inputs)?,
            Op::Attention(op) => op.infer(inputs)?,
            Op::Recurrence(op) => op.infer(inputs)?,
            Op::GenStats(_) | Op::BnFinalize(_) | Op::BnBackwardWeights(_) => {
                vec![channels(inputs[0])?; self.slots().outputs.len()]
            }
        }))
    }

    /// Type in which the operation computes.
    pub fn math(&self) -> DType {
        match self {
            Op::Pointwise(op) => op.math.dtype(),
            Op::Matmul(op) => op.math.dtype(),
            Op::Reduction(op) => op.math.dtype(),
            Op::NormForward(op) => op.math.dtype(),
            Op::NormBackward(op) => op.math.dtype(),
            Op::GenStats(op) => op.math.dtype(),
            Op::BnFinalize(op) => op.math.dtype(),
            Op::BnBackwardWeights(op) => op.math.dtype(),
            Op::Attention(op) => op.math.dtype(),
            Op::Recurrence(op) => op.math.dtype(),
        }
    }

    /// Checks the attributes and the compatibility of the tensors.
    pub(super) fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.check_math(inputs)?;
        match self {
            Op::Pointwise(op) => {
                op.validate()?;
                shape::check(op, inputs, outputs[0])
            }
            Op::Matmul(op) => op.check(inputs, outputs[0]),
            Op::Reduction(op) => op.check(inputs[0], outputs[0]),
            Op::NormForward(op) => op.check(inputs, outputs),
            Op::NormBackward(op) => op.check(inputs, outputs),
            Op::GenStats(op) => op.check(inputs[0], outputs),
            Op::BnFinalize(op) => op.check(inputs, outputs),
            Op::BnBackwardWeights(op) => op.check(inputs, outputs),
            Op::Attention(op) => op.check(inputs, outputs),
            Op::Recurrence(op) => op.check(inputs, outputs),
        }
    }

    /// Normalises attributes so that equivalent operations compare equal.
    pub(super) fn normalised(&self) -> Op {
        match self {
            Op::Pointwise(op) => Op::Pointwise(op.normalised()),
            Op::Attention(op) => Op::Attention(op.normalised()),
            other => other.clone(),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Pointwise(op) => op.fmt(f),
            Op::Matmul(op) => op.fmt(f),
            Op::Reduction(op) => op.fmt(f),
            Op::NormForward(op) => op.fmt(f),
            Op::NormBackward(op) => op.fmt(f),
            Op::GenStats(op) => op.fmt(f),
            Op::BnFinalize(op) => op.fmt(f),
            Op::BnBackwardWeights(op) => op.fmt(f),
            Op::Attention(op) => op.fmt(f),
            Op::Recurrence(op) => op.fmt(f),
        }
    }
}

/// Returns whether an operation writes the tensor.
pub(super) fn writes(operations: &[Operation], uid: i64) -> bool {
    operations.iter().any(|operation| operation.outputs.contains(&uid))
}
