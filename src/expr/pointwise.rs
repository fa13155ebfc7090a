//! One pointwise operation: a mode and its parameters (`MCDNN_BACKEND_POINTWISE_DESCRIPTOR`,
//! section 8.2.2.26, and the scalars of the operation, section 8.2.2.19).

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::mode::{Mode, ModeClass};

/// An `f64` that compares and hashes by its bits, so that plain values can hold parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Real(u64);

impl Real {
    /// Wraps a number, preserving its bits.
    pub const fn new(value: f64) -> Self {
        Real(value.to_bits())
    }

    /// The number.
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        Real::new(value)
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// The precision in which an operation computes (`MCDNN_ATTR_POINTWISE_MATH_PREC`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum Math {
    /// Determined by the operands: i32 if all of them are integers and the operation maps integers
    /// to integers, otherwise `f32`. Operations of graphs and programs are always resolved.
    #[default]
    Default,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// Wrapping 32-bit two's complement, for integer operands only.
    I32,
}

impl Math {
    /// Default precision for values of a type: `f64` and `i32` for themselves, `f32` for all
    /// others.
    pub fn of(dtype: DType) -> Math {
        match dtype {
            DType::F64 => Math::F64,
            DType::I32 => Math::I32,
            _ => Math::F32,
        }
    }

    /// Name in messages and problem files; `None` for the default.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Math::Default => None,
            Math::F32 => Some("f32"),
            Math::F64 => Some("f64"),
            Math::I32 => Some("i32"),
        }
    }

    /// Type of intermediate values.
    pub const fn dtype(self) -> DType {
        match self {
            Math::Default | Math::F32 => DType::F32,
            Math::F64 => DType::F64,
            Math::I32 => DType::I32,
        }
    }
}

/// Implementation of sigmoid and tanh in [`Math::F32`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activations {
    /// CUDA's functions: within a few ulp of the result.
    #[default]
    Precise,
    /// Only `ex2.approx` and `rcp.approx`: within a few ulp of 1.
    Approximate,
    /// `tanh.approx`: one instruction, within 2^-11 of the result of tanh and 2^-12 of sigmoid.
    Fast,
}

/// NaN rule of comparison-based modes (`mcdnnNanPropagation_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum NanPropagation {
    /// MAX and MIN return the other operand; ReLU maps NaN to its lower clip.
    #[default]
    NotPropagate,
    /// NaN in, NaN out.
    Propagate,
}

/// A pointwise operation without its operands.
///
/// Every scalar is rounded to the math precision before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pointwise {
    /// Mode.
    pub mode: Mode,
    /// Math precision.
    pub math: Math,
    /// NaN rule of max, min and ReLU.
    pub nan: NanPropagation,
    /// Scale of the first operand; default 1.
    pub alpha1: Real,
    /// Scale of the second operand; default 1.
    pub alpha2: Real,
    /// ReLU: lower clip; default 0.
    pub relu_lower_clip: Real,
    /// ReLU: upper clip; default infinity (no clipping).
    pub relu_upper_clip: Real,
    /// ReLU: slope below the lower clip; default 0.
    pub relu_lower_clip_slope: Real,
    /// ELU: factor of the exponential branch; default 1.
    pub elu_alpha: Real,
    /// Softplus: sharpness; default 1.
    pub softplus_beta: Real,
    /// Swish: sharpness; default 1.
    pub swish_beta: Real,
    /// GEN_INDEX: axis of the index; no valid default, as in the document (-1).
    pub axis: i64,
}

impl Pointwise {
    /// Returns the mode with default parameters.
    pub const fn new(mode: Mode) -> Self {
        Pointwise {
            mode,
            math: Math::Default,
            nan: NanPropagation::NotPropagate,
            alpha1: Real::new(1.0),
            alpha2: Real::new(1.0),
            relu_lower_clip: Real::new(0.0),
            relu_upper_clip: Real::new(f64::INFINITY),
            relu_lower_clip_slope: Real::new(0.0),
            elu_alpha: Real::new(1.0),
            softplus_beta: Real::new(1.0),
            swish_beta: Real::new(1.0),
            axis: -1,
        }
    }

    /// Sets the math precision.
    pub const fn math(self, math: Math) -> Self {
        Pointwise { math, ..self }
    }

    /// Sets the NaN rule.
    pub const fn nan(self, nan: NanPropagation) -> Self {
        Pointwise { nan, ..self }
    }

    /// Sets the scales of the operands.
    pub const fn alphas(self, alpha1: f64, alpha2: f64) -> Self {
        Pointwise { alpha1: Real::new(alpha1), alpha2: Real::new(alpha2), ..self }
    }

    /// Sets the clips of ReLU and the slope below the lower one.
    pub const fn relu(self, lower: f64, upper: f64, slope: f64) -> Self {
        Pointwise {
            relu_lower_clip: Real::new(lower),
            relu_upper_clip: Real::new(upper),
            relu_lower_clip_slope: Real::new(slope),
            ..self
        }
    }

    /// Sets the ELU alpha, softplus beta or swish beta, whichever the mode has.
    pub const fn shape(self, value: f64) -> Self {
        let value = Real::new(value);
        Pointwise { elu_alpha: value, softplus_beta: value, swish_beta: value, ..self }
    }

    /// Sets the axis of GEN_INDEX.
    pub const fn axis(self, axis: i64) -> Self {
        Pointwise { axis, ..self }
    }

    /// The precision used for operands of these types: the math precision, or `f64` where an
    /// [exact](Mode::is_exact) mode would otherwise lose bits of an operand. 8-bit integers are
    /// computed in `f32` where that represents every result.
    pub fn compute(&self, operands: impl IntoIterator<Item = DType>) -> Math {
        let one = Real::new(1.0);
        let exact = self.mode.is_exact() && self.alpha1 == one && self.alpha2 == one;
        let fit = operands.into_iter().all(|dtype| dtype.fits_f32());
        match self.math {
            Math::I32 if fit && self.is_small() => Math::F32,
            Math::I32 => Math::I32,
            _ if exact && !fit => Math::F64,
            Math::Default => Math::F32,
            math => math,
        }
    }

    /// Whether the result is the operand, but for its type.
    pub fn is_copy(&self) -> bool {
        self.normalised() == Pointwise::new(Mode::Identity).math(self.math)
    }

    /// Resets parameters that the mode ignores to their defaults, so that equivalent operations
    /// compare equal.
    pub fn normalised(&self) -> Self {
        let mut kept = Pointwise::new(self.mode);
        kept.math = self.math;
        kept.alpha1 = self.alpha1;
        if self.mode.is_comparison_based() {
            kept.nan = self.nan;
        }
        if matches!(self.mode.class(), ModeClass::Binary | ModeClass::Backward | ModeClass::Select)
        {
            kept.alpha2 = self.alpha2;
        }
        match self.mode {
            Mode::ReluFwd | Mode::ReluBwd => {
                kept.relu_lower_clip = self.relu_lower_clip;
                kept.relu_upper_clip = self.relu_upper_clip;
                kept.relu_lower_clip_slope = self.relu_lower_clip_slope;
            }
            Mode::EluFwd | Mode::EluBwd => kept.elu_alpha = self.elu_alpha,
            Mode::SoftplusFwd | Mode::SoftplusBwd => kept.softplus_beta = self.softplus_beta,
            Mode::SwishFwd | Mode::SwishBwd => kept.swish_beta = self.swish_beta,
            Mode::GenIndex => kept.axis = self.axis,
            _ => {}
        }
        kept
    }

    /// Rounds every scalar to the math precision.
    pub fn rounded(&self, math: Math) -> Self {
        let round = |value: Real| Real::new(math.dtype().round(value.get()));
        Pointwise {
            alpha1: round(self.alpha1),
            alpha2: round(self.alpha2),
            relu_lower_clip: round(self.relu_lower_clip),
            relu_upper_clip: round(self.relu_upper_clip),
            relu_lower_clip_slope: round(self.relu_lower_clip_slope),
            elu_alpha: round(self.elu_alpha),
            softplus_beta: round(self.softplus_beta),
            swish_beta: round(self.swish_beta),
            ..*self
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// `BadParam` for a parameter that is NaN, an infinite alpha, a lower clip above the upper one,
    /// a softplus or swish beta of 0, an alpha without a matching operand, or parameters that math
    /// `i32` does not support.
    pub fn validate(&self) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("{}: {rule}", self.mode)));
        let used = self.normalised();
        let finite = [
            ("alpha1", self.alpha1),
            ("alpha2", self.alpha2),
            ("relu_lower_clip_slope", used.relu_lower_clip_slope),
            ("elu_alpha", used.elu_alpha),
            ("softplus_beta", used.softplus_beta),
            ("swish_beta", used.swish_beta),
        ];
        if let Some((name, value)) = finite.iter().find(|(_, value)| !value.get().is_finite()) {
            return fail(format!("{name} {value} is not finite"));
        }
        if self.alpha2 != used.alpha2 {
            return fail(format!("alpha2 {} is set without a second operand", self.alpha2));
        }
        if self.mode == Mode::GenIndex && self.alpha1.get() != 1.0 {
            return fail(format!(
                "alpha1 {} is set but the operand's values are not used",
                self.alpha1
            ));
        }
        let (lower, upper) = (used.relu_lower_clip.get(), used.relu_upper_clip.get());
        if lower.is_nan() || upper.is_nan() || lower > upper {
            return fail(format!("relu_lower_clip {lower} is not at most relu_upper_clip {upper}"));
        }
        if self.math == Math::I32 {
            self.integral()?;
        }
        let held = used.rounded(self.math);
        if held.softplus_beta.get() == 0.0 || held.swish_beta.get() == 0.0 {
            return fail("beta is 0 in the math precision".to_owned());
        }
        if !held.alpha1.get().is_finite() || !held.alpha2.get().is_finite() {
            return fail("an alpha is infinite in the math precision".to_owned());
        }
        Ok(())
    }
}

impl fmt::Display for Pointwise {
    /// Prints the mode and the parameters that differ from their defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Pointwise::new(self.mode);
        write!(f, "{}", self.mode)?;
        let mut parts = Vec::new();
        let reals = [
            ("alpha1", self.alpha1, default.alpha1),
            ("alpha2", self.alpha2, default.alpha2),
            ("lower_clip", self.relu_lower_clip, default.relu_lower_clip),
            ("upper_clip", self.relu_upper_clip, default.relu_upper_clip),
            ("slope", self.relu_lower_clip_slope, default.relu_lower_clip_slope),
            ("alpha", self.elu_alpha, default.elu_alpha),
            ("softplus_beta", self.softplus_beta, default.softplus_beta),
            ("swish_beta", self.swish_beta, default.swish_beta),
        ];
        parts.extend(
            reals
                .iter()
                .filter(|(_, value, default)| value != default)
                .map(|(name, value, _)| format!("{name}={value}")),
        );
        if self.axis != default.axis {
            parts.push(format!("axis={}", self.axis));
        }
        if self.nan == NanPropagation::Propagate {
            parts.push("propagate_nan".to_owned());
        }
        if let (Math::F64 | Math::I32, Some(name)) = (self.math, self.math.name()) {
            parts.push(name.to_owned());
        }
        if !parts.is_empty() {
            write!(f, "{{{}}}", parts.join(", "))?;
        }
        Ok(())
    }
}
