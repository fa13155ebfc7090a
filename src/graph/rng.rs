//! Random numbers.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Distribution, Math, Real};
use crate::graph::norm::one_element;
use crate::graph::semantics::{Semantics, check_float_math, resolve_to_f32};
use crate::graph::slots::Slots;
use crate::tensor::TensorDesc;

/// A tensor of random numbers (`MCDNN_BACKEND_OPERATION_RNG_DESCRIPTOR`, section 8.2.2.23, and
/// `MCDNN_BACKEND_RNG_DESCRIPTOR`, section 8.2.2.29): words of Philox4x32-10, of which
/// [`Distribution`] says what is drawn.
///
/// The key is the seed. The counter is the offset, a tensor of one element, and the subsequence,
/// both of 64 bits: the element at position `e` in row-major order is drawn from word `e % 4` of
/// subsequence `e / 4`, whatever its tensor's strides. A part of a tensor is drawn as in the whole
/// one where subsequences count from that of its first element. Numbers of different offsets, and
/// of different seeds, are independent. The offset counts blocks of four words, PyTorch's counts
/// words: a generator at `philox_offset` o draws as this does at offset `o / 4`.
///
/// Numbers are computed in the math precision and rounded to the result's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rng {
    /// What is drawn.
    pub distribution: Distribution,
    /// The seed; `None` where it is a tensor of one element.
    pub seed: Option<i64>,
    /// Whether a tensor of one element has the subsequence of the first elements; else it is 0.
    pub subsequence: bool,
    /// Precision of the computation, f32 or f64.
    pub math: Math,
}

impl Rng {
    /// Numbers of this distribution in f32, with seed 0.
    pub const fn new(distribution: Distribution) -> Rng {
        Rng { distribution, seed: Some(0), subsequence: false, math: Math::F32 }
    }

    /// 1 with this probability, else 0.
    pub const fn bernoulli(probability: f64) -> Rng {
        Rng::new(Distribution::Bernoulli { probability: Real::new(probability) })
    }

    /// Numbers between these.
    pub const fn uniform(minimum: f64, maximum: f64) -> Rng {
        let [minimum, maximum] = [Real::new(minimum), Real::new(maximum)];
        Rng::new(Distribution::Uniform { minimum, maximum })
    }

    /// Normally distributed numbers.
    pub const fn normal(mean: f64, deviation: f64) -> Rng {
        let [mean, deviation] = [Real::new(mean), Real::new(deviation)];
        Rng::new(Distribution::Normal { mean, deviation })
    }

    /// Sets the seed; `None` makes it a tensor.
    #[must_use]
    pub const fn seed(self, seed: Option<i64>) -> Rng {
        Rng { seed, ..self }
    }

    /// Makes the subsequence of the first elements a tensor.
    #[must_use]
    pub const fn from_subsequence(self) -> Rng {
        Rng { subsequence: true, ..self }
    }

    /// Sets the precision of the computation.
    #[must_use]
    pub const fn math(self, math: Math) -> Rng {
        Rng { math, ..self }
    }

    /// Type in which numbers are drawn for results of this type: 0 and 1 are numbers of every type.
    pub(crate) fn drawn(&self, result: DType) -> DType {
        match self.distribution {
            Distribution::Bernoulli { .. } => result,
            _ => self.math.dtype(),
        }
    }
}

impl Semantics for Rng {
    fn name(&self) -> &'static str {
        "rng"
    }

    fn slots(&self) -> Slots {
        let inputs: &[&'static str] = match (self.seed, self.subsequence) {
            (Some(_), false) => &["offset"],
            (Some(_), true) => &["offset", "subsequence"],
            (None, false) => &["seed", "offset"],
            (None, true) => &["seed", "offset", "subsequence"],
        };
        Slots::new(inputs, &["y"])
    }

    fn math(&self) -> DType {
        self.math.dtype()
    }

    fn infer(&self, _inputs: &[&TensorDesc]) -> Result<Option<Vec<Vec<i64>>>> {
        Ok(None)
    }

    fn check(&self, inputs: &[&TensorDesc], outputs: &[&TensorDesc]) -> Result<()> {
        self.distribution.validate(self.math)?;
        for (slot, tensor) in self.slots().inputs.iter().zip(inputs) {
            one_element(self, slot, tensor)?;
            if !matches!(tensor.dtype, DType::I64 | DType::I32) {
                let (name, dtype) = (&tensor.name, tensor.dtype);
                let text = format!("{self}: {slot} `{name}` is {dtype}, expected i64 or i32");
                return Err(Error::bad_param(text));
            }
        }
        let y = outputs[0];
        match self.distribution {
            Distribution::Bernoulli { .. } => Ok(()),
            _ if y.dtype.is_float() => Ok(()),
            _ => Err(Error::bad_param(format!(
                "{self}: `{}` is {}, expected a floating-point type",
                y.name, y.dtype
            ))),
        }
    }

    fn check_types(&self, _inputs: &[&TensorDesc]) -> Result<()> {
        check_float_math(self.name(), self.math.dtype())
    }

    fn resolve(&mut self, _operands: &[DType]) {
        resolve_to_f32(&mut self.math);
    }

    fn normalise(&mut self) {
        if matches!(self.distribution, Distribution::Bernoulli { .. }) {
            self.math = Math::F32;
        }
    }
}

impl fmt::Display for Rng {
    /// Formats as `rng[bernoulli{probability=0.9}, seed 42]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rng[{}", self.distribution)?;
        if let Some(seed) = self.seed {
            write!(f, ", seed {seed}")?;
        }
        if self.subsequence {
            f.write_str(", from a subsequence")?;
        }
        if self.math == Math::F64 {
            f.write_str(", f64")?;
        }
        f.write_str("]")
    }
}
