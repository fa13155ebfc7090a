//! Resampling, concatenation, reshaping, signals and random numbers with their tensors (sections
//! 8.2.2.11 and 8.2.2.21 to 8.2.2.24).

use kiln::expr::Real;
use kiln::graph::{
    Concatenate, Fraction, Op, PaddingMode as Padding, PassThrough, Resample, ResampleMode as Mode,
    ResamplePass, Reshape, Rng, Sampling, Signal,
};

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::operators::{math, nan};
use crate::backend::product::Product;
use crate::backend::products::{before, made};
use crate::backend::value::Value;
use crate::backend::values::{
    DescriptorType as D, PaddingMode, ResampleMode, RngDistribution, SignalMode,
};
use crate::status::Outcome;

/// Fractions of an attribute.
fn fractions(node: &Node, name: N) -> Outcome<Vec<Fraction>> {
    let fraction = |above, below| Ok(Fraction::new(above, below)?);
    match node.value(name) {
        Some(Value::Fractions(all)) => {
            all.into_iter().map(|of| fraction(of.numerator, of.denominator)).collect()
        }
        Some(Value::Integers(all)) => all.into_iter().map(|of| fraction(of, 1)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// A resampling or the gradient of one.
pub fn resample(node: &Node) -> Outcome<Product> {
    let forward = node.kind == D::OPERATION_RESAMPLE_FWD_DESCRIPTOR;
    let (pass, descriptor, operand, result, index, scales) = match forward {
        true => (
            ResamplePass::Forward,
            N::OPERATION_RESAMPLE_FWD_DESC,
            N::OPERATION_RESAMPLE_FWD_XDESC,
            N::OPERATION_RESAMPLE_FWD_YDESC,
            N::OPERATION_RESAMPLE_FWD_IDXDESC,
            [N::OPERATION_RESAMPLE_FWD_ALPHA, N::OPERATION_RESAMPLE_FWD_BETA],
        ),
        false => (
            ResamplePass::Backward,
            N::OPERATION_RESAMPLE_BWD_DESC,
            N::OPERATION_RESAMPLE_BWD_DYDESC,
            N::OPERATION_RESAMPLE_BWD_DXDESC,
            N::OPERATION_RESAMPLE_BWD_IDXDESC,
            [N::OPERATION_RESAMPLE_BWD_ALPHA, N::OPERATION_RESAMPLE_BWD_BETA],
        ),
    };
    let descriptor = node.node(descriptor)?;
    let mode = match ResampleMode(descriptor.integer(N::RESAMPLE_MODE) as i32) {
        ResampleMode::NEAREST => Mode::Nearest,
        ResampleMode::BILINEAR => Mode::Bilinear,
        ResampleMode::AVGPOOL_EXCLUDE_PADDING => Mode::AveragePoolExcludePadding,
        ResampleMode::MAXPOOL => Mode::MaxPool,
        _ => Mode::AveragePoolIncludePadding,
    };
    let padding = match PaddingMode(descriptor.integer(N::RESAMPLE_PADDING_MODE) as i32) {
        PaddingMode::NEG_INF_PAD => Padding::NegativeInfinity,
        PaddingMode::EDGE_VAL_PAD => Padding::Edge,
        _ => Padding::Zero,
    };
    let [alpha, beta] = scales.map(|name| Real::new(node.float(name)));
    let index = node.optional_tensor(index)?;
    let op = Resample {
        pass,
        mode,
        padding,
        math: math(&descriptor, N::RESAMPLE_COMP_TYPE)?,
        nan: nan(&descriptor, N::RESAMPLE_NAN_PROPAGATION),
        sampling: Sampling {
            window_dims: fractions(&descriptor, N::RESAMPLE_WINDOW_DIMS)?,
            strides: fractions(&descriptor, N::RESAMPLE_STRIDES)?,
            pre_paddings: fractions(&descriptor, N::RESAMPLE_PRE_PADDINGS)?,
            post_paddings: fractions(&descriptor, N::RESAMPLE_POST_PADDINGS)?,
        },
        index: index.is_some(),
        alpha,
        beta,
    };
    let result = node.tensor(result)?;
    let (mut inputs, mut outputs) = (vec![node.tensor(operand)?], vec![result.clone()]);
    match (forward, index) {
        (true, index) => outputs.extend(index),
        (false, Some(index)) => inputs.push(index),
        // The gradient of max pooling finds the winners in the image.
        (false, None) if mode == Mode::MaxPool => {
            inputs.push(node.tensor(N::OPERATION_RESAMPLE_BWD_XDESC)?);
        }
        (false, None) => {}
    }
    inputs.extend((beta.get() != 0.0).then(|| before(&result)));
    let name = if forward { "resample_forward" } else { "resample_backward" };
    made(name, Op::Resample(op), inputs, outputs)
}

/// A concatenation.
pub fn concat(node: &Node) -> Outcome<Product> {
    let inputs = node.tensors(N::OPERATION_CONCAT_INPUT_DESCS)?;
    let op = Concatenate {
        axis: node.integer(N::OPERATION_CONCAT_AXIS),
        operands: inputs.len(),
        in_place: node.integers(N::OPERATION_CONCAT_INPLACE_INDEX).first().copied(),
    };
    let output = node.tensor(N::OPERATION_CONCAT_OUTPUT_DESC)?;
    made("concat", Op::Concatenate(op), inputs, vec![output])
}

/// A reshape.
pub fn reshape(node: &Node) -> Outcome<Product> {
    let x = node.tensor(N::OPERATION_RESHAPE_XDESC)?;
    let y = node.tensor(N::OPERATION_RESHAPE_YDESC)?;
    made("reshape", Op::Reshape(Reshape), vec![x], vec![y])
}

/// A signal.
pub fn signal(node: &Node) -> Outcome<Product> {
    let flag = node.tensor(N::OPERATION_SIGNAL_FLAGDESC)?;
    let x = node.tensor(N::OPERATION_SIGNAL_XDESC)?;
    let y = node.optional_tensor(N::OPERATION_SIGNAL_YDESC)?;
    let set = SignalMode(node.integer(N::OPERATION_SIGNAL_MODE) as i32) == SignalMode::SET;
    let pass = if y.is_some() { PassThrough::Default } else { PassThrough::Nothing };
    let value = node.integer(N::OPERATION_SIGNAL_VALUE);
    let op = Signal { pass, ..if set { Signal::set(value) } else { Signal::wait(value) } };
    let (inputs, mut outputs) = match set {
        true => (vec![x], vec![flag]),
        false => (vec![flag, x], Vec::new()),
    };
    outputs.extend(y);
    made("signal", Op::Signal(op), inputs, outputs)
}

/// Random numbers.
pub fn rng(node: &Node) -> Outcome<Product> {
    let descriptor = node.node(N::OPERATION_RNG_DESC)?;
    let of = |name| descriptor.float(name);
    let number = descriptor.integer(N::RNG_DISTRIBUTION) as i32;
    let op = match RngDistribution(number) {
        RngDistribution::NORMAL => {
            let [mean, deviation] =
                [N::RNG_NORMAL_DIST_MEAN, N::RNG_NORMAL_DIST_STANDARD_DEVIATION].map(of);
            Rng::normal(mean, deviation)
        }
        RngDistribution::UNIFORM => {
            let [least, most] = [N::RNG_UNIFORM_DIST_MINIMUM, N::RNG_UNIFORM_DIST_MAXIMUM].map(of);
            Rng::uniform(least, most)
        }
        _ => Rng::bernoulli(of(N::RNG_BERNOULLI_DIST_PROBABILITY)),
    };
    let seed = node.optional_tensor(N::OPERATION_RNG_SEED)?;
    let by_value = seed.is_none().then(|| node.integer(N::OPERATION_RNG_SEED));
    let mut inputs: Vec<_> = seed.into_iter().collect();
    inputs.push(node.tensor(N::OPERATION_RNG_OFFSET_DESC)?);
    let output = node.tensor(N::OPERATION_RNG_YDESC)?;
    made("rng", Op::Rng(op.seed(by_value)), inputs, vec![output])
}
