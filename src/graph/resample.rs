//! Resampling: pooling and interpolation, and their gradients.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, NanPropagation, Real};
use crate::graph::fraction::Fraction;
use crate::graph::reduction::{Reduction, ReductionOp};
use crate::graph::sampling::{Sampling, listed};
use crate::graph::scaling::{check_before, check_factors};
use crate::graph::semantics::{Semantics, check_operand_types};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// What is computed of an image `x` and its resampled form `y`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResamplePass {
    /// `y` of `x` (section 8.2.2.22).
    Forward,
    /// The gradient `dx` of `dy` (section 8.2.2.21).
    Backward,
}

/// How an output follows from the image (`mcdnnResampleMode_t`, section 8.1.1.17). At `position =
/// o * stride - pre` along each spatial dimension, where element `i` of the image is at `i`:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ResampleMode {
    /// The element nearest to the position, of two the last: `floor(position + 1/2)`.
    #[default]
    Nearest,
    /// Between the elements `floor(position)` and the next, in proportion to the position; an
    /// element of weight 0 does not count. The window is 2.
    Bilinear,
    /// The mean of the window, padding included.
    AveragePoolIncludePadding,
    /// The mean of those elements of the window that are of the image; NaN where none is.
    AveragePoolExcludePadding,
    /// The greatest of the window, padding included.
    MaxPool,
}

/// What lies around the image (`mcdnnPaddingMode_t`, section 8.1.1.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PaddingMode {
    /// Zeros.
    #[default]
    Zero,
    /// Negative infinity, which among integers is their least.
    NegativeInfinity,
    /// The element of the image that is nearest.
    Edge,
}

/// `result = alpha * resampled + beta * before`, where `before` is what the result's memory held
/// (`MCDNN_BACKEND_RESAMPLE_DESCRIPTOR`, section 8.2.2.28, and the operations on it).
///
/// Images are `[N, C, ...]` with 1 to 6 spatial dimensions. [`ResampleMode`] says what is computed:
/// where all of an image is resampled, the centre of output `o` is at `(o + 1/2) * stride - 1/2` in
/// its coordinates, so that `pre = (1 - stride) / 2` interpolates as torch does without
/// `align_corners` and ONNX with `half_pixel`. With them `stride` is `(in - 1) / (out - 1)` and
/// `pre` 0. What torch calls `nearest` and ONNX `asymmetric` with `floor` is `pre = 1/2`.
///
/// The index of max pooling is the offset of the tap that won within its window, row by row; of
/// taps that are equal the first one wins. The gradient reads it, or else `x`, of which the winners
/// follow. A NaN wins if it propagates, of several the first; else it counts as negative infinity.
///
/// Operands are rounded to the math precision. The result is rounded to its type if `alpha` is 1
/// and `beta` 0; else it is rounded to the math precision, scaled in f32, or f64, and rounded once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resample {
    /// Whether the result is the resampled image or a gradient.
    pub pass: ResamplePass,
    /// How an output follows from the image.
    pub mode: ResampleMode,
    /// What lies around the image.
    pub padding: PaddingMode,
    /// Precision of the computation.
    pub math: Math,
    /// Whether a NaN wins in max pooling.
    pub nan: NanPropagation,
    /// Where windows lie.
    pub sampling: Sampling,
    /// Max pooling: forward, whether the winners are stored; backward, whether they are read, and
    /// not found in `x`.
    pub index: bool,
    /// Factor of the resampled image.
    pub alpha: Real,
    /// Factor of the result's elements before; where it is 0 they are not read.
    pub beta: Real,
}

impl ResamplePass {
    /// Both passes.
    pub const ALL: [ResamplePass; 2] = [ResamplePass::Forward, ResamplePass::Backward];

    /// Name of the operation in messages and problem files.
    pub const fn name(self) -> &'static str {
        match self {
            ResamplePass::Forward => "resample_forward",
            ResamplePass::Backward => "resample_backward",
        }
    }
}

impl ResampleMode {
    /// All modes.
    pub const ALL: [ResampleMode; 5] = [
        ResampleMode::Nearest,
        ResampleMode::Bilinear,
        ResampleMode::AveragePoolIncludePadding,
        ResampleMode::AveragePoolExcludePadding,
        ResampleMode::MaxPool,
    ];

    /// Name in messages and problem files.
    pub const fn name(self) -> &'static str {
        match self {
            ResampleMode::Nearest => "nearest",
            ResampleMode::Bilinear => "bilinear",
            ResampleMode::AveragePoolIncludePadding => "avgpool_include_padding",
            ResampleMode::AveragePoolExcludePadding => "avgpool_exclude_padding",
            ResampleMode::MaxPool => "maxpool",
        }
    }

    /// Whether windows are of whole elements.
    pub(crate) fn is_pooling(self) -> bool {
        !matches!(self, ResampleMode::Nearest | ResampleMode::Bilinear)
    }
}

impl PaddingMode {
    /// All kinds of padding.
    pub const ALL: [PaddingMode; 3] =
        [PaddingMode::Zero, PaddingMode::NegativeInfinity, PaddingMode::Edge];

    /// Name in messages and problem files.
    pub const fn name(self) -> &'static str {
        match self {
            PaddingMode::Zero => "zero",
            PaddingMode::NegativeInfinity => "negative_infinity",
            PaddingMode::Edge => "edge",
        }
    }
}

impl Resample {
    /// A resampling in the default precision with zeros around the image, without an index, with
    /// `alpha` 1 and `beta` 0, that does not propagate NaN in max pooling.
    pub fn new(pass: ResamplePass, mode: ResampleMode, sampling: Sampling) -> Resample {
        Resample {
            pass,
            mode,
            padding: PaddingMode::default(),
            math: Math::Default,
            nan: NanPropagation::NotPropagate,
            sampling,
            index: false,
            alpha: Real::new(1.0),
            beta: Real::new(0.0),
        }
    }

    /// The same without `alpha` and `beta`.
    #[must_use]
    pub(crate) fn unscaled(&self) -> Resample {
        Resample { alpha: Real::new(1.0), beta: Real::new(0.0), ..self.clone() }
    }

    /// Whether the result is the resampled image itself.
    pub(crate) fn is_unscaled(&self) -> bool {
        self.alpha.get() == 1.0 && !self.reads_result()
    }

    /// Whether the result's elements before are read.
    pub(crate) fn reads_result(&self) -> bool {
        self.beta.get() != 0.0
    }

    /// Whether the gradient is that of the elements of `x` that win.
    pub(crate) fn reads_image(&self) -> bool {
        self.pass == ResamplePass::Backward && self.mode == ResampleMode::MaxPool && !self.index
    }

    /// Whether the result is an element of the image, or padding.
    fn selects(&self) -> bool {
        let selects = matches!(self.mode, ResampleMode::Nearest | ResampleMode::MaxPool);
        selects && self.pass == ResamplePass::Forward
    }

    /// The precision by default for an operand of this type: i32 for integers of which elements
    /// are selected, f32 for all others.
    pub(super) fn usual_math(&self, operand: DType) -> Math {
        if self.selects() && operand.is_integer() { Math::I32 } else { Math::F32 }
    }

    /// Whether winners are found, not read.
    fn finds_winners(&self) -> bool {
        self.pass == ResamplePass::Forward || !self.index
    }

    /// The reduction along the spatial dimensions that it is: where all of an image is one window,
    /// which `alpha`, `beta` and an index do not ask more of.
    pub(crate) fn as_reduction(&self, image: &TensorDesc) -> Option<Reduction> {
        let Sampling { window_dims, pre_paddings, post_paddings, .. } = &self.sampling;
        let none = Fraction::from(0);
        let is_whole = image.dims[2..]
            .iter()
            .zip(window_dims)
            .all(|(extent, window)| *window == Fraction::from(*extent));
        let mut paddings = pre_paddings.iter().chain(post_paddings);
        let padded = paddings.any(|padding| *padding != none);
        let op = match self.mode {
            ResampleMode::AveragePoolIncludePadding | ResampleMode::AveragePoolExcludePadding => {
                ReductionOp::Avg
            }
            // A reduction propagates NaN.
            ResampleMode::MaxPool
                if self.nan == NanPropagation::Propagate || self.math == Math::I32 =>
            {
                ReductionOp::Max
            }
            _ => return None,
        };
        let forward = self.pass == ResamplePass::Forward;
        let plain = forward && !self.index && self.is_unscaled();
        (is_whole && !padded && plain).then_some(Reduction { op, math: self.math })
    }

    /// The dimensions of the resampled form of an image.
    fn resampled(&self, image: &TensorDesc) -> Result<Vec<i64>> {
        let (name, spatial) = (self.pass.name(), self.sampling.spatial_dims());
        let TensorDesc { name: tensor, dims, .. } = image;
        if dims.len() != spatial + 2 {
            return Err(Error::bad_param(format!(
                "{name}: `{tensor}` is {dims:?}, expected {} dimensions for {spatial} spatial ones",
                spatial + 2
            )));
        }
        let along = |(axis, extent): (usize, &i64)| self.sampling.outputs(name, axis, *extent);
        let outputs: Result<Vec<i64>> = dims[2..].iter().enumerate().map(along).collect();
        Ok([dims[..2].to_vec(), outputs?].concat())
    }

    /// Checks the attributes by themselves.
    fn check_attributes(&self) -> Result<()> {
        let name = self.pass.name();
        self.sampling.check(name, self.mode.is_pooling())?;
        if self.mode.is_pooling() {
            self.sampling.check_whole(name, self.mode.name())?;
        }
        let two = Fraction::from(2);
        let windows = &self.sampling.window_dims;
        if self.mode == ResampleMode::Bilinear && windows.iter().any(|window| *window != two) {
            return Err(Error::not_supported(format!(
                "{name}: window_dims is {}, the window of bilinear is 2",
                listed(windows)
            )));
        }
        if self.index && self.mode != ResampleMode::MaxPool {
            let mode = self.mode.name();
            let text = format!("{name}: {mode} has no index, which says what wins in maxpool");
            return Err(Error::not_supported(text));
        }
        check_factors(name, self.math.dtype(), [self.alpha, self.beta])
    }

    /// Checks the tensor of the winners.
    fn check_index(&self, index: &TensorDesc, y: &TensorDesc) -> Result<()> {
        let (name, TensorDesc { name: tensor, dims, dtype, .. }) = (self.pass.name(), index);
        if *dims != y.dims {
            return Err(Error::bad_param(format!(
                "{name}: index `{tensor}` is {dims:?}, `{}` is {:?}",
                y.name, y.dims
            )));
        }
        if !matches!(dtype, DType::I8 | DType::I32 | DType::I64) {
            let text = format!("{name}: index `{tensor}` is {dtype}, expected i8, i32 or i64");
            return Err(Error::bad_param(text));
        }
        let taps = self.sampling.window_dims.iter().map(|window| window.numerator() as f64);
        let (last, most) = (taps.product::<f64>() - 1.0, dtype.integer_range());
        match most {
            // Offsets are counted in 32 bits.
            Some((_, most)) if last > most.min(i32::MAX.into()) => Err(Error::bad_param(format!(
                "{name}: index `{tensor}` is {dtype}, offsets in a window of {} go to {last}",
                listed(&self.sampling.window_dims)
            ))),
            _ => Ok(()),
        }
    }
}

impl Semantics for Resample {
    fn name(&self) -> &'static str {
        self.pass.name()
    }

    fn slots(&self) -> Slots {
        let mut slots = match self.pass {
            ResamplePass::Forward => Slots::new(&["x"], &["y"]),
            ResamplePass::Backward => Slots::new(&["dy"], &["dx"]),
        };
        match self.pass {
            ResamplePass::Forward => slots.outputs.extend(self.index.then_some("index")),
            ResamplePass::Backward if self.index => slots.inputs.push("index"),
            ResamplePass::Backward => slots.inputs.extend(self.reads_image().then_some("x")),
        }
        let before = match self.pass {
            ResamplePass::Forward => "y_before",
            ResamplePass::Backward => "dx_before",
        };
        slots.inputs.extend(self.reads_result().then_some(before));
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    /// Gradients do not follow: several extents of an image have the same resampled form.
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        if self.pass == ResamplePass::Backward {
            return Ok(None);
        }
        self.check_attributes()?;
        let dims = self.resampled(inputs[0])?;
        Ok(Some(vec![dims; 1 + usize::from(self.index)]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.check_attributes()?;
        let (name, result) = (self.pass.name(), outputs[0]);
        let [image, small] = match self.pass {
            ResamplePass::Forward => [inputs[0], result],
            ResamplePass::Backward => [result, inputs[0]],
        };
        let expected = self.resampled(image)?;
        if small.dims != expected {
            return Err(Error::bad_param(format!(
                "{name}: `{}` should be {expected:?}: `{}` is {:?}, `{}` is {:?}",
                small.name, image.name, image.dims, small.name, small.dims
            )));
        }
        let spatial = &image.dims[2..];
        if self.padding == PaddingMode::Edge && spatial.contains(&0) && !small.is_empty() {
            let (tensor, dims) = (&image.name, &image.dims);
            let text = format!("{name}: `{tensor}` is {dims:?}, which has no edge");
            return Err(Error::bad_param(text));
        }
        let index = match self.pass {
            ResamplePass::Forward => outputs.get(1),
            ResamplePass::Backward => inputs.get(1),
        };
        if let Some(index) = index.filter(|_| self.index) {
            self.check_index(index, small)?;
        }
        if let Some(x) = inputs.get(1).filter(|x| self.reads_image() && x.dims != image.dims) {
            return Err(Error::bad_param(format!(
                "{name}: `{}` is {:?}, its gradient `{}` is {:?}",
                x.name, x.dims, image.name, image.dims
            )));
        }
        let before = if self.reads_result() { inputs.last() } else { None };
        check_before(name, before.copied(), result)
    }

    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        let indices = usize::from(self.pass == ResamplePass::Backward && self.index);
        for (slot, tensor) in inputs.iter().enumerate() {
            if slot == 0 || slot > indices {
                check_operand_types(self.name(), &[tensor])?;
            }
        }
        let selects = self.selects();
        if self.math == Math::I32 && !(selects && inputs[0].dtype.is_integer()) {
            let (name, dtype) = (&inputs[0].name, inputs[0].dtype);
            return Err(Error::bad_param(match selects {
                true => format!("{self}: `{name}` is {dtype}, math i32 accepts integers"),
                false => format!("{self}: not defined for math i32"),
            }));
        }
        Ok(())
    }

    fn resolve(&mut self, operands: &[DType]) {
        if self.math == Math::Default {
            self.math = self.usual_math(operands.first().copied().unwrap_or(DType::F32));
        }
    }

    /// What a mode does not ask for is as by default.
    fn normalise(&mut self) {
        if self.mode != ResampleMode::MaxPool || !self.finds_winners() {
            self.nan = NanPropagation::NotPropagate;
        }
        if self.mode == ResampleMode::AveragePoolExcludePadding {
            self.padding = PaddingMode::default();
        }
    }
}

impl fmt::Display for Resample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{{}", self.pass.name(), self.mode.name())?;
        if let (Math::F64 | Math::I32, Some(math)) = (self.math, self.math.name()) {
            write!(f, ", {math}")?;
        }
        for (name, values, may_be_zero) in self.sampling.attributes() {
            if !may_be_zero || values.iter().any(|value| value.numerator() != 0) {
                write!(f, ", {name}={}", listed(values))?;
            }
        }
        if self.padding != PaddingMode::default() {
            write!(f, ", padding={}", self.padding.name())?;
        }
        if self.nan == NanPropagation::Propagate {
            f.write_str(", propagate_nan")?;
        }
        for (name, value, usual) in [("alpha", self.alpha, 1.0), ("beta", self.beta, 0.0)] {
            if value.get() != usual {
                write!(f, ", {name}={}", value.get())?;
            }
        }
        f.write_str("}")
    }
}
