//! The parts of a batch normalisation that is split around other operations.

use crate::engine::decompose::calculus::Calculus;
use crate::engine::decompose::named::Named;
use crate::engine::decompose::norm::{inverse_deviation, running_average};
use crate::expr::{Mode, NanPropagation, Pointwise};
use crate::graph::{BnFinalize, Phase, ReductionOp};

pub(super) fn generate(calculus: &mut Calculus, named: &Named<'_>) {
    let (x, sum, sq_sum) = (named.operand("x"), named.result("sum"), named.result("sq_sum"));
    let dims = calculus.dims(sum).to_vec();
    let total = calculus.reduce(ReductionOp::Add, x, &dims);
    calculus.store(total, sum);
    let square = calculus.binary("square", Mode::Mul, x, x);
    let squares = calculus.reduce_named("squares", ReductionOp::Add, square, &dims);
    calculus.store(squares, sq_sum);
}

/// The same as reductions alone, whose results nothing reads.
pub(super) fn sums(calculus: &mut Calculus, named: &Named<'_>) {
    let x = named.operand("x");
    calculus.reduce_into(ReductionOp::Add, x, named.result("sum"));
    let square = calculus.binary("square", Mode::Mul, x, x);
    calculus.reduce_into(ReductionOp::Add, square, named.result("sq_sum"));
}

pub(super) fn finalize(calculus: &mut Calculus, op: &BnFinalize, named: &Named<'_>) {
    let (mean, variance) = match op.phase {
        Phase::Inference => (named.operand("prev_running_mean"), named.operand("prev_running_var")),
        Phase::Training => {
            let count = named.operand("accum_count");
            let mean = calculus.binary("mean", Mode::Div, named.operand("sum"), count);
            let square = calculus.binary("square", Mode::Div, named.operand("sq_sum"), count);
            let product = calculus.binary("product", Mode::Mul, mean, mean);
            let difference = calculus.binary("difference", Mode::Sub, square, product);
            // Cancellation may yield a negative variance, which is clamped to 0. NaN propagates,
            // and a square of the mean that overflows gives NaN.
            let positive = Pointwise::new(Mode::ReluFwd).nan(NanPropagation::Propagate);
            let clamped = calculus.apply("clamped", positive, &[difference]);
            let zero_or_nan = calculus.binary("zero_or_nan", Mode::Sub, product, product);
            (mean, calculus.binary("variance", Mode::Add, clamped, zero_or_nan))
        }
    };
    let inverse = inverse_deviation(calculus, variance, named.operand("epsilon"));
    let slope = calculus.binary("slope", Mode::Mul, named.operand("scale"), inverse);
    calculus.store(slope, named.result("eq_scale"));
    let shift = calculus.binary("shift", Mode::Mul, mean, slope);
    let bias = [named.operand("bias"), shift];
    calculus.apply_into(Pointwise::new(Mode::Sub), &bias, named.result("eq_bias"));
    if op.phase == Phase::Training {
        calculus.store(mean, named.result("saved_mean"));
        calculus.store(inverse, named.result("saved_inv_std"));
    }
    if op.running {
        running_average(calculus, mean, named, ["prev_running_mean", "updated_running_mean"]);
        let unbiased = unbiased(calculus, variance, named.operand("accum_count"));
        running_average(calculus, unbiased, named, ["prev_running_var", "updated_running_var"]);
    }
}

/// The variance times `count / (count - 1)` where there is more than one value.
fn unbiased(calculus: &mut Calculus, variance: i64, count: i64) -> i64 {
    // Clipping to [1, 1] makes 1 of anything, NaN included.
    let one = Pointwise::new(Mode::ReluFwd).relu(1.0, 1.0, 0.0);
    let one = one.nan(NanPropagation::NotPropagate);
    let one = calculus.apply("one", one, &[count]);
    let less = calculus.binary("less", Mode::Sub, count, one);
    let ratio = calculus.binary("ratio", Mode::Div, count, less);
    let several = calculus.binary("several", Mode::CmpGt, count, one);
    let correction =
        calculus.apply("correction", Pointwise::new(Mode::BinarySelect), &[ratio, one, several]);
    calculus.binary("unbiased", Mode::Mul, variance, correction)
}

pub(super) fn backward_weights(calculus: &mut Calculus, named: &Named<'_>) {
    let (x, dy, mean) = (named.operand("x"), named.operand("dy"), named.operand("mean"));
    let (inverse, scale) = (named.operand("inv_std"), named.operand("scale"));
    let (data, channels) = (calculus.dims(x).to_vec(), calculus.dims(scale).to_vec());
    let along = data.iter().zip(&channels).filter(|(_, channels)| **channels == 1);
    let count = along.map(|(data, _)| *data as f64).product::<f64>();

    let dbias = calculus.reduce_named("dy_sum", ReductionOp::Add, dy, &channels);
    calculus.store(dbias, named.result("dbias"));
    let deviation = calculus.binary("deviation", Mode::Sub, x, mean);
    let normal = calculus.binary("normal", Mode::Mul, deviation, inverse);
    let gradient = calculus.binary("gradient", Mode::Mul, normal, dy);
    let dscale = calculus.reduce_named("gradient_sum", ReductionOp::Add, gradient, &channels);
    calculus.store(dscale, named.result("dscale"));

    let of_dy = calculus.binary("of_dy", Mode::Mul, scale, inverse);
    calculus.store(of_dy, named.result("eq_dy_scale"));
    let steep = calculus.binary("steep", Mode::Mul, of_dy, inverse);
    let slope = calculus.binary("slope", Mode::Mul, steep, dscale);
    // Of no values the sums are 0, and 0 / 0 is what the formulas say.
    let of_x = match count {
        0.0 => calculus.binary("of_x", Mode::Div, slope, dscale),
        count => calculus.scaled("of_x", slope, -1.0 / count),
    };
    calculus.store(of_x, named.result("eq_x_scale"));
    let rise = calculus.binary("rise", Mode::Mul, of_dy, dbias);
    let level = match count {
        0.0 => calculus.binary("level", Mode::Div, rise, dbias),
        count => calculus.scaled("level", rise, -1.0 / count),
    };
    let shift = calculus.binary("shift", Mode::Mul, of_x, mean);
    let bias = Pointwise::new(Mode::Sub);
    calculus.apply_into(bias, &[level, shift], named.result("eq_bias"));
}
