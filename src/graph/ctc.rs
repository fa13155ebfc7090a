//! CTC loss: connectionist temporal classification, and its gradient.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Math;
use crate::graph::scaling::check_before;
use crate::graph::semantics::{Semantics, check_float_math, resolve_to_f32};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// What the elements of `x` are (`mcdnnLossNormalizationMode_t`). The gradient is with respect to
/// activations in front of a softmax in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CtcInput {
    /// Activations, of which the operation takes the softmax over the classes:
    /// `MCDNN_LOSS_NORMALIZATION_SOFTMAX`.
    #[default]
    Logits,
    /// Probabilities, taken as they are: `MCDNN_LOSS_NORMALIZATION_NONE`.
    Probabilities,
    /// Their natural logarithms, as torch's `ctc_loss` takes them.
    LogProbabilities,
}

/// What an infinite loss gives: that of a sequence whose labels no path spells, because they and
/// the repeated ones among them are more than its steps, or because all paths have probability 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CtcInfinite {
    /// The loss is infinite, its gradient NaN: what follows from the formula, torch's default.
    #[default]
    Propagate,
    /// Loss and gradient are 0: torch's `zero_infinity`, `MCDNN_NOT_PROPAGATE_NAN`.
    Zero,
    /// The loss is infinite, and the gradient what its memory held, an operand:
    /// `MCDNN_PROPAGATE_NAN`.
    Keep,
}

/// `loss[n] = -log p(labels of n | x[:, n, :])` and its gradient `dx` (`mcdnnCTCLoss`, `_v8`, for
/// which mcDNN's document names cuDNN's; Graves et al. 2006).
///
/// `x` is `[T, N, A]`: steps, sequences, classes. A path has a class for each of the first
/// `input_lengths[n]` steps, and spells what is left when of equal neighbours all but one and then
/// all blanks are removed; its probability is the product of those of its classes. `labels` are
/// `[N, S]`, those of a sequence first in its row, or `[M]`, all sequences one behind the other:
/// those of `n` behind as many as `label_lengths` before it say, each taken as the nearest number
/// in `0..=label_length_max`; M is 0 where nobody knows how many there are, and then nothing bounds
/// what is read of them. Steps behind the input length are not read, and have gradient 0. A
/// sequence may have no labels, and no steps.
///
/// `dx[t, n, k]` is the probability of class `k` less that of all paths through it, given the
/// labels. With [`CtcInput::Logits`] that is the derivative of the loss by `x`; with the others it
/// is the derivative by the activations of a softmax that gave `x`, as in cuDNN and torch.
///
/// A sequence whose lengths are out of range, or that has a label which is no class or the blank,
/// has a loss and a gradient of NaN; nothing else outside of the tensors is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CtcLoss {
    /// What `x` holds.
    pub input: CtcInput,
    /// What an infinite loss gives.
    pub infinite: CtcInfinite,
    /// The class of the blank; 0 in mcDNN.
    pub blank: i64,
    /// The most labels of a sequence, at most [`CtcLoss::LABEL_LENGTH_MAX`].
    pub label_length_max: i64,
    /// Whether the gradient is computed.
    pub gradient: bool,
    /// Precision of the computation, f32 or f64.
    pub math: Math,
}

impl CtcInput {
    /// All of them.
    pub const ALL: [CtcInput; 3] =
        [CtcInput::Logits, CtcInput::Probabilities, CtcInput::LogProbabilities];

    /// Name in messages and problem files.
    pub const fn name(self) -> &'static str {
        match self {
            CtcInput::Logits => "logits",
            CtcInput::Probabilities => "probabilities",
            CtcInput::LogProbabilities => "log_probabilities",
        }
    }

    /// Whether the operation normalises.
    pub(crate) fn is_softmax(self) -> bool {
        self == CtcInput::Logits
    }
}

impl CtcInfinite {
    /// All of them.
    pub const ALL: [CtcInfinite; 3] =
        [CtcInfinite::Propagate, CtcInfinite::Zero, CtcInfinite::Keep];

    /// Name in messages and problem files.
    pub const fn name(self) -> &'static str {
        match self {
            CtcInfinite::Propagate => "propagate",
            CtcInfinite::Zero => "zero",
            CtcInfinite::Keep => "keep",
        }
    }
}

impl CtcLoss {
    /// The most labels of a sequence, as in cuDNN 8.
    pub const LABEL_LENGTH_MAX: i64 = 255;

    /// The loss of activations with at most so many labels, with its gradient; blank is class 0.
    pub fn new(label_length_max: i64) -> CtcLoss {
        CtcLoss {
            input: CtcInput::default(),
            infinite: CtcInfinite::default(),
            blank: 0,
            label_length_max,
            gradient: true,
            math: Math::F32,
        }
    }

    /// Whether the gradient's elements before are those of infinite losses.
    pub(crate) fn reads_result(&self) -> bool {
        self.gradient && self.infinite == CtcInfinite::Keep
    }
}

impl Semantics for CtcLoss {
    fn name(&self) -> &'static str {
        "ctc_loss"
    }

    fn slots(&self) -> Slots {
        let inputs = ["x", "labels", "label_lengths", "input_lengths"];
        let mut slots = Slots::new(&inputs, &["loss"]);
        slots.inputs.extend(self.reads_result().then_some("dx_before"));
        slots.outputs.extend(self.gradient.then_some("dx"));
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        let [_, sequences, _] = self.extents(inputs[0])?;
        let dx = self.gradient.then(|| inputs[0].dims.clone());
        Ok(Some([vec![sequences]].into_iter().chain(dx).collect()))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("ctc_loss: {rule}")));
        let [_, sequences, classes] = self.extents(inputs[0])?;
        let (blank, given, most) = (self.blank, self.label_length_max, Self::LABEL_LENGTH_MAX);
        if !(0..classes).contains(&blank) {
            return fail(format!("blank is {blank}, `{}` has {classes} classes", inputs[0].name));
        }
        if !(0..=most).contains(&given) {
            return fail(format!("label_length_max is {given}, expected 0 to {most}"));
        }
        let TensorDesc { name, dims, .. } = inputs[1];
        match dims[..] {
            [_] => {}
            [rows, length] if rows == sequences && length >= given => {}
            _ => {
                return fail(format!(
                    "labels `{name}` is {dims:?}, expected [M] or [{sequences}, {given} or more]"
                ));
            }
        }
        for tensor in &inputs[2..4] {
            self.check_per_sequence(tensor, sequences)?;
        }
        self.check_per_sequence(outputs[0], sequences)?;
        for tensor in &inputs[1..4] {
            if tensor.dtype != DType::I32 {
                return fail(format!("`{}` is {}, expected i32", tensor.name, tensor.dtype));
            }
        }
        for tensor in outputs {
            if !tensor.dtype.is_float() {
                let (name, dtype) = (&tensor.name, tensor.dtype);
                return fail(format!("`{name}` is {dtype}, expected a floating-point type"));
            }
        }
        let Some(dx) = outputs.get(1) else { return Ok(()) };
        if dx.dims != inputs[0].dims {
            return fail(format!(
                "dx `{}` is {:?}, x `{}` is {:?}",
                dx.name, dx.dims, inputs[0].name, inputs[0].dims
            ));
        }
        check_before(self.name(), inputs.get(4).copied(), dx)
    }

    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        let TensorDesc { name, dtype, .. } = inputs[0];
        if !dtype.is_float() {
            let text = format!("ctc_loss: x `{name}` is {dtype}, expected a floating-point type");
            return Err(Error::bad_param(text));
        }
        check_float_math(self.name(), self.math())
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }

    /// Without a gradient nothing is kept.
    fn normalise(&mut self) {
        if !self.gradient && self.infinite == CtcInfinite::Keep {
            self.infinite = CtcInfinite::Propagate;
        }
    }
}

impl CtcLoss {
    /// Steps, sequences and classes.
    fn extents(&self, x: &TensorDesc) -> Result<[i64; 3]> {
        let TensorDesc { name, dims, .. } = x;
        <[i64; 3]>::try_from(&dims[..]).map_err(|_| {
            let text = format!("ctc_loss: x `{name}` is {dims:?}, expected [T, N, A]");
            Error::bad_param(text)
        })
    }

    fn check_per_sequence(&self, tensor: &TensorDesc, sequences: i64) -> Result<()> {
        let TensorDesc { name, dims, .. } = tensor;
        match dims[..] == [sequences] {
            true => Ok(()),
            false => {
                let text = format!("ctc_loss: `{name}` is {dims:?}, expected [{sequences}]");
                Err(Error::bad_param(text))
            }
        }
    }
}

impl fmt::Display for CtcLoss {
    /// Formats as `ctc_loss{logits, label_length_max=20, infinite=zero}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (input, most) = (self.input.name(), self.label_length_max);
        write!(f, "ctc_loss{{{input}, label_length_max={most}")?;
        if self.math == Math::F64 {
            f.write_str(", f64")?;
        }
        if self.blank != 0 {
            write!(f, ", blank={}", self.blank)?;
        }
        if self.infinite != CtcInfinite::default() {
            write!(f, ", infinite={}", self.infinite.name())?;
        }
        f.write_str("}")
    }
}
