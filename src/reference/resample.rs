//! Resampling and its gradients: each output from the taps of its window, each gradient of an image
//! as the sum over the taps that met its element.

use crate::dtype::DType;
use crate::expr::NanPropagation;
use crate::graph::{PaddingMode, Resample, ResampleMode, ResamplePass};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, count, unravel};
use crate::reference::scaled::scaled;
use crate::tensor::TensorDesc;

/// What a tap of a window meets.
#[derive(Clone, Copy)]
enum Met {
    /// The element of the image at this position in row-major order.
    Element(usize),
    Padding,
}

struct Tap {
    met: Met,
    weight: Approx,
}

/// A resampling of images of these dimensions.
struct Resampling<'a> {
    op: &'a Resample,
    arithmetic: Arithmetic,
    image: &'a [i64],
}

pub(super) fn evaluate(
    op: &Resample,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let image = match op.pass {
        ResamplePass::Forward => &operands[0].desc.dims,
        ResamplePass::Backward => &outputs[0].dims,
    };
    let resampling = Resampling { op, arithmetic, image };
    let (results, winners) = match op.pass {
        ResamplePass::Forward => {
            let y = (0..count(&outputs[0].dims) as i64)
                .map(|at| resampling.output(&operands[0], &unravel(at, &outputs[0].dims)));
            y.unzip()
        }
        ResamplePass::Backward => (resampling.gradients(operands), Vec::new()),
    };
    let before = operands.last();
    let factors = [op.alpha, op.beta];
    let results = scaled(results.into_iter(), outputs[0], op.math.dtype(), factors, before);
    let index = outputs.get(1).map(|index| Expected::stored(winners, index));
    [results].into_iter().chain(index).collect()
}

impl Resampling<'_> {
    /// The taps of an output's window, row by row.
    fn taps(&self, output: &[i64]) -> Vec<Tap> {
        let one = Approx::exact(1.0);
        let mut taps = vec![(output[..2].to_vec(), one)];
        for (axis, at) in output[2..].iter().enumerate() {
            let along = self.taps_along(axis, *at);
            let joined = |(index, weight): &(Vec<i64>, Approx)| {
                let next = |(at, own): &(i64, Approx)| {
                    let weight = if axis == 0 { *own } else { self.arithmetic.mul(*weight, *own) };
                    ([&index[..], &[*at]].concat(), weight)
                };
                along.iter().map(next).collect::<Vec<_>>()
            };
            taps = taps.iter().flat_map(joined).collect();
        }
        let is_edge = self.op.padding == PaddingMode::Edge
            && self.op.mode != ResampleMode::AveragePoolExcludePadding;
        let met = |(mut index, weight): (Vec<i64>, Approx)| {
            if is_edge {
                for (at, extent) in index.iter_mut().zip(self.image).skip(2) {
                    *at = (*at).clamp(0, extent - 1);
                }
            }
            let inside = index.iter().zip(self.image).all(|(at, extent)| (0..*extent).contains(at));
            let met = match inside {
                true => Met::Element(broadcast_position(&index, self.image)),
                false => Met::Padding,
            };
            Tap { met, weight }
        };
        taps.into_iter().map(met).collect()
    }

    /// The positions of taps along a spatial dimension, and their weights.
    fn taps_along(&self, axis: usize, output: i64) -> Vec<(i64, Approx)> {
        let sampling = &self.op.sampling;
        let [stride, pre] = [sampling.strides[axis], sampling.pre_paddings[axis]];
        let [s, p] = [stride, pre].map(|of| i128::from(of.numerator()));
        let [s_unit, p_unit] = [stride, pre].map(|of| i128::from(of.denominator()));
        let unit = s_unit * p_unit;
        let position = i128::from(output) * s * p_unit - p * s_unit;
        let whole = |number: i128| i64::try_from(number).expect("the graph is valid");
        let one = Approx::exact(1.0);
        match self.op.mode {
            ResampleMode::Nearest => {
                vec![(whole((2 * position + unit).div_euclid(2 * unit)), one)]
            }
            ResampleMode::Bilinear => {
                let (first, part) = (whole(position.div_euclid(unit)), position.rem_euclid(unit));
                let number = |number: i128| self.arithmetic.operand(number as f64, 0.0);
                let weighted = |(at, part): (i64, i128)| {
                    (part != 0).then(|| (at, self.arithmetic.div(number(part), number(unit))))
                };
                [(first, unit - part), (first + 1, part)].into_iter().filter_map(weighted).collect()
            }
            _ => {
                let first = whole(position.div_euclid(unit));
                let taps = sampling.window_dims[axis].numerator();
                (0..taps).map(|tap| (first + tap, one)).collect()
            }
        }
    }

    fn value(&self, x: &Operand<'_>, met: Met) -> Approx {
        let integers = self.op.math.dtype() == DType::I32;
        match met {
            Met::Element(at) if integers => x.approx(at),
            Met::Element(at) => x.at(self.arithmetic, at),
            Met::Padding => Approx::exact(match self.op.padding {
                PaddingMode::NegativeInfinity if integers => i32::MIN.into(),
                PaddingMode::NegativeInfinity => f64::NEG_INFINITY,
                PaddingMode::Zero | PaddingMode::Edge => 0.0,
            }),
        }
    }

    /// An output, and the offset of the tap that won in its window.
    fn output(&self, x: &Operand<'_>, at: &[i64]) -> (Approx, Approx) {
        let taps = self.taps(at);
        let values: Vec<Approx> = taps.iter().map(|tap| self.value(x, tap.met)).collect();
        let value = match self.op.mode {
            ResampleMode::Nearest => values[0],
            ResampleMode::Bilinear => {
                let weighted = taps.iter().zip(&values);
                let weighted = weighted.map(|(tap, value)| self.arithmetic.mul(*value, tap.weight));
                self.arithmetic.sum(weighted)
            }
            ResampleMode::AveragePoolIncludePadding => {
                let taps = Approx::exact(taps.len() as f64);
                self.arithmetic.div(self.arithmetic.sum(values), taps)
            }
            ResampleMode::AveragePoolExcludePadding => {
                let inside = |tap: &&Tap| matches!(tap.met, Met::Element(_));
                let inside: Vec<&Tap> = taps.iter().filter(inside).collect();
                let sum = inside.iter().map(|tap| self.value(x, tap.met));
                match inside.len() {
                    0 => Approx::exact(f64::NAN),
                    taps => {
                        let taps = Approx::exact(taps as f64);
                        self.arithmetic.div(self.arithmetic.sum(sum), taps)
                    }
                }
            }
            ResampleMode::MaxPool => {
                let (winner, others) = self.winner(&values);
                let (value, offset) = winning(&values, winner, &others);
                let none = value.is_certainly_nan() && self.op.nan != NanPropagation::Propagate;
                let value = if none { Approx::exact(f64::NEG_INFINITY) } else { value };
                return (value, offset);
            }
        };
        (value, Approx::exact(0.0))
    }

    /// The tap that wins, and those that may win in its place within the errors of the values.
    fn winner(&self, values: &[Approx]) -> (usize, Vec<usize>) {
        let propagates = self.op.nan == NanPropagation::Propagate;
        // Least and greatest rank of a value, and that of the value itself.
        let ranks: Vec<[f64; 3]> = values.iter().map(|of| ranks(*of, propagates)).collect();
        let mut winner = 0;
        for at in 1..ranks.len() {
            if ranks[at][2] > ranks[winner][2] {
                winner = at;
            }
        }
        let beaten = |at: usize| {
            let beats = |other: usize| {
                let (least, greatest) = (ranks[other][0], ranks[at][1]);
                other != at && (least > greatest || (least == greatest && other < at))
            };
            (0..ranks.len()).any(beats)
        };
        let others = (0..ranks.len()).filter(|at| *at != winner && !beaten(*at)).collect();
        (winner, others)
    }

    /// The gradients of the image.
    fn gradients(&self, operands: &[Operand<'_>]) -> Vec<Approx> {
        let (op, arithmetic, dy) = (self.op, self.arithmetic, &operands[0]);
        let mut terms: Vec<Vec<Approx>> = vec![Vec::new(); count(self.image)];
        for at in 0..count(&dy.desc.dims) {
            let taps = self.taps(&unravel(at as i64, &dy.desc.dims));
            let gradient = dy.at(arithmetic, at);
            let mut add = |tap: &Tap, term: Approx| {
                if let Met::Element(at) = tap.met {
                    terms[at].push(term);
                }
            };
            match op.mode {
                ResampleMode::Nearest | ResampleMode::AveragePoolIncludePadding => {
                    taps.iter().for_each(|tap| add(tap, gradient));
                }
                ResampleMode::Bilinear => {
                    taps.iter().for_each(|tap| add(tap, arithmetic.mul(gradient, tap.weight)));
                }
                ResampleMode::AveragePoolExcludePadding => {
                    let inside = |tap: &&Tap| matches!(tap.met, Met::Element(_));
                    let inside = Approx::exact(taps.iter().filter(inside).count() as f64);
                    let share = arithmetic.div(Approx::exact(1.0), inside);
                    taps.iter().for_each(|tap| add(tap, arithmetic.mul(gradient, share)));
                }
                ResampleMode::MaxPool if op.index => {
                    let winner = operands[1].expected.values[at];
                    if let Some(tap) = taps.get(winner as usize).filter(|_| winner >= 0.0) {
                        add(tap, gradient);
                    }
                }
                ResampleMode::MaxPool => {
                    let values: Vec<Approx> =
                        taps.iter().map(|tap| self.value(&operands[1], tap.met)).collect();
                    let (winner, others) = self.winner(&values);
                    // One of several, and none of the others.
                    let open = gradient.value.abs() + gradient.error;
                    let open = if open.is_finite() { open } else { f64::NAN };
                    let error = if others.is_empty() { gradient.error } else { open };
                    add(&taps[winner], Approx { error, ..gradient });
                    for other in others {
                        add(&taps[other], Approx { value: 0.0, error: open });
                    }
                }
            }
        }
        let window = op.sampling.window_dims.iter().map(|window| window.numerator() as f64);
        let window = Approx::exact(window.product());
        let sums = terms.into_iter().map(|terms| arithmetic.sum(terms));
        match op.mode {
            ResampleMode::AveragePoolIncludePadding => {
                sums.map(|sum| arithmetic.div(sum, window)).collect()
            }
            _ => sums.collect(),
        }
    }
}

/// The value that wins, and the offset of its tap.
fn winning(values: &[Approx], winner: usize, others: &[usize]) -> (Approx, Approx) {
    let value = values[winner];
    let errors = others.iter().map(|at| values[*at].error);
    let open = others.iter().any(|at| values[*at].error.is_nan() || values[*at].value.is_nan());
    let error = match open || value.error.is_nan() {
        true => f64::NAN,
        false => errors.fold(value.error, f64::max),
    };
    let error_at = if others.is_empty() { 0.0 } else { f64::INFINITY };
    (Approx { error, ..value }, Approx { value: winner as f64, error: error_at })
}

/// Where a value may stand among others, from the least to the greatest, and where it stands.
fn ranks(of: Approx, propagates: bool) -> [f64; 3] {
    let above = f64::INFINITY;
    // NaN that propagate stand above all numbers, infinity among them.
    let rank = |value: f64| match (value.is_nan(), propagates) {
        (true, true) => above,
        (true, false) => f64::NEG_INFINITY,
        (false, true) => value.min(f64::MAX),
        (false, false) => value,
    };
    let own = rank(of.value);
    if of.error.is_nan() {
        return [f64::NEG_INFINITY, above, own];
    }
    if of.is_certainly_nan() || of.error == 0.0 {
        return [own, own, own];
    }
    [rank(of.value - of.error), rank(of.value + of.error), own]
}
