//! CTC losses and their gradients: the forward and backward recursions of Graves et al. 2006 over
//! logarithms of probabilities.
//!
//! A logarithm's error is the sum of what its operands are off by, a sum's that of its terms in
//! proportion: `log(sum exp(a + d)) - log(sum exp(a)) = log(sum w exp(d))`, where the weights `w`
//! add up to 1.

use crate::dtype::DType;
use crate::graph::{CtcInfinite, CtcInput, CtcLoss};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::expected::{Expected, Operand};
use crate::tensor::TensorDesc;

/// Errors of the device's exponentials and logarithms, in ulp of a result of at least 1: CUDA C++
/// programming guide, "mathematical functions"; PTX ISA, `ex2.approx` and `lg2.approx`, off by
/// 2^-22 between 1/2 and 2.
const EXP_ULP: f64 = 2.0;
const LOG_ULP: f64 = 4.0;

/// Logarithms of probabilities in one precision.
#[derive(Debug, Clone, Copy)]
struct Logarithms {
    /// An ulp of 1; in f64 the reference is off by as much as an implementation.
    ulp: f64,
}

/// What the classes of a step are: logarithms of their probabilities, and these.
struct Step {
    logs: Vec<Approx>,
    probabilities: Vec<Approx>,
}

/// A sequence with lengths and labels in range.
struct Sequence {
    steps: Vec<Step>,
    /// The class of each state: labels, with a blank around each.
    states: Vec<usize>,
}

pub(super) fn evaluate(
    op: &CtcLoss,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let twice = if op.math.dtype() == DType::F64 { 2.0 } else { 1.0 };
    let logarithms = Logarithms { ulp: twice * op.math.dtype().epsilon() };
    let [steps, sequences, classes] = [0, 1, 2].map(|axis| operands[0].desc.dims[axis] as usize);
    let mut losses = Vec::with_capacity(sequences);
    let mut gradient = vec![Approx::exact(0.0); steps * sequences * classes];
    for n in 0..sequences {
        let at = |t: usize, k: usize| (t * sequences + n) * classes + k;
        let mut put = |t: usize, own: Vec<Approx>| {
            gradient[at(t, 0)..at(t, 0) + classes].copy_from_slice(&own);
        };
        let Some((labels, length)) = spelled(op, operands, n, [steps, classes]) else {
            losses.push(Approx::exact(f64::NAN));
            (0..steps).for_each(|t| put(t, vec![Approx::exact(f64::NAN); classes]));
            continue;
        };
        let step = |t: usize| {
            let row = (0..classes).map(|k| operands[0].at(arithmetic, at(t, k)));
            logarithms.step(op.input, &row.collect::<Vec<Approx>>())
        };
        let blank = op.blank as usize;
        let spaced = labels.iter().flat_map(|label| [*label, blank]);
        let states = [blank].into_iter().chain(spaced).collect();
        let sequence = Sequence { steps: (0..length).map(step).collect(), states };
        let (loss, rows) = logarithms.loss(&sequence);
        if loss.value == f64::INFINITY && op.infinite != CtcInfinite::Propagate {
            let zero = op.infinite == CtcInfinite::Zero;
            losses.push(if zero { Approx::exact(0.0) } else { loss });
            if op.reads_result() {
                let held = |t: usize, k: usize| operands[4].at(arithmetic, at(t, k));
                (0..steps).for_each(|t| put(t, (0..classes).map(|k| held(t, k)).collect()));
            }
            continue;
        }
        losses.push(loss);
        rows.into_iter().enumerate().for_each(|(t, own)| put(t, own));
    }
    let all = [losses, gradient].into_iter().zip(outputs);
    all.map(|(values, tensor)| Expected::stored(values, tensor)).collect()
}

/// The labels of a sequence and its number of steps; none where a rule for them is broken.
fn spelled(
    op: &CtcLoss,
    operands: &[Operand<'_>],
    n: usize,
    [steps, classes]: [usize; 2],
) -> Option<(Vec<usize>, usize)> {
    let [labels, lengths, steps_of] = [1, 2, 3].map(|at| &operands[at].expected.values);
    let most = op.label_length_max as f64;
    let begin = match operands[1].desc.dims[..] {
        [_, row] => n * row as usize,
        _ => lengths[..n].iter().map(|length| length.clamp(0.0, most) as usize).sum(),
    };
    let in_range = (0.0..=most).contains(&lengths[n]);
    let length = usize::try_from(steps_of[n] as i64).ok().filter(|length| *length <= steps)?;
    let own = in_range.then(|| labels.get(begin..begin + lengths[n] as usize)).flatten()?;
    let label = |of: &f64| {
        let is_label = (0.0..classes as f64).contains(of) && *of != op.blank as f64;
        is_label.then_some(*of as usize)
    };
    Some((own.iter().map(label).collect::<Option<_>>()?, length))
}

impl Logarithms {
    /// The logarithm of a sum of exponentials.
    fn log_sum(self, terms: &[Approx]) -> Approx {
        let most = terms.iter().fold(f64::NEG_INFINITY, |most, term| most.max(term.value));
        // The largest is subtracted first: of an infinite one that leaves nothing.
        if terms.iter().any(|term| term.value.is_nan()) || most == f64::INFINITY {
            return Approx::exact(f64::NAN);
        }
        if most == f64::NEG_INFINITY {
            return Approx::exact(most);
        }
        let sum: f64 = terms.iter().map(|term| (term.value - most).exp()).sum();
        let counted = terms.iter().filter(|term| term.value > f64::NEG_INFINITY);
        let moved = |term: &Approx| {
            let below = term.value - most;
            let own = self.ulp * (below.abs() + EXP_ULP);
            below.exp() / sum * (term.error + own).exp_m1()
        };
        let moved: f64 = counted.map(moved).sum();
        let (value, log) = (most + sum.ln(), sum.ln());
        let own = (terms.len() - 1) as f64 + LOG_ULP * log.max(1.0) + value.abs();
        Approx { value, error: moved.ln_1p() + self.ulp * own }
    }

    fn add(self, a: Approx, b: Approx) -> Approx {
        let value = a.value + b.value;
        if value.is_infinite() || value.is_nan() {
            return Approx::exact(value);
        }
        Approx { value, error: a.error + b.error + self.ulp * value.abs() }
    }

    /// The exponential; 0 may be what lies below the least normal number.
    fn exp(self, of: Approx) -> Approx {
        let value = of.value.exp();
        if value == 0.0 && of.value == f64::NEG_INFINITY {
            return Approx::exact(0.0);
        }
        let own = value * self.ulp * (EXP_ULP + of.value.abs());
        Approx { value, error: value * of.error.exp_m1() + own + f64::from(f32::MIN_POSITIVE) }
    }

    fn step(self, input: CtcInput, row: &[Approx]) -> Step {
        match input {
            CtcInput::Probabilities => {
                let log = |of: &Approx| {
                    let least = of.value - of.error;
                    if of.error > 0.0 && least <= 0.0 {
                        return Approx::anything(of.value.ln());
                    }
                    let value = of.value.ln();
                    let own = if value.is_finite() { LOG_ULP * value.abs().max(1.0) } else { 0.0 };
                    let moved = if of.error > 0.0 { (of.value / least).ln() } else { 0.0 };
                    Approx { value, error: moved + self.ulp * own }
                };
                Step { logs: row.iter().map(log).collect(), probabilities: row.to_vec() }
            }
            CtcInput::LogProbabilities => {
                let scaled = |of: &Approx| {
                    let own = if of.value.is_finite() { 2.0 * of.value.abs() } else { 0.0 };
                    Approx { value: of.value, error: of.error + self.ulp * own }
                };
                self.with_probabilities(row.iter().map(scaled).collect())
            }
            CtcInput::Logits => {
                let most = row.iter().fold(f64::NEG_INFINITY, |most, of| most.max(of.value));
                let unsure = row.iter().map(|of| of.error).fold(0.0, f64::max);
                let below = |of: &Approx| {
                    let value = of.value - most;
                    let own = if value.is_finite() { 3.0 * value.abs() } else { 0.0 };
                    Approx { value, error: of.error + unsure + self.ulp * own }
                };
                let below: Vec<Approx> = row.iter().map(below).collect();
                let sum = self.log_sum(&below);
                let normalised = |of: &Approx| {
                    let negative = Approx { value: -sum.value, error: sum.error };
                    self.add(*of, negative)
                };
                self.with_probabilities(below.iter().map(normalised).collect())
            }
        }
    }

    fn with_probabilities(self, logs: Vec<Approx>) -> Step {
        Step { probabilities: logs.iter().map(|of| self.exp(*of)).collect(), logs }
    }

    /// What leads to each state from those before it: `from` are of the step before, in the order
    /// in which states follow each other.
    fn arrived(self, states: &[usize], from: &[Approx]) -> Vec<Approx> {
        let own = |s: usize| {
            // A label may follow the label before it directly, unless both are the same.
            let skips = s >= 2 && s % 2 == 1 && states[s] != states[s - 2];
            let first = s.saturating_sub(if skips { 2 } else { 1 });
            self.log_sum(&from[first..=s])
        };
        (0..states.len()).map(own).collect()
    }

    /// For each step and state what leads to it, without its own class; states in the order of
    /// `states`, steps in that of `steps`.
    fn lattice<'a>(
        self,
        states: &[usize],
        steps: impl Iterator<Item = &'a Step>,
    ) -> [Vec<Vec<Approx>>; 2] {
        let (mut without, mut with): (Vec<Vec<Approx>>, Vec<Vec<Approx>>) = (vec![], vec![]);
        for step in steps {
            let arrived = match with.last() {
                Some(last) => self.arrived(states, last),
                None => {
                    let first = |s: usize| if s < 2 { 0.0 } else { f64::NEG_INFINITY };
                    (0..states.len()).map(|s| Approx::exact(first(s))).collect()
                }
            };
            let own = arrived.iter().zip(states).map(|(of, k)| self.add(*of, step.logs[*k]));
            with.push(own.collect());
            without.push(arrived);
        }
        [without, with]
    }

    /// The loss of a sequence, and the gradient of each of its steps.
    fn loss(self, sequence: &Sequence) -> (Approx, Vec<Vec<Approx>>) {
        let Sequence { steps, states } = sequence;
        let [_, alpha] = self.lattice(states, steps.iter());
        let backwards: Vec<usize> = states.iter().rev().copied().collect();
        let [mut beta, _] = self.lattice(&backwards, steps.iter().rev());
        beta.reverse();
        let total = match alpha.last() {
            Some(last) => self.log_sum(&last[states.len().saturating_sub(2)..]),
            None if states.len() == 1 => Approx::exact(0.0),
            None => Approx::exact(f64::NEG_INFINITY),
        };
        let own = if total.value.is_finite() { 2.0 * total.value.abs() } else { 0.0 };
        let loss = Approx { value: 0.0 - total.value, error: total.error + self.ulp * own };
        let inverse = Approx { value: -total.value, error: total.error };
        let row = |t: usize| {
            let mut through = vec![(Approx::exact(0.0), 0.0); steps[t].logs.len()];
            for (s, class) in states.iter().enumerate() {
                let later = self.add(beta[t][states.len() - 1 - s], inverse);
                let path = self.exp(self.add(alpha[t][s], later));
                let (sum, count) = &mut through[*class];
                sum.value += path.value;
                sum.error += path.error;
                *count += 1.0;
            }
            let class = |(own, (sum, count)): (&Approx, &(Approx, f64))| {
                // Infinite losses have no paths: NaN for all classes.
                let sum = match total.value.is_finite() {
                    true => *sum,
                    false => Approx::exact(f64::NAN),
                };
                let error = own.error + sum.error + count * self.ulp * sum.value.abs();
                let value = own.value - sum.value;
                Approx { value, error: error + self.ulp * value.abs() }
            };
            steps[t].probabilities.iter().zip(&through).map(class).collect()
        };
        (loss, (0..steps.len()).map(row).collect())
    }
}
