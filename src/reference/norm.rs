//! Normalisations and their gradients.

use crate::graph::{NormBackward, NormForward, NormMode, Op, Phase, Slots};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, unravel};
use crate::tensor::TensorDesc;

/// Groups of elements that are normalised together, and the indices of their parameters.
struct Layout {
    /// Positions in `x` of each group.
    groups: Vec<Vec<usize>>,
    /// Parameter index of each element of `x`.
    parameter: Vec<usize>,
    parameters: usize,
}

/// Statistics of a group.
#[derive(Clone, Copy)]
struct Statistics {
    mean: Approx,
    inverse: Approx,
    /// Biased variance.
    variance: Approx,
}

/// Operands and results by slot name.
struct Named<'a> {
    slots: Slots,
    operands: &'a [Operand<'a>],
    outputs: &'a [&'a TensorDesc],
    arithmetic: Arithmetic,
}

impl Named<'_> {
    fn operand(&self, slot: &str) -> Option<&Operand<'_>> {
        let at = self.slots.inputs.iter().position(|name| *name == slot)?;
        Some(&self.operands[at])
    }

    fn all(&self, slot: &str) -> Option<Vec<Approx>> {
        let operand = self.operand(slot)?;
        let count = operand.expected.values.len();
        Some((0..count).map(|at| operand.at(self.arithmetic, at)).collect())
    }

    fn scalar(&self, slot: &str) -> Option<Approx> {
        self.operand(slot).map(|operand| operand.at(self.arithmetic, 0))
    }

    /// Computes every result in slot order.
    fn results(&self, of: impl Fn(&str) -> Vec<Approx>) -> Vec<Expected> {
        let outputs = self.slots.outputs.iter().zip(self.outputs);
        outputs.map(|(slot, tensor)| Expected::stored(of(slot), tensor)).collect()
    }
}

impl Layout {
    fn of(mode: NormMode, x: &[i64], scale: &[i64]) -> Layout {
        let channels = x.get(1).copied().unwrap_or(1);
        let group = |index: &[i64]| -> Vec<i64> {
            match mode {
                NormMode::Layer | NormMode::Rms => {
                    let left = |(at, scale): (&i64, &i64)| if *scale == 1 { *at } else { 0 };
                    index.iter().zip(scale).map(left).collect()
                }
                NormMode::Instance => vec![index[0], index[1]],
                NormMode::Batch => vec![index[1]],
                NormMode::Group(groups) => vec![index[0], index[1] / (channels / groups)],
            }
        };
        let extents: Vec<i64> = match mode {
            NormMode::Layer | NormMode::Rms => {
                x.iter().zip(scale).map(|(x, scale)| if *scale == 1 { *x } else { 1 }).collect()
            }
            NormMode::Instance => vec![x[0], channels],
            NormMode::Batch => vec![channels],
            NormMode::Group(groups) => vec![x[0], groups],
        };
        let mut groups = vec![Vec::new(); extents.iter().product::<i64>() as usize];
        let mut parameter = Vec::new();
        for at in 0..x.iter().product::<i64>() {
            let index = unravel(at, x);
            groups[broadcast_position(&group(&index), &extents)].push(at as usize);
            parameter.push(broadcast_position(&index, scale));
        }
        Layout { groups, parameter, parameters: scale.iter().product::<i64>() as usize }
    }

    /// Group index of each element.
    fn group_of(&self) -> Vec<usize> {
        let mut of = vec![0; self.parameter.len()];
        for (number, group) in self.groups.iter().enumerate() {
            group.iter().for_each(|at| of[*at] = number);
        }
        of
    }
}

/// Two-pass statistics of a group.
fn statistics(
    arithmetic: Arithmetic,
    centred: bool,
    values: &[Approx],
    epsilon: Approx,
) -> Statistics {
    let count = Approx::exact(values.len() as f64);
    let mean = match centred {
        true => arithmetic.div(arithmetic.sum(values.iter().copied()), count),
        false => Approx::exact(0.0),
    };
    let square = |value: &Approx| {
        let deviation = if centred { arithmetic.sub(*value, mean) } else { *value };
        arithmetic.mul(deviation, deviation)
    };
    let variance = arithmetic.div(arithmetic.sum(values.iter().map(square)), count);
    let inverse = arithmetic.rsqrt(arithmetic.add(variance, epsilon));
    Statistics { mean, inverse, variance }
}

/// Statistics of every group: operands if given, otherwise computed.
fn all_statistics(
    named: &Named<'_>,
    mode: NormMode,
    layout: &Layout,
    x: &[Approx],
) -> Vec<Statistics> {
    if let Some(inverse) = named.all("inv_variance") {
        let none = vec![Approx::exact(0.0); inverse.len()];
        let mean = named.all("mean").unwrap_or(none);
        let given = mean.into_iter().zip(inverse);
        let variance = Approx::exact(f64::NAN);
        return given.map(|(mean, inverse)| Statistics { mean, inverse, variance }).collect();
    }
    let epsilon = named.scalar("epsilon").expect("the operation was checked");
    let of = |group: &Vec<usize>| {
        let values: Vec<Approx> = group.iter().map(|at| x[*at]).collect();
        statistics(named.arithmetic, mode.centred(), &values, epsilon)
    };
    layout.groups.iter().map(of).collect()
}

pub(super) fn forward(
    op: &NormForward,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let slots = Op::NormForward(*op).slots();
    let named = Named { slots, operands, outputs, arithmetic };
    let (x, scale) = (named.all("x").expect("required"), named.all("scale").expect("required"));
    let layout = Layout::of(op.mode, &operands[0].desc.dims, &operands[1].desc.dims);
    let statistics = all_statistics(&named, op.mode, &layout, &x);
    let bias = named.all("bias");
    let group_of = layout.group_of();
    let y = |at: usize| {
        let Statistics { mean, inverse, .. } = statistics[group_of[at]];
        let deviation = if op.mode.centred() { arithmetic.sub(x[at], mean) } else { x[at] };
        let normal = arithmetic.mul(deviation, inverse);
        let scaled = arithmetic.mul(normal, scale[layout.parameter[at]]);
        match &bias {
            Some(bias) => arithmetic.add(scaled, bias[layout.parameter[at]]),
            None => scaled,
        }
    };
    let count = |number: usize| layout.groups[number].len() as f64;
    let unbiased = |number: usize| {
        let factor = count(number) / (count(number) - 1.0).max(1.0);
        arithmetic.mul(statistics[number].variance, Approx::exact(factor))
    };
    let running = |slot: &str, new: &dyn Fn(usize) -> Approx| -> Vec<Approx> {
        let old = named.all(slot).expect("the operation was checked");
        let factor = named.scalar("exp_avg_factor").expect("the operation was checked");
        running_average(arithmetic, factor, &old, new)
    };
    let saved = |of: fn(&Statistics) -> Approx| statistics.iter().map(of).collect();
    named.results(|slot| match slot {
        "y" => (0..x.len()).map(y).collect(),
        "mean" => saved(|statistics| statistics.mean),
        "inv_variance" => saved(|statistics| statistics.inverse),
        "output_running_mean" => running("input_running_mean", &|number| statistics[number].mean),
        _ => {
            debug_assert!(slot == "output_running_var" && op.phase == Phase::Training);
            running("input_running_var", &unbiased)
        }
    })
}

/// Running average `(1 - factor) * old + factor * new`, with a bound that covers the form `old +
/// factor * (new - old)`.
pub(super) fn running_average(
    arithmetic: Arithmetic,
    factor: Approx,
    old: &[Approx],
    new: &dyn Fn(usize) -> Approx,
) -> Vec<Approx> {
    let blend = |(at, old): (usize, &Approx)| {
        let rest = arithmetic.sub(Approx::exact(1.0), factor);
        let kept = arithmetic.mul(rest, *old);
        let sum = arithmetic.add(kept, arithmetic.mul(factor, new(at)));
        // The alternative form rounds relative to the full old value.
        let whole = old.value.abs() + old.error;
        match old.value.is_infinite() {
            // The alternative form computes inf - inf.
            true => Approx::anything(sum.value),
            false if whole.is_nan() => sum,
            false => {
                let own = Approx { value: 0.0, error: whole * f64::from(f32::EPSILON) };
                arithmetic.add(sum, own)
            }
        }
    };
    old.iter().enumerate().map(blend).collect()
}

pub(super) fn backward(
    op: &NormBackward,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let slots = Op::NormBackward(*op).slots();
    let named = Named { slots, operands, outputs, arithmetic };
    let all = |slot: &str| named.all(slot).expect("required");
    let (x, dy, scale) = (all("x"), all("dy"), all("scale"));
    let layout = Layout::of(op.mode, &operands[0].desc.dims, &operands[2].desc.dims);
    let statistics = all_statistics(&named, op.mode, &layout, &x);
    let group_of = layout.group_of();
    let normal: Vec<Approx> = (0..x.len())
        .map(|at| {
            let Statistics { mean, inverse, .. } = statistics[group_of[at]];
            let deviation = if op.mode.centred() { arithmetic.sub(x[at], mean) } else { x[at] };
            arithmetic.mul(deviation, inverse)
        })
        .collect();
    let scaled: Vec<Approx> =
        (0..x.len()).map(|at| arithmetic.mul(dy[at], scale[layout.parameter[at]])).collect();
    // Means, per group, of the scaled gradient and of its product with the normalised values.
    let mean = |group: &[usize], of: &dyn Fn(usize) -> Approx| {
        let sum = arithmetic.sum(group.iter().map(|at| of(*at)));
        arithmetic.div(sum, Approx::exact(group.len() as f64))
    };
    let means: Vec<[Approx; 2]> = layout
        .groups
        .iter()
        .map(|group| {
            let along = |at: usize| arithmetic.mul(scaled[at], normal[at]);
            let level = match op.mode.centred() {
                true => mean(group, &|at| scaled[at]),
                false => Approx::exact(0.0),
            };
            [level, mean(group, &along)]
        })
        .collect();
    let dx = |at: usize| {
        let [level, along] = means[group_of[at]];
        let flat = if op.mode.centred() { arithmetic.sub(scaled[at], level) } else { scaled[at] };
        let rest = arithmetic.sub(flat, arithmetic.mul(normal[at], along));
        arithmetic.mul(rest, statistics[group_of[at]].inverse)
    };
    let per_parameter = |of: &dyn Fn(usize) -> Approx| -> Vec<Approx> {
        let mut terms = vec![Vec::new(); layout.parameters];
        for (at, parameter) in layout.parameter.iter().enumerate() {
            terms[*parameter].push(of(at));
        }
        terms.into_iter().map(|terms| arithmetic.sum(terms)).collect()
    };
    named.results(|slot| match slot {
        "dx" => (0..x.len()).map(dx).collect(),
        "dscale" => per_parameter(&|at| arithmetic.mul(dy[at], normal[at])),
        _ => per_parameter(&|at| dy[at]),
    })
}
