//! Dropout of training layers: the probability, and the random numbers that decide.

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::expr::Real;

/// Values of all types are exact as f64, which has all integers up to here.
const SEED_MAX: u64 = 1 << 53;

/// A dropout (`mcdnnDropoutDescriptor_t`, as cuDNN's `cudnnSetDropoutDescriptor` sets it): in
/// training, an element is 0 with a probability, and otherwise multiplied by what keeps the
/// expected value. Inference drops nothing.
///
/// Which elements are dropped is not stored: element `e`, in an order of the layer's own that does
/// not depend on memory layouts, is decided by word `e % 4` of subsequence `e / 4` of Philox4x32-10
/// with the descriptor's seed as key and a *position* as offset (see [`Rng`](crate::graph::Rng)).
/// The state of a layer's dropouts is in device memory ([`DropoutStates`]): the seeds, and for each
/// the position of the next forward pass in training, which takes the position, leaves it in the
/// reserve space, from which the backward passes draw the same numbers again, and moves the state
/// on. A layer with `n` dropouts moves on by `n`, the first having started at 0, the next at 1:
/// those with the same seed do not share numbers either. Layers whose masks are to differ need
/// seeds that do.
///
/// [`DropoutStates`]: crate::layers::DropoutStates
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DropoutDescriptor {
    probability: Real,
    seed: i64,
}

impl DropoutDescriptor {
    /// Drops nothing.
    pub const NONE: DropoutDescriptor = DropoutDescriptor { probability: Real::new(0.0), seed: 0 };

    /// Validates the arguments: the probability of dropping an element, and the seed.
    ///
    /// # Errors
    /// `BadParam` for a probability outside [0, 1), and a seed beyond 2^53 in magnitude.
    pub fn set(probability: Real, seed: i64) -> Result<DropoutDescriptor> {
        let bad = |rule: String| Err(Error::bad_param(format!("dropout descriptor: {rule}")));
        if !(0.0..1.0).contains(&probability.get()) {
            return bad(format!("probability {probability}, expected 0 to less than 1"));
        }
        match seed.unsigned_abs() <= SEED_MAX {
            true => Ok(DropoutDescriptor { probability, seed }),
            false => bad(format!("seed {seed}, expected at most 2^53 in magnitude")),
        }
    }

    /// Probability of dropping an element.
    pub fn probability(&self) -> Real {
        self.probability
    }

    /// Key of the random numbers.
    pub fn seed(&self) -> i64 {
        self.seed
    }

    /// Whether nothing is dropped.
    pub fn is_none(&self) -> bool {
        self.probability == Real::new(0.0)
    }

    /// Probability of keeping an element.
    pub fn kept(&self) -> f64 {
        1.0 - self.probability.get()
    }

    /// Factor of the elements that are kept.
    pub fn scale(&self) -> f64 {
        1.0 / self.kept()
    }
}

impl Default for DropoutDescriptor {
    fn default() -> DropoutDescriptor {
        DropoutDescriptor::NONE
    }
}

/// Bytes of a dropout's seed and of its position in device memory.
pub(crate) const SEED_BYTES: usize = size_of::<i64>();
pub(crate) const POSITION_BYTES: usize = size_of::<i32>();

/// A dropout in a problem file: `{ "probability": 0.1, "seed": 1 }`.
#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
pub(crate) struct DropoutJson {
    probability: f64,
    #[serde(default)]
    seed: i64,
}

impl DropoutJson {
    /// The dropout, if there is one, of what `of` names in messages.
    pub(crate) fn descriptor(json: Option<DropoutJson>, of: &str) -> Result<DropoutDescriptor> {
        let Some(DropoutJson { probability, seed }) = json else {
            return Ok(DropoutDescriptor::NONE);
        };
        let set = DropoutDescriptor::set(Real::new(probability), seed);
        set.map_err(|error| error.context(of))
    }
}
