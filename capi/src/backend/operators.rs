//! What operations compute, without their tensors: pointwise, convolution, resampling, random
//! numbers (sections 8.2.2.1 and 8.2.2.26 to 8.2.2.29).

use kiln::expr::{Math, Mode, NanPropagation as Nan, Pointwise, Real};
use kiln::graph::MatmulMath;

use crate::backend::names::AttributeName as N;
use crate::backend::node::Node;
use crate::backend::product::Product;
use crate::backend::values::{PointwiseMode, RngDistribution};
use crate::status::{Outcome, bad, refuse};
use crate::values::{DataType, NanPropagation};

/// The precision of pointwise operations, reductions and norms.
pub fn math(node: &Node, name: N) -> Outcome<Math> {
    Ok(match DataType(node.integer(name) as i32) {
        DataType::FLOAT | DataType::HALF | DataType::BFLOAT16 => Math::F32,
        DataType::DOUBLE => Math::F64,
        DataType::INT32 => Math::I32,
        other => return refuse(format!("{} is {}", name.shown(), DataType::TABLE.shown(other.0))),
    })
}

/// The precision of matrix multiplications and convolutions.
pub fn matmul_math(node: &Node, name: N) -> Outcome<MatmulMath> {
    Ok(match math(node, name)? {
        Math::F64 => MatmulMath::F64,
        Math::I32 => MatmulMath::I32,
        _ => MatmulMath::F32,
    })
}

/// The rule of an attribute for NaN.
pub fn nan(node: &Node, name: N) -> Nan {
    NanPropagation(node.integer(name) as i32).rule()
}

/// What its attributes say is all.
pub fn plain(_: &Node) -> Outcome<Product> {
    Ok(Product::Plain)
}

/// Checks a pointwise descriptor.
pub fn pointwise(node: &Node) -> Outcome<Product> {
    pointwise_of(node).map(|_| Product::Plain)
}

/// The pointwise operation of a descriptor.
pub fn pointwise_of(node: &Node) -> Outcome<Pointwise> {
    let number = PointwiseMode(node.integer(N::POINTWISE_MODE) as i32);
    let Some(mode) = mode(number) else {
        return refuse(format!("mode {}", PointwiseMode::TABLE.shown(number.0)));
    };
    let real = |name| Real::new(node.float(name));
    let clips = [N::POINTWISE_RELU_LOWER_CLIP, N::POINTWISE_RELU_UPPER_CLIP];
    let [lower, upper] = clips.map(|name| node.float(name));
    if lower > upper {
        return bad(format!("the lower clip is {lower}, the upper one {upper}"));
    }
    Ok(Pointwise {
        math: math(node, N::POINTWISE_MATH_PREC)?,
        nan: nan(node, N::POINTWISE_NAN_PROPAGATION),
        relu_lower_clip: Real::new(lower),
        relu_upper_clip: Real::new(if upper >= f64::from(f32::MAX) {
            f64::INFINITY
        } else {
            upper
        }),
        relu_lower_clip_slope: real(N::POINTWISE_RELU_LOWER_CLIP_SLOPE),
        elu_alpha: real(N::POINTWISE_ELU_ALPHA),
        softplus_beta: real(N::POINTWISE_SOFTPLUS_BETA),
        swish_beta: real(N::POINTWISE_SWISH_BETA),
        axis: node.integer(N::POINTWISE_AXIS),
        ..Pointwise::new(mode)
    })
}

/// The mode of a number: names are alike.
fn mode(number: PointwiseMode) -> Option<Mode> {
    let name = PointwiseMode::TABLE.value(number.0)?;
    let name = name.strip_prefix(PointwiseMode::TABLE.prefix)?.to_ascii_lowercase();
    Mode::ALL.iter().copied().find(|mode| mode.name() == name)
}

/// Checks a convolution descriptor.
pub fn convolution(node: &Node) -> Outcome<Product> {
    matmul_math(node, N::CONVOLUTION_COMP_TYPE)?;
    let spatial = node.integer(N::CONVOLUTION_SPATIAL_DIMS);
    let rules = [
        (N::CONVOLUTION_DILATIONS, 1),
        (N::CONVOLUTION_FILTER_STRIDES, 1),
        (N::CONVOLUTION_PRE_PADDINGS, 0),
        (N::CONVOLUTION_POST_PADDINGS, 0),
    ];
    if spatial < 1 {
        return bad(format!("{spatial} spatial dimensions"));
    }
    for (name, least) in rules {
        let all = node.integers(name);
        if all.len() as i64 != spatial {
            let (name, count) = (name.shown(), all.len());
            return bad(format!("{name} has {count} elements of {spatial} dimensions"));
        }
        if let Some(value) = all.iter().find(|value| **value < least) {
            return bad(format!("{} has {value}, expected at least {least}", name.shown()));
        }
    }
    Ok(Product::Plain)
}

/// Checks a resample descriptor.
pub fn resample(node: &Node) -> Outcome<Product> {
    math(node, N::RESAMPLE_COMP_TYPE)?;
    let spatial = node.integer(N::RESAMPLE_SPATIAL_DIMS);
    let all = [
        N::RESAMPLE_POST_PADDINGS,
        N::RESAMPLE_PRE_PADDINGS,
        N::RESAMPLE_STRIDES,
        N::RESAMPLE_WINDOW_DIMS,
    ];
    for name in all {
        let count = node.value(name).map_or(0, |value| value.count());
        if count as i64 != spatial {
            return refuse(format!("{} has {count} elements of {spatial}", name.shown()));
        }
    }
    Ok(Product::Plain)
}

/// Checks a descriptor of random numbers.
pub fn rng(node: &Node) -> Outcome<Product> {
    match RngDistribution(node.integer(N::RNG_DISTRIBUTION) as i32) {
        RngDistribution::NORMAL => {
            let deviation = node.float(N::RNG_NORMAL_DIST_STANDARD_DEVIATION);
            if deviation < 0.0 {
                return bad(format!("the standard deviation is {deviation}"));
            }
        }
        RngDistribution::UNIFORM => {
            let range = [N::RNG_UNIFORM_DIST_MINIMUM, N::RNG_UNIFORM_DIST_MAXIMUM];
            let [least, most] = range.map(|name| node.float(name));
            if most < least {
                return bad(format!("the maximum is {most}, the minimum {least}"));
            }
        }
        _ => {
            let probability = node.float(N::RNG_BERNOULLI_DIST_PROBABILITY);
            if !(0.0..=1.0).contains(&probability) {
                return bad(format!("the probability is {probability}, expected 0 to 1"));
            }
        }
    }
    Ok(Product::Plain)
}
