//! An LSTM of 8-bit integers in plain loops of f64: as oneDNN's document has it, and with the
//! habits that oneDNN 3.2 has on a CPU with AVX2 alone.
//!
//! That library adds pairs of products with saturation in 16 bits, for which signed integers have
//! an offset; cuts signed states off at 0; and adds up integers of two directions as they are,
//! with saturation, so that their sum is shifted twice.

use std::collections::BTreeMap;

use kiln::DType;
use kiln::onednn::{Arg, RnnDesc, RnnDirection, Tensor};

use crate::onednn_cases::{Arguments, Case};

/// Whose arithmetic it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Document,
    Avx2,
}

/// What an LSTM gives.
pub struct Computed {
    pub results: Arguments,
    /// The least distance of a state from where it would round to another integer.
    pub margin: f64,
    /// How far an implementation in f32 may be off in cell states.
    pub bound: f64,
}

/// Error of an activation in f32, which for 8-bit states may be approximated.
const ACTIVATION: f64 = 1.0 / (1 << 21) as f64;
/// Error of a sum, a product and a conversion in f32.
const ARITHMETIC: f64 = 4.0 / (1 << 24) as f64;

struct Lstm<'a> {
    of: &'a RnnDesc,
    given: &'a Arguments,
    whose: Of,
    integers: DType,
    scale: f64,
    shift: f64,
}

impl Lstm<'_> {
    fn dims(&self, tensor: Tensor) -> &[i64] {
        self.of.desc(tensor).expect("every LSTM has it").dims()
    }

    /// An element of a tensor, if there is one.
    fn at(&self, tensor: Tensor, at: usize) -> Option<f64> {
        self.given.get(&Arg::Of(tensor)).map(|values| values[at])
    }

    /// Weights times integers less the shift.
    fn sum(&self, weights: impl Iterator<Item = f64>, of: &[f64]) -> f64 {
        let weights: Vec<f64> = weights.collect();
        let offset = if self.integers == DType::I8 { 128.0 } else { 0.0 };
        let pairs = weights.chunks(2).zip(of.chunks(2));
        let pair = |(weights, of): (&[f64], &[f64])| {
            let sum = weights.iter().zip(of).map(|(weight, of)| weight * (of + offset)).sum();
            if self.whose == Of::Avx2 { f64::clamp(sum, -32768.0, 32767.0) } else { sum }
        };
        let sum: f64 = pairs.map(pair).sum();
        sum - (offset + self.shift) * weights.iter().sum::<f64>()
    }

    fn clamped(&self, integer: f64) -> f64 {
        let (low, high) = self.integers.integer_range().expect("it is an integer");
        integer.clamp(low, high)
    }

    /// An integer of memory that may be f32.
    fn integer(&self, tensor: Tensor, value: f64) -> f64 {
        match self.of.desc(tensor).map(|desc| desc.dtype()) {
            Some(DType::F32) => {
                let scaled = DType::F32.round(value * self.scale);
                self.integers.round(DType::F32.round(scaled + self.shift))
            }
            _ => value,
        }
    }

    /// Integers in memory that may be f32, each of which has so many shifts.
    fn stored(&self, tensor: Tensor, integer: f64, shifts: f64) -> f64 {
        match self.of.desc(tensor).map(|desc| desc.dtype()) {
            Some(DType::F32) => DType::F32.round((integer - shifts * self.shift) / self.scale),
            _ if self.whose == Of::Avx2 => integer,
            _ => self.clamped(integer - (shifts - 1.0) * self.shift),
        }
    }

    fn computed(&self) -> Computed {
        let sizes = |tensor| self.dims(tensor).iter().map(|dim| *dim as usize).collect::<Vec<_>>();
        let [layers, directions, _, _, hidden] = sizes(Tensor::WeightsLayer)[..] else { panic!() };
        let [steps, batch, mut width] = sizes(Tensor::SrcLayer)[..] else { panic!() };
        let scales = self.of.attr.weights.clone().unwrap_or_default().scales;
        let input = &self.given[&Arg::Of(Tensor::SrcLayer)];
        let mut below = vec![input.clone(); directions];
        let (mut h_final, mut c_final) = (Vec::new(), Vec::new());
        let (mut margin, mut bound) = (f64::INFINITY, 0.0_f64);
        for layer in 0..layers {
            for (direction, rows) in below.iter_mut().enumerate() {
                let stack = layer * directions + direction;
                let mut above = vec![0.0; steps * batch * hidden];
                for b in 0..batch {
                    let first = (stack * batch + b) * hidden;
                    let initial = |tensor, fill: f64| -> Vec<f64> {
                        let at = |u| self.at(tensor, first + u).unwrap_or(fill);
                        (0..hidden).map(at).collect()
                    };
                    let mut h = initial(Tensor::SrcIter, self.shift);
                    h.iter_mut().for_each(|value| *value = self.integer(Tensor::SrcIter, *value));
                    let mut c = initial(Tensor::SrcIterC, 0.0);
                    let mut error = 0.0;
                    for turn in 0..steps {
                        let is_reversed =
                            direction == 1 || self.of.direction == RnnDirection::RightToLeft;
                        let step = if is_reversed { steps - 1 - turn } else { turn };
                        let row = (step * batch + b) * width;
                        let x = &rows[row..row + width];
                        let gate = |at: usize| {
                            let sum = |tensor, of: &[f64]| {
                                let start = stack * of.len();
                                let own = (0..of.len()).map(|i| (start + i) * 4 * hidden + at);
                                self.sum(own.filter_map(|at| self.at(tensor, at)), of)
                            };
                            let sums = sum(Tensor::WeightsLayer, x) + sum(Tensor::WeightsIter, &h);
                            let scale = self.scale * scales[at % scales.len()].get();
                            let bias = self.at(Tensor::Bias, stack * 4 * hidden + at);
                            sums / scale + bias.unwrap_or(0.0)
                        };
                        let gates: Vec<f64> = (0..4 * hidden).map(gate).collect();
                        let greatest = |of: &[f64]| of.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
                        let inner = ARITHMETIC * (1.0 + greatest(&gates)) + ACTIVATION;
                        error += (2.0 + greatest(&c)) * inner;
                        let sigmoid = |of: f64| 1.0 / (1.0 + (-of).exp());
                        for u in 0..hidden {
                            let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates[gate * hidden + u]);
                            c[u] = sigmoid(f) * c[u] + sigmoid(i) * g.tanh();
                            let exact = sigmoid(o) * c[u].tanh() * self.scale + self.shift;
                            let rounded = exact.round_ties_even();
                            margin = margin.min(0.5 - (exact - rounded).abs());
                            h[u] = self.clamped(rounded);
                            if self.whose == Of::Avx2 && self.integers == DType::I8 {
                                h[u] = h[u].max(0.0);
                            }
                        }
                        let row = (step * batch + b) * hidden;
                        above[row..row + hidden].copy_from_slice(&h);
                    }
                    bound = bound.max(error);
                    h_final.extend(h.iter().map(|h| self.stored(Tensor::DstIter, *h, 1.0)));
                    c_final.extend(c);
                }
                *rows = above;
            }
            width = hidden;
        }
        let rows = |at: usize| at * hidden..(at + 1) * hidden;
        let output = (0..steps * batch).flat_map(|row| match self.of.direction {
            RnnDirection::BidirectionalSum => {
                let [a, b] = [0, 1].map(|direction: usize| &below[direction][rows(row)]);
                let sum = |(a, b): (&f64, &f64)| match self.whose {
                    Of::Avx2 => self.stored(Tensor::DstLayer, self.clamped(a + b), 2.0),
                    Of::Document => self.stored(Tensor::DstLayer, a + b, 2.0),
                };
                a.iter().zip(b).map(sum).collect::<Vec<f64>>()
            }
            _ => {
                let own = below.iter().flat_map(|own| &own[rows(row)]);
                own.map(|own| self.stored(Tensor::DstLayer, *own, 1.0)).collect()
            }
        });
        let results = [
            (Tensor::DstLayer, output.collect()),
            (Tensor::DstIter, h_final),
            (Tensor::DstIterC, c_final),
        ];
        let results: BTreeMap<Arg, Vec<f64>> = results
            .into_iter()
            .filter(|(tensor, _)| self.of.has(*tensor))
            .map(|(tensor, values)| (Arg::Of(tensor), values))
            .collect();
        Computed { results, margin, bound }
    }
}

/// What an LSTM of 8-bit integers gives.
pub fn lstm(of: &RnnDesc, given: &Arguments, whose: Of) -> Computed {
    let data = of.attr.data.unwrap_or_default();
    let integers = of.desc(Tensor::SrcLayer).expect("it has inputs").dtype();
    let (scale, shift) = (data.scale.get(), data.shift.get());
    Lstm { of, given, whose, integers, scale, shift }.computed()
}

impl Computed {
    /// Panics unless results are these: integers equal, and so the numbers that they stand for;
    /// cell states within the bound.
    pub fn check(&self, what: &str, actual: &Arguments) {
        assert!(self.margin > 0.0, "{what}: a state is between two integers");
        for (arg, expected) in &self.results {
            let own = &actual[arg];
            assert_eq!(own.len(), expected.len(), "{what}: {}", arg.name());
            let allowed = if *arg == Arg::Of(Tensor::DstIterC) { self.bound } else { 0.0 };
            let worst = own.iter().zip(expected).find(|(own, expected)| {
                let off = (*own - *expected).abs();
                off.is_nan() || off > allowed
            });
            assert_eq!(worst, None, "{what}: {} of {expected:?}", arg.name());
        }
    }
}

impl Case {
    /// What an LSTM of the case reads: its tensors, of which weights are quantised.
    pub fn integers_of(&self, numbers: impl Fn(Arg) -> Option<Vec<f64>>) -> Arguments {
        let scales = self.attr().weights.expect("cases have scales").scales;
        let own = Tensor::ALL.into_iter().filter(|tensor| !tensor.is_dst()).filter_map(|tensor| {
            let mut values = numbers(Arg::Of(tensor))?;
            if matches!(tensor, Tensor::WeightsLayer | Tensor::WeightsIter) {
                let channels = 4 * self.hidden as usize;
                for (at, value) in values.iter_mut().enumerate() {
                    let scale = scales[at % channels % scales.len()].get();
                    *value = DType::I8.round(DType::F32.round(*value * scale));
                }
            }
            Some((Arg::Of(tensor), values))
        });
        own.collect()
    }

    /// oneDNN's results.
    pub fn results_of_onednn(&self) -> Arguments {
        let own = Tensor::ALL.into_iter().filter(|tensor| tensor.is_dst());
        own.filter_map(|of| Some((Arg::Of(of), self.of_arg(Arg::Of(of))?))).collect()
    }
}
