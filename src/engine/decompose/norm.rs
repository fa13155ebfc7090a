//! Normalisations and their gradients.

use crate::engine::decompose::calculus::Calculus;
use crate::engine::decompose::named::Named;
use crate::expr::{Mode, Pointwise};
use crate::graph::{NormBackward, NormForward, NormMode, ReductionOp};

/// What a normalisation subtracts and multiplies with.
struct Statistics {
    /// `x`, less the mean where one is subtracted.
    deviation: i64,
    mean: Option<i64>,
    inverse: i64,
    /// The biased variance, where it is computed.
    variance: Option<i64>,
}

/// The dimensions of the statistics: 1 along what is normalised together. The channels are the
/// axis after the first, or two axes of groups and the channels of each.
fn statistics_dims(mode: NormMode, x: &[i64], scale: &[i64], channel_axes: usize) -> Vec<i64> {
    let left = |(axis, (x, scale)): (usize, (&i64, &i64))| {
        let kept = match mode {
            NormMode::Layer | NormMode::Rms => *scale == 1,
            NormMode::Instance => axis <= channel_axes,
            NormMode::Batch => (1..=channel_axes).contains(&axis),
            NormMode::Group(_) => axis <= 1,
        };
        if kept { *x } else { 1 }
    };
    x.iter().zip(scale).enumerate().map(left).collect()
}

/// The statistics that are given, else those of `x`.
fn statistics(
    calculus: &mut Calculus,
    mode: NormMode,
    dims: &[i64],
    x: i64,
    named: &Named<'_>,
) -> Statistics {
    let given = named.given("inv_variance");
    let mean = match (mode.centred(), given) {
        (false, _) => None,
        (true, Some(_)) => Some(named.operand("mean")),
        (true, None) => Some(calculus.reduce(ReductionOp::Avg, x, dims)),
    };
    let deviation = match mean {
        Some(mean) => calculus.binary("deviation", Mode::Sub, x, mean),
        None => x,
    };
    if let Some(inverse) = given {
        return Statistics { deviation, mean, inverse, variance: None };
    }
    let square = calculus.binary("square", Mode::Mul, deviation, deviation);
    let variance = calculus.reduce_named("variance", ReductionOp::Avg, square, dims);
    let inverse = inverse_deviation(calculus, variance, named.operand("epsilon"));
    Statistics { deviation, mean, inverse, variance: Some(variance) }
}

/// `1 / sqrt(variance + epsilon)`.
pub(super) fn inverse_deviation(calculus: &mut Calculus, variance: i64, epsilon: i64) -> i64 {
    let raised = calculus.binary("raised", Mode::Add, variance, epsilon);
    calculus.unary("inverse", Mode::Rsqrt, raised)
}

pub(super) fn forward(
    calculus: &mut Calculus,
    op: &NormForward,
    channel_axes: usize,
    named: &Named<'_>,
) {
    let (x, scale, y) = (named.operand("x"), named.operand("scale"), named.result("y"));
    let dims = statistics_dims(op.mode, calculus.dims(x), calculus.dims(scale), channel_axes);
    let Statistics { deviation, mean, inverse, variance } =
        statistics(calculus, op.mode, &dims, x, named);
    let normal = calculus.binary("normal", Mode::Mul, deviation, inverse);
    match named.given("bias") {
        Some(bias) => {
            let scaled = calculus.binary("scaled", Mode::Mul, normal, scale);
            calculus.apply_into(Pointwise::new(Mode::Add), &[scaled, bias], y);
        }
        None => calculus.apply_into(Pointwise::new(Mode::Mul), &[normal, scale], y),
    }
    for (value, slot) in [(mean, "mean"), (Some(inverse), "inv_variance")] {
        if let (Some(value), Some(result)) = (value, named.wanted(slot)) {
            calculus.store(value, result);
        }
    }
    if op.running {
        let mean = mean.expect("batch norm is centred");
        running_average(calculus, mean, named, ["input_running_mean", "output_running_mean"]);
        let count = calculus.dims(x).iter().zip(&dims).filter(|(_, dim)| **dim == 1);
        let count = count.map(|(x, _)| *x as f64).product::<f64>();
        let biased = variance.expect("training computes it");
        let unbiased = calculus.scaled("unbiased", biased, count / (count - 1.0).max(1.0));
        running_average(calculus, unbiased, named, ["input_running_var", "output_running_var"]);
    }
}

/// `old + factor * (new - old)`, of and to these slots.
pub(super) fn running_average(
    calculus: &mut Calculus,
    new: i64,
    named: &Named<'_>,
    [old, updated]: [&str; 2],
) {
    let old = named.operand(old);
    let change = calculus.binary("change", Mode::Sub, new, old);
    let step = calculus.binary("share", Mode::Mul, named.operand("exp_avg_factor"), change);
    calculus.apply_into(Pointwise::new(Mode::Add), &[old, step], named.result(updated));
}

pub(super) fn backward(
    calculus: &mut Calculus,
    op: &NormBackward,
    channel_axes: usize,
    named: &Named<'_>,
) {
    let (x, dy, scale) = (named.operand("x"), named.operand("dy"), named.operand("scale"));
    let parameters = calculus.dims(scale).to_vec();
    let dims = statistics_dims(op.mode, calculus.dims(x), &parameters, channel_axes);
    let Statistics { deviation, mean, inverse, .. } =
        statistics(calculus, op.mode, &dims, x, named);
    let normal = calculus.binary("normal", Mode::Mul, deviation, inverse);
    let scaled = calculus.binary("scaled", Mode::Mul, dy, scale);
    let product = calculus.binary("product", Mode::Mul, scaled, normal);
    let along = calculus.reduce_named("along", ReductionOp::Avg, product, &dims);
    let flat = match op.mode.centred() {
        true => {
            let level = calculus.reduce_named("level", ReductionOp::Avg, scaled, &dims);
            calculus.binary("flat", Mode::Sub, scaled, level)
        }
        false => scaled,
    };
    let part = calculus.binary("part", Mode::Mul, normal, along);
    let rest = calculus.binary("rest", Mode::Sub, flat, part);
    calculus.apply_into(Pointwise::new(Mode::Mul), &[rest, inverse], named.result("dx"));
    // Another kernel sums up what crosses rows: it computes the elements anew from `x`, which has
    // fewer bytes than they.
    let normal = match (mean, crosses(&dims, &parameters)) {
        (Some(mean), true) => {
            let deviation = calculus.binary("deviation", Mode::Sub, x, mean);
            calculus.binary("normal", Mode::Mul, deviation, inverse)
        }
        _ => normal,
    };
    let gradient = calculus.binary("gradient", Mode::Mul, dy, normal);
    let dscale = total(calculus, gradient, &dims, &parameters);
    calculus.store(dscale, named.result("dscale"));
    if let Some(dbias) = named.wanted("dbias") {
        let sum = total(calculus, dy, &dims, &parameters);
        calculus.store(sum, dbias);
    }
}

/// The sums down to the dimensions of the parameters: where rows are finer, of each row first, for
/// which no element is read again.
fn total(calculus: &mut Calculus, value: i64, rows: &[i64], parameters: &[i64]) -> i64 {
    let finer = rows.iter().zip(parameters).all(|(row, own)| row == own || *own == 1);
    let value = if finer && rows != parameters {
        calculus.reduce(ReductionOp::Add, value, rows)
    } else {
        value
    };
    calculus.reduce(ReductionOp::Add, value, parameters)
}

/// Whether parameters share some of the dimensions of rows and have others.
fn crosses(rows: &[i64], parameters: &[i64]) -> bool {
    let mut pairs = rows.iter().zip(parameters);
    let shares = pairs.clone().any(|(row, own)| *row != 1 && *own != 1);
    shares && pairs.any(|(row, own)| *row == 1 && *own != 1)
}
