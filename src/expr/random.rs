//! Random numbers: words of Philox4x32-10, and the distributions that are drawn from them.
//!
//! Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3") is a function
//! of a key and a counter to four words of 32 bits. As PyTorch's generator has it, the seed is the
//! key, and the counter is the offset and the subsequence, 64 bits each, the lowest word first.
//! Element `e` of a tensor, in row-major order, has subsequence `e / 4` and word `e % 4`; in a part
//! of one, subsequences count from the one of its first element.

use std::f64::consts::PI;
use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::pointwise::{Math, Real};

/// What random numbers are drawn from (`mcdnnRngDistribution_t`, section 8.1.1.18). Parameters are
/// rounded to the math precision, but for the probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Distribution {
    /// 1 where the element's word is less than `probability * 2^32`, else 0.
    Bernoulli {
        /// Probability of 1, in [0, 1].
        probability: Real,
    },
    /// `minimum + range * u`, rounded once, with `u` as in [`unit`](Distribution::unit) and the
    /// largest `range` that does not exceed the maximum. In f32 `u` may be 1, in f64 it is between.
    Uniform {
        /// Least value.
        minimum: Real,
        /// Largest value.
        maximum: Real,
    },
    /// `mean + deviation * r * sin(2 pi v)` for elements at even positions and `cos` at odd ones,
    /// with `r = sqrt(-2 ln u)` (Box-Muller): `u` is of the word of the even element, `v` of that
    /// of the odd one behind it.
    Normal {
        /// Mean.
        mean: Real,
        /// Standard deviation, at least 0.
        deviation: Real,
    },
}

/// A random number for each element, as an input of a program that is fed its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draw {
    /// The distribution.
    pub distribution: Distribution,
    /// The seed.
    pub seed: Seed,
    /// The program's input that holds the offset.
    pub offset: usize,
    /// The program's input that holds the subsequence at position 0, if that is not 0.
    pub subsequence: Option<usize>,
    /// Type of the number.
    pub dtype: DType,
}

/// Where a seed is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seed {
    /// The seed itself.
    Value(i64),
    /// The program's input that holds it.
    Input(usize),
}

impl Distribution {
    /// Name in messages and problem files.
    pub const fn name(self) -> &'static str {
        match self {
            Distribution::Bernoulli { .. } => "bernoulli",
            Distribution::Uniform { .. } => "uniform",
            Distribution::Normal { .. } => "normal",
        }
    }

    /// The parameters by name.
    pub fn parameters(self) -> Vec<(&'static str, Real)> {
        match self {
            Distribution::Bernoulli { probability } => vec![("probability", probability)],
            Distribution::Uniform { minimum, maximum } => {
                vec![("minimum", minimum), ("maximum", maximum)]
            }
            Distribution::Normal { mean, deviation } => {
                vec![("mean", mean), ("standard_deviation", deviation)]
            }
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// `BadParam` for a probability outside [0, 1], a maximum below the minimum, a negative
    /// deviation, and for a parameter, or a range, that is not finite in the math precision.
    pub fn validate(self, math: Math) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("rng: {rule}")));
        for (name, value) in self.parameters() {
            if !math.dtype().round(value.get()).is_finite() {
                return fail(format!("{name} is {value}, which {} cannot hold", math.dtype()));
            }
        }
        match self {
            Distribution::Bernoulli { probability } => {
                match (0.0..=1.0).contains(&probability.get()) {
                    true => Ok(()),
                    false => fail(format!("probability {probability} is not in [0, 1]")),
                }
            }
            Distribution::Uniform { minimum, maximum } => {
                if maximum.get() < minimum.get() {
                    return fail(format!("maximum {maximum} is below minimum {minimum}"));
                }
                match math.dtype().round(maximum.get() - minimum.get()).is_finite() {
                    true => Ok(()),
                    false => fail(format!(
                        "the range from {minimum} to {maximum} is larger than {} can hold",
                        math.dtype()
                    )),
                }
            }
            Distribution::Normal { deviation, .. } if deviation.get() < 0.0 => {
                fail(format!("standard_deviation {deviation} is negative"))
            }
            Distribution::Normal { .. } => Ok(()),
        }
    }

    /// The same, with parameters rounded to the math precision.
    pub(crate) fn rounded(self, math: Math) -> Distribution {
        let round = |value: Real| Real::new(math.dtype().round(value.get()));
        match self {
            Distribution::Bernoulli { .. } => self,
            Distribution::Uniform { minimum, maximum } => {
                Distribution::Uniform { minimum: round(minimum), maximum: round(maximum) }
            }
            Distribution::Normal { mean, deviation } => {
                Distribution::Normal { mean: round(mean), deviation: round(deviation) }
            }
        }
    }

    /// The number of an element at this position, with the four words of its subsequence; rounded
    /// to the math precision but for normal numbers, which are computed in f64.
    ///
    /// Panics for precisions other than f32 and f64.
    pub(crate) fn value(self, math: Math, words: [u32; 4], position: u64) -> f64 {
        let lane = (position % 4) as usize;
        match self.rounded(math) {
            Distribution::Bernoulli { probability } => {
                f64::from(u8::from(u64::from(words[lane]) < words_below(probability)))
            }
            Distribution::Uniform { minimum, maximum } => {
                let range = range(minimum, maximum, math);
                fused(math, range.get(), Self::unit(math, words[lane]), minimum.get())
            }
            Distribution::Normal { mean, deviation } => {
                let even = lane / 2 * 2;
                let [u, v] = [even, even + 1].map(|lane| Self::unit(math, words[lane]));
                let radius = (-2.0 * u.ln()).sqrt();
                let turn = if lane == even { sin_pi(2.0 * v) } else { cos_pi(2.0 * v) };
                deviation.get().mul_add(radius * turn, mean.get())
            }
        }
    }

    /// A word as a number between 0 and 1: `(word + 1/2) / 2^32`, the word rounded to the math
    /// precision first and the result once more, as cuRAND has it.
    pub fn unit(math: Math, word: u32) -> f64 {
        let word = math.dtype().round(f64::from(word));
        fused(math, word, 2f64.powi(-32), 2f64.powi(-33))
    }
}

impl fmt::Display for Distribution {
    /// Prints the name and the parameters: `bernoulli{probability=0.9}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parameters = self.parameters();
        let parameter = |(name, value): &(&str, Real)| format!("{name}={value}");
        let parameters: Vec<String> = parameters.iter().map(parameter).collect();
        write!(f, "{}{{{}}}", self.name(), parameters.join(", "))
    }
}

impl Draw {
    /// Precision in which the number is computed.
    pub(crate) fn math(&self) -> Math {
        if self.dtype == DType::F64 { Math::F64 } else { Math::F32 }
    }

    /// The number at a position, given the values of the program's inputs.
    pub(super) fn value(&self, inputs: &[f64], position: f64) -> f64 {
        let seed = match self.seed {
            Seed::Value(seed) => seed,
            Seed::Input(at) => inputs[at] as i64,
        };
        let offset = inputs[self.offset] as i64;
        let position = position_from(self.subsequence.map(|at| inputs[at] as i64), position as u64);
        let exact = self.distribution.value(self.math(), words(seed, offset, position), position);
        self.dtype.round(exact)
    }
}

/// The position of an element, given the subsequence of the first one.
pub(crate) fn position_from(subsequence: Option<i64>, position: u64) -> u64 {
    (subsequence.unwrap_or(0) as u64).wrapping_mul(4).wrapping_add(position)
}

/// The words of the element at a position and of those beside it.
pub(crate) fn words(seed: i64, offset: i64, position: u64) -> [u32; 4] {
    let halves = |of: u64| [of as u32, (of >> 32) as u32];
    let ([low, high], [begin, behind]) = (halves(offset as u64), halves(position / 4));
    philox(halves(seed as u64), [low, high, begin, behind])
}

/// How many words draw a 1 with this probability: those below the number.
pub(crate) fn words_below(probability: Real) -> u64 {
    (probability.get() * 4_294_967_296.0).ceil() as u64
}

/// The largest number in this precision that with the minimum does not exceed the maximum.
pub(crate) fn range(minimum: Real, maximum: Real, math: Math) -> Real {
    let (minimum, maximum) = (minimum.get(), maximum.get());
    let mut range = math.dtype().round(maximum - minimum);
    while fused(math, range, 1.0, minimum) > maximum {
        range = match math {
            Math::F64 => range.next_down(),
            _ => f64::from((range as f32).next_down()),
        };
    }
    Real::new(range)
}

/// `a * b + c`, rounded once.
fn fused(math: Math, a: f64, b: f64, c: f64) -> f64 {
    match math {
        Math::F64 => a.mul_add(b, c),
        _ => f64::from((a as f32).mul_add(b as f32, c as f32)),
    }
}

/// `sin(pi x)` for `x` in [0, 2]. The argument is reduced exactly.
fn sin_pi(x: f64) -> f64 {
    match x {
        x if x > 1.0 => -sin_pi(x - 1.0),
        x if x > 0.5 => sin_pi(1.0 - x),
        x if x > 0.25 => (PI * (0.5 - x)).cos(),
        x => (PI * x).sin(),
    }
}

/// `cos(pi x)` for `x` in [0, 2]. The argument is reduced exactly.
fn cos_pi(x: f64) -> f64 {
    match x {
        x if x > 1.0 => -cos_pi(x - 1.0),
        x if x > 0.5 => -cos_pi(1.0 - x),
        x if x > 0.25 => (PI * (0.5 - x)).sin(),
        x => (PI * x).cos(),
    }
}

/// One block of Philox4x32-10: four random words.
fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    for _ in 0..10 {
        let product = |at: usize| u64::from(MULTIPLIERS[at]) * u64::from(counter[2 * at]);
        let [a, b] = [product(0), product(1)];
        let high = |of: u64| (of >> 32) as u32;
        counter =
            [high(b) ^ counter[1] ^ key[0], b as u32, high(a) ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of Random123 (`kat_vectors`, philox4x32 10).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// The same vectors as seed, offset and position.
    #[test]
    fn words_place_seed_offset_and_position() {
        assert_eq!(words(0, 0, 3), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let seed = 0x299f_31d0_a409_3822_u64 as i64;
        let offset = 0x85a3_08d3_243f_6a88_u64 as i64;
        let subsequence = 0x0370_7344_1319_8a2e;
        for position in [subsequence as u64 * 4 + 1, position_from(Some(subsequence - 2), 9)] {
            assert_eq!(
                words(seed, offset, position),
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
            );
        }
    }

    #[test]
    fn probabilities_of_0_and_1_are_certain() {
        let draws = |probability: f64, word: u32| {
            let of = Distribution::Bernoulli { probability: Real::new(probability) };
            of.value(Math::F32, [word; 4], 2) == 1.0
        };
        assert_eq!([0, u32::MAX].map(|word| draws(0.0, word)), [false; 2]);
        assert_eq!([0, u32::MAX].map(|word| draws(1.0, word)), [true; 2]);
        assert_eq!([0x7fff_ffff, 0x8000_0000].map(|word| draws(0.5, word)), [true, false]);
        assert_eq!([0, 1].map(|word| draws(1e-12, word)), [true, false]);
    }

    #[test]
    fn uniform_numbers_stay_in_their_interval() {
        for (minimum, maximum) in [(0.0, 1.0), (0.1, 0.3), (-1e30, 3.0), (5.0, 5.0), (1.0, 1.0001)]
        {
            let [minimum, maximum] = [minimum, maximum].map(Real::new);
            for math in [Math::F32, Math::F64] {
                let of = Distribution::Uniform { minimum, maximum };
                let ends = [0, u32::MAX].map(|word| of.value(math, [word; 4], 0));
                let Distribution::Uniform { minimum, maximum } = of.rounded(math) else { panic!() };
                assert!(minimum.get() <= ends[0] && ends[1] <= maximum.get(), "{ends:?}");
            }
        }
    }

    #[test]
    fn turns_are_those_of_the_circle() {
        for step in 0..=64 {
            let x = f64::from(step) / 32.0;
            assert!((sin_pi(x) - (PI * x).sin()).abs() < 1e-15, "{x}");
            assert!((cos_pi(x) - (PI * x).cos()).abs() < 1e-15, "{x}");
        }
        assert_eq!([sin_pi(1.0), sin_pi(2.0), cos_pi(0.5), cos_pi(1.5)].map(f64::abs), [0.0; 4]);
    }
}
