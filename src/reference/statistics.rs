//! The stages of a batch norm that is split so that other operations can run between them.

use crate::graph::{BnBackwardWeights, BnFinalize, GenStats, Op, Phase};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::expected::{Expected, Operand};
use crate::reference::norm::running_average;
use crate::reference::reduction::grouped;
use crate::tensor::TensorDesc;

pub(super) fn generate(op: &GenStats, x: &Operand<'_>, outputs: &[&TensorDesc]) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let groups = grouped(&x.desc.dims, &outputs[0].dims);
    let value = |at: &usize| x.at(arithmetic, *at);
    let square = |at: &usize| arithmetic.mul(value(at), value(at));
    let sums = groups.iter().map(|group| arithmetic.sum(group.iter().map(value)));
    let squares = groups.iter().map(|group| arithmetic.sum(group.iter().map(square)));
    vec![Expected::stored(sums, outputs[0]), Expected::stored(squares, outputs[1])]
}

pub(super) fn finalize(
    op: &BnFinalize,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let slots = Op::BnFinalize(*op).slots();
    let operand = |slot: &str| {
        let at = slots.inputs.iter().position(|name| *name == slot);
        &operands[at.expect("the operation was checked")]
    };
    let of = |slot: &str, at: usize| operand(slot).at(arithmetic, at);
    let channels = operands[0].expected.values.len();
    let line = |at: usize| {
        let (mean, variance) = match op.phase {
            Phase::Inference => (of("prev_running_mean", at), of("prev_running_var", at)),
            Phase::Training => {
                let count = of("accum_count", 0);
                let mean = arithmetic.div(of("sum", at), count);
                let square = arithmetic.div(of("sq_sum", at), count);
                let variance = arithmetic.sub(square, arithmetic.mul(mean, mean));
                (mean, arithmetic.variance(variance))
            }
        };
        let inverse = arithmetic.rsqrt(arithmetic.add(variance, of("epsilon", 0)));
        let scale = arithmetic.mul(of("scale", at), inverse);
        let bias = arithmetic.sub(of("bias", at), arithmetic.mul(mean, scale));
        Line { mean, variance, inverse, scale, bias }
    };
    let lines: Vec<Line> = (0..channels).map(line).collect();
    let unbiased = |at: usize| {
        let count = of("accum_count", 0);
        let less = arithmetic.sub(count, Approx::exact(1.0));
        match count.value > 1.0 {
            true => arithmetic.mul(lines[at].variance, arithmetic.div(count, less)),
            false => lines[at].variance,
        }
    };
    let running = |slot: &str, new: &dyn Fn(usize) -> Approx| {
        let old: Vec<Approx> = (0..channels).map(|at| of(slot, at)).collect();
        running_average(arithmetic, of("exp_avg_factor", 0), &old, new)
    };
    let each = |of: fn(&Line) -> Approx| lines.iter().map(of).collect();
    let results = slots.outputs.iter().zip(outputs).map(|(slot, tensor)| {
        let values: Vec<Approx> = match *slot {
            "eq_scale" => each(|line| line.scale),
            "eq_bias" => each(|line| line.bias),
            "saved_mean" => each(|line| line.mean),
            "saved_inv_std" => each(|line| line.inverse),
            "updated_running_mean" => running("prev_running_mean", &|at| lines[at].mean),
            _ => running("prev_running_var", &unbiased),
        };
        Expected::stored(values, tensor)
    });
    results.collect()
}

/// Parameters of a channel's normalisation.
struct Line {
    mean: Approx,
    variance: Approx,
    inverse: Approx,
    scale: Approx,
    bias: Approx,
}

pub(super) fn backward_weights(
    op: &BnBackwardWeights,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let [x, dy, mean, inverse, scale] = operands else { unreachable!("the operation was checked") };
    let groups = grouped(&x.desc.dims, &outputs[0].dims);
    let plane = |(channel, group): (usize, &Vec<usize>)| -> [Approx; 5] {
        let [mean, inverse, scale] = [mean, inverse, scale].map(|of| of.at(arithmetic, channel));
        let count = Approx::exact(group.len() as f64);
        let dbias = arithmetic.sum(group.iter().map(|at| dy.at(arithmetic, *at)));
        let dscale = arithmetic.sum(group.iter().map(|at| {
            let deviation = arithmetic.sub(x.at(arithmetic, *at), mean);
            arithmetic.mul(arithmetic.mul(deviation, inverse), dy.at(arithmetic, *at))
        }));
        let of_dy = arithmetic.mul(scale, inverse);
        let slope = arithmetic.mul(arithmetic.mul(of_dy, inverse), dscale);
        let of_x = arithmetic.div(slope, count).neg();
        let level = arithmetic.div(arithmetic.mul(of_dy, dbias), count);
        let bias = arithmetic.sub(arithmetic.mul(of_x, mean).neg(), level);
        [dscale, dbias, of_dy, of_x, bias]
    };
    let planes: Vec<[Approx; 5]> = groups.iter().enumerate().map(plane).collect();
    let result = |(slot, tensor): (usize, &&TensorDesc)| {
        Expected::stored(planes.iter().map(|plane| plane[slot]), tensor)
    };
    outputs.iter().enumerate().map(result).collect()
}
