//! Nodes of an operation graph.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Pointwise;
use crate::graph::attention::{Attention, AttentionBackward};
use crate::graph::convolution::Convolution;
use crate::graph::ctc::CtcLoss;
use crate::graph::dynamic_slice::DynamicSlice;
use crate::graph::find::find;
use crate::graph::matmul::Matmul;
use crate::graph::norm::{NormBackward, NormForward};
use crate::graph::pointwise_loop::PointwiseLoop;
use crate::graph::recurrence::Recurrence;
use crate::graph::reduction::Reduction;
use crate::graph::resample::Resample;
use crate::graph::resident_loop::ResidentLoop;
use crate::graph::rng::Rng;
use crate::graph::semantics::Semantics;
use crate::graph::signal::Signal;
use crate::graph::slots::Slots;
use crate::graph::statistics::{BnBackwardWeights, BnFinalize, GenStats};
use crate::graph::views::{Concatenate, Reshape, Slice, Transpose};
use crate::progression::Progression;
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

/// Slices grow.
impl Progression for Operation {
    fn term(first: &Operation, second: &Operation, at: i64) -> Option<Operation> {
        let op = match (&first.op, &second.op) {
            (Op::Slice(first), Op::Slice(second)) => Op::Slice(Slice::term(first, second, at)?),
            (first, _) => first.clone(),
        };
        Some(Operation { op, inputs: first.inputs.clone(), outputs: first.outputs.clone() })
    }
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
    /// Convolution or a gradient of one (sections 8.2.2.12 to 8.2.2.14).
    Convolution(Convolution),
    /// Pooling or interpolation, or a gradient of one (sections 8.2.2.21 and 8.2.2.22).
    Resample(Resample),
    /// Reduction along some dimensions (section 8.2.2.20).
    Reduction(Reduction),
    /// CTC loss and its gradient (`mcdnnCTCLoss`).
    CtcLoss(CtcLoss),
    /// Random numbers (section 8.2.2.23).
    Rng(Rng),
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
    /// Gradients of an attention.
    AttentionBackward(AttentionBackward),
    /// A flag that is set or waited for (section 8.2.2.24).
    Signal(Signal),
    /// Recurrent layer without its input GEMM (section 6.2.1.36).
    Recurrence(Recurrence),
    /// Loop whose trips are pointwise.
    PointwiseLoop(PointwiseLoop),
    /// Loop whose trips are stages.
    ResidentLoop(ResidentLoop),
    /// Some elements along each dimension.
    Slice(Slice),
    /// The dimensions in another order.
    Transpose(Transpose),
    /// The same elements under other dimensions.
    Reshape(Reshape),
    /// Operands behind each other along an axis (section 8.2.2.11).
    Concatenate(Concatenate),
    /// Slices at positions that the device knows.
    DynamicSlice(DynamicSlice),
}

/// The payload of whichever variant, by reference.
macro_rules! of_kind {
    ($op:expr) => {
        match $op {
            Op::Pointwise(op) => op,
            Op::Matmul(op) => op,
            Op::Convolution(op) => op,
            Op::Resample(op) => op,
            Op::Reduction(op) => op,
            Op::CtcLoss(op) => op,
            Op::Rng(op) => op,
            Op::NormForward(op) => op,
            Op::NormBackward(op) => op,
            Op::GenStats(op) => op,
            Op::BnFinalize(op) => op,
            Op::BnBackwardWeights(op) => op,
            Op::Attention(op) => op,
            Op::AttentionBackward(op) => op,
            Op::Signal(op) => op,
            Op::Recurrence(op) => op,
            Op::PointwiseLoop(op) => op,
            Op::ResidentLoop(op) => op,
            Op::Slice(op) => op,
            Op::Transpose(op) => op,
            Op::Reshape(op) => op,
            Op::Concatenate(op) => op,
            Op::DynamicSlice(op) => op,
        }
    };
}

impl Operation {
    /// Returns a pointwise operation.
    pub fn pointwise(op: Pointwise, inputs: &[i64], output: i64) -> Operation {
        Operation { op: Op::Pointwise(op), inputs: inputs.to_vec(), outputs: vec![output] }
    }

    /// Resolves the precision from the operand types.
    pub(crate) fn resolved(self, tensors: &[TensorDesc]) -> Operation {
        let dtype = |uid: &i64| find(tensors, *uid).map_or(DType::F32, |tensor| tensor.dtype);
        let dtypes: Vec<DType> = self.inputs.iter().map(dtype).collect();
        Operation { op: self.op.resolved(&dtypes), ..self }
    }

    /// Returns the pointwise operation, if it is one.
    pub fn as_pointwise(&self) -> Option<&Pointwise> {
        match &self.op {
            Op::Pointwise(op) => Some(op),
            _ => None,
        }
    }

    /// Whether each element of the result is computed by itself: a pointwise operation, or random
    /// numbers.
    pub fn is_elementwise(&self) -> bool {
        matches!(self.op, Op::Pointwise(_) | Op::Rng(_))
    }
}

impl Op {
    /// The rules of this kind of operation.
    fn semantics(&self) -> &dyn Semantics {
        of_kind!(self)
    }

    /// Name in messages and problem files.
    pub fn name(&self) -> &'static str {
        self.semantics().name()
    }

    /// Names of the operands and results, including the optional ones that the attributes enable.
    pub fn slots(&self) -> Slots {
        self.semantics().slots()
    }

    /// Type in which the operation computes.
    pub fn math(&self) -> DType {
        self.semantics().math()
    }

    /// See [`Semantics::result_type`].
    pub(super) fn result_type(&self, operands: &[DType]) -> DType {
        self.semantics().result_type(operands)
    }

    /// Whether it moves elements and computes nothing.
    pub fn moves(&self) -> bool {
        matches!(self, Op::Slice(_) | Op::Transpose(_) | Op::Reshape(_) | Op::Concatenate(_))
    }

    /// See [`Semantics::infer`].
    pub(super) fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        self.semantics().infer(inputs)
    }

    /// Checks the attributes, and types and shapes of the tensors.
    pub(super) fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.semantics().check_types(inputs)?;
        self.semantics().check(inputs, outputs)
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

    /// See [`Semantics::resolve`].
    #[must_use]
    pub(super) fn resolved(mut self, operands: &[DType]) -> Op {
        let semantics: &mut dyn Semantics = of_kind!(&mut self);
        semantics.resolve(operands);
        self
    }

    /// See [`Semantics::normalise`].
    pub(super) fn normalised(&self) -> Op {
        let mut op = self.clone();
        let semantics: &mut dyn Semantics = of_kind!(&mut op);
        semantics.normalise();
        op
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.semantics().fmt(f)
    }
}

/// Returns whether an operation writes the tensor.
pub(super) fn writes(operations: &[Operation], uid: i64) -> bool {
    operations.iter().any(|operation| operation.outputs.contains(&uid))
}
