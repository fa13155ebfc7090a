//! Convolution and its gradients.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Real;
use crate::graph::MatmulMath;
use crate::graph::scaling::{check_before, check_factors};
use crate::graph::semantics::{Semantics, check_operand_types};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// The most spatial dimensions.
pub const SPATIAL_MAX: usize = 3;

/// What a convolution computes of its image `x`, its filter `w` and its response `y`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConvolutionPass {
    /// `y` of `x` and `w` (section 8.2.2.14).
    Forward,
    /// The gradient `dx` of `w` and `dy` (section 8.2.2.12).
    BackwardData,
    /// The gradient `dw` of `x` and `dy` (section 8.2.2.13).
    BackwardFilter,
}

/// In which order a filter's taps meet the image (`mcdnnConvolutionMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ConvolutionMode {
    /// The last tap first: the filter is reversed along every spatial dimension.
    Convolution,
    /// The first tap first, as deep learning has it.
    #[default]
    CrossCorrelation,
}

/// How a filter moves over an image, a number for each spatial dimension.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Window {
    /// Elements of the image between neighbouring responses, at least 1.
    pub filter_strides: Vec<i64>,
    /// Elements of the image between neighbouring taps, at least 1.
    pub dilations: Vec<i64>,
    /// Zeros in front of the image, at least 0.
    pub pre_paddings: Vec<i64>,
    /// Zeros behind the image, at least 0.
    pub post_paddings: Vec<i64>,
}

/// `result = alpha * convolution + beta * before`, where `before` is what the result's memory held
/// (`MCDNN_BACKEND_CONVOLUTION_DESCRIPTOR`, section 8.2.2.1, and the operations on it).
///
/// Images are `[N, G * C, ...]` or `[N, G, C, ...]`, filters `[G * K, C, ...]` or
/// `[G, K, C, ...]` and responses `[N, G * K, ...]` or `[N, G, K, ...]` with 1 to 3 spatial
/// dimensions, `G` groups of `C` and `K` channels each. Forward, with taps `t` and zeros beyond the
/// image,
///
/// `y[n, g, k, o] = sum over c, t of x[n, g, c, o * stride - pre + t * dilation] * w[g, k, c, t]`.
///
/// Operands are rounded to the math precision. The sum is rounded to it, and to the result's type
/// if `alpha` is 1 and `beta` 0; else it is scaled in f32, or f64, and the result is rounded once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Which of the three tensors is computed.
    pub pass: ConvolutionPass,
    /// Precision of the computation.
    pub math: MatmulMath,
    /// Order of the taps.
    pub mode: ConvolutionMode,
    /// How the filter moves.
    pub window: Window,
    /// Factor of the convolution.
    pub alpha: Real,
    /// Factor of the result's elements before; where it is 0 they are not read.
    pub beta: Real,
}

/// The extents of a convolution, whichever of its tensors is computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConvolutionShape {
    /// Images.
    pub n: i64,
    /// Groups.
    pub groups: i64,
    /// Channels of a group's image.
    pub c: i64,
    /// Channels of a group's response.
    pub k: i64,
    /// Spatial extents of the image, the filter and the response.
    pub image: Vec<i64>,
    /// See `image`.
    pub filter: Vec<i64>,
    /// See `image`.
    pub response: Vec<i64>,
}

impl ConvolutionShape {
    /// The dimensions of the response, with groups as a dimension of their own or not.
    fn response_dims(&self, group_axis: bool) -> Vec<i64> {
        let ConvolutionShape { n, groups, k, response, .. } = self;
        let channels = if group_axis { vec![*groups, *k] } else { vec![groups * k] };
        [&[*n], &channels[..], response].concat()
    }
}

impl ConvolutionPass {
    /// All passes.
    pub const ALL: [ConvolutionPass; 3] =
        [ConvolutionPass::Forward, ConvolutionPass::BackwardData, ConvolutionPass::BackwardFilter];

    /// Name of the operation in messages and problem files.
    pub fn name(self) -> &'static str {
        match self {
            ConvolutionPass::Forward => "convolution_forward",
            ConvolutionPass::BackwardData => "convolution_backward_data",
            ConvolutionPass::BackwardFilter => "convolution_backward_filter",
        }
    }

    /// The operands, the result, and the result's elements before.
    fn tensors(self) -> ([&'static str; 2], &'static str, &'static str) {
        match self {
            ConvolutionPass::Forward => (["x", "w"], "y", "y_before"),
            ConvolutionPass::BackwardData => (["w", "dy"], "dx", "dx_before"),
            ConvolutionPass::BackwardFilter => (["x", "dy"], "dw", "dw_before"),
        }
    }

    /// Operands and result in the order image, filter, response.
    pub(crate) fn roles<T>(self, [first, second]: [T; 2], result: T) -> [T; 3] {
        match self {
            ConvolutionPass::Forward => [first, second, result],
            ConvolutionPass::BackwardData => [result, first, second],
            ConvolutionPass::BackwardFilter => [first, result, second],
        }
    }
}

impl ConvolutionMode {
    /// Name in problem files.
    pub const fn name(self) -> &'static str {
        match self {
            ConvolutionMode::Convolution => "convolution",
            ConvolutionMode::CrossCorrelation => "cross_correlation",
        }
    }
}

impl Window {
    /// A window without padding that meets every element, over this many spatial dimensions.
    pub fn unit(spatial_dims: usize) -> Window {
        let [ones, zeros] = [1, 0].map(|value| vec![value; spatial_dims]);
        Window {
            filter_strides: ones.clone(),
            dilations: ones,
            pre_paddings: zeros.clone(),
            post_paddings: zeros,
        }
    }

    /// Spatial dimensions.
    pub fn spatial_dims(&self) -> usize {
        self.filter_strides.len()
    }

    /// The attributes by name, each with the least value that it may have.
    pub(crate) fn attributes(&self) -> [(&'static str, &Vec<i64>, i64); 4] {
        [
            ("filter_strides", &self.filter_strides, 1),
            ("dilations", &self.dilations, 1),
            ("pre_paddings", &self.pre_paddings, 0),
            ("post_paddings", &self.post_paddings, 0),
        ]
    }

    fn check(&self, name: &str) -> Result<()> {
        let dims = self.spatial_dims();
        if dims == 0 || dims > SPATIAL_MAX {
            return Err(Error::not_supported(format!(
                "{name}: {dims} spatial dimensions, expected 1 to {SPATIAL_MAX}"
            )));
        }
        for (attribute, values, least) in self.attributes() {
            if values.len() != dims {
                return Err(Error::bad_param(format!(
                    "{name}: {attribute} has {} numbers, filter_strides {dims}",
                    values.len()
                )));
            }
            if let Some(value) = values.iter().find(|value| **value < least) {
                return Err(Error::bad_param(format!(
                    "{name}: {attribute} is {values:?}, {value} is less than {least}"
                )));
            }
        }
        Ok(())
    }

    /// The extent of the response along a spatial dimension; `None` where the filter does not fit
    /// into the padded image, has no taps, or a number overflows.
    fn response(&self, axis: usize, image: i64, filter: i64) -> Option<i64> {
        let padded = image.checked_add(self.pre_paddings[axis])?;
        let padded = padded.checked_add(self.post_paddings[axis])?;
        let reach = self.dilations[axis].checked_mul(filter - 1)?.checked_add(1)?;
        let rest = padded.checked_sub(reach).filter(|rest| *rest >= 0 && filter > 0)?;
        Some(1 + rest / self.filter_strides[axis])
    }
}

impl Convolution {
    /// A cross-correlation in this precision, with `alpha` 1 and `beta` 0.
    pub fn new(pass: ConvolutionPass, math: MatmulMath, window: Window) -> Convolution {
        let [one, zero] = [1.0, 0.0].map(Real::new);
        let mode = ConvolutionMode::CrossCorrelation;
        Convolution { pass, math, mode, window, alpha: one, beta: zero }
    }

    /// The same without `alpha` and `beta`.
    #[must_use]
    pub(crate) fn unscaled(&self) -> Convolution {
        let plain = Convolution::new(self.pass, self.math, self.window.clone());
        Convolution { mode: self.mode, ..plain }
    }

    /// Whether the result is the convolution itself.
    pub(crate) fn is_unscaled(&self) -> bool {
        self.alpha.get() == 1.0 && !self.reads_result()
    }

    /// Whether the result's elements before are read.
    pub(crate) fn reads_result(&self) -> bool {
        self.beta.get() != 0.0
    }

    /// The extents, from the tensors in the order image, filter, response.
    ///
    /// # Errors
    /// `BadParam` naming the tensors that are no convolution.
    pub(crate) fn shape(&self, tensors: [&TensorDesc; 3]) -> Result<ConvolutionShape> {
        let shape = self.shape_without_response([tensors[0], tensors[1]], tensors)?;
        let [image, _, response] = tensors;
        let expected = shape.response_dims(self.has_group_axis(image));
        match response.dims == expected {
            true => Ok(shape),
            false => self.fail(tensors, format_args!("the response should be {expected:?}")),
        }
    }

    /// Whether groups are a dimension of their own.
    pub(crate) fn has_group_axis(&self, image: &TensorDesc) -> bool {
        image.dims.len() == self.window.spatial_dims() + 3
    }

    fn shape_without_response(
        &self,
        [image, filter]: [&TensorDesc; 2],
        all: [&TensorDesc; 3],
    ) -> Result<ConvolutionShape> {
        let spatial = self.window.spatial_dims();
        let rank = image.dims.len();
        if rank != spatial + 2 && rank != spatial + 3 {
            return self.fail(
                all,
                format_args!(
                    "expected {} or {} dimensions for {spatial} spatial ones",
                    spatial + 2,
                    spatial + 3
                ),
            );
        }
        if all.iter().any(|tensor| tensor.dims.len() != rank) {
            return self.fail(all, format_args!("tensors differ in rank"));
        }
        let (x, w) = (&image.dims, &filter.dims);
        let (groups, c, k) = if rank == spatial + 3 {
            if x[1] != w[0] || x[2] != w[2] {
                return self.fail(
                    all,
                    format_args!(
                        "the image has {} groups of {} channels, the filter {} of {}",
                        x[1], x[2], w[0], w[2]
                    ),
                );
            }
            (w[0], w[2], w[1])
        } else {
            let groups = match w[1] {
                0 if x[1] == 0 => Some(1),
                0 => None,
                c => (x[1] % c == 0).then_some(x[1] / c),
            };
            let Some(groups) = groups else {
                return self.fail(
                    all,
                    format_args!("{} channels of the image are no groups of {}", x[1], w[1]),
                );
            };
            // Without channels of the image there are as many groups of the filter as one likes.
            if groups > 0 && w[0] % groups != 0 {
                return self.fail(
                    all,
                    format_args!(
                        "{} channels of the response do not divide into {groups} groups",
                        w[0]
                    ),
                );
            }
            (groups, w[1], if groups > 0 { w[0] / groups } else { 0 })
        };
        let extents = |dims: &[i64]| dims[rank - spatial..].to_vec();
        let (image, taps) = (extents(x), extents(w));
        let mut response = Vec::new();
        for axis in 0..spatial {
            let Some(extent) = self.window.response(axis, image[axis], taps[axis]) else {
                let Window { dilations, pre_paddings, post_paddings, .. } = &self.window;
                return self.fail(
                    all,
                    format_args!(
                        "{} taps {} apart do not fit into {} elements with paddings of {} and {}",
                        taps[axis],
                        dilations[axis],
                        image[axis],
                        pre_paddings[axis],
                        post_paddings[axis]
                    ),
                );
            };
            response.push(extent);
        }
        Ok(ConvolutionShape { n: x[0], groups, c, k, image, filter: taps, response })
    }

    fn fail<T>(&self, tensors: [&TensorDesc; 3], rule: fmt::Arguments<'_>) -> Result<T> {
        let shown = tensors.map(|tensor| format!("`{}` is {:?}", tensor.name, tensor.dims));
        let name = Semantics::name(self);
        Err(Error::bad_param(format!("{name}: {rule}: {}", shown.join(", "))))
    }
}

impl Semantics for Convolution {
    fn name(&self) -> &'static str {
        self.pass.name()
    }

    fn slots(&self) -> Slots {
        let (operands, result, before) = self.pass.tensors();
        let mut slots = Slots::new(&operands, &[result]);
        slots.inputs.extend(self.reads_result().then_some(before));
        slots
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    /// Gradients do not follow: several extents of an image have the same response.
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        if self.pass != ConvolutionPass::Forward {
            return Ok(None);
        }
        self.window.check(self.name())?;
        let [x, w] = [inputs[0], inputs[1]];
        // The filter stands in for the response, which has the same rank.
        let shape = self.shape_without_response([x, w], [x, w, w])?;
        Ok(Some(vec![shape.response_dims(self.has_group_axis(x))]))
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.window.check(self.name())?;
        let result = outputs[0];
        self.shape(self.pass.roles([inputs[0], inputs[1]], result))?;
        check_factors(self.name(), self.math.dtype(), [self.alpha, self.beta])?;
        for tensor in &inputs[..2] {
            let integer = matches!(tensor.dtype, DType::I32 | DType::I8 | DType::U8);
            if self.math == MatmulMath::I32 && !integer {
                let (name, tensor, dtype) = (self.name(), &tensor.name, tensor.dtype);
                let text =
                    format!("{name}: `{tensor}` is {dtype}, math i32 accepts i32, i8 and u8");
                return Err(Error::bad_param(text));
            }
        }
        check_before(self.name(), inputs.get(2).copied(), result)
    }

    fn check_types(&self, inputs: &[&TensorDesc]) -> Result<()> {
        check_operand_types(self.name(), inputs)
    }

    fn resolve(&mut self, _operands: &[DType]) {}
}

impl fmt::Display for Convolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pass.name())?;
        let mut attributes = Vec::new();
        if self.math != MatmulMath::F32 {
            attributes.push(self.math.name().to_owned());
        }
        for (name, values, least) in self.window.attributes() {
            if values.iter().any(|value| *value != least) {
                attributes.push(format!("{name}={values:?}"));
            }
        }
        if self.mode == ConvolutionMode::Convolution {
            attributes.push("reversed".to_owned());
        }
        for (name, value, usual) in [("alpha", self.alpha, 1.0), ("beta", self.beta, 0.0)] {
            if value.get() != usual {
                attributes.push(format!("{name}={}", value.get()));
            }
        }
        match attributes.is_empty() {
            true => Ok(()),
            false => write!(f, "{{{}}}", attributes.join(", ")),
        }
    }
}
