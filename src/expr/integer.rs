//! Pointwise operations on 32-bit integers: which modes support them, and their semantics.
//!
//! Addition, subtraction and multiplication wrap around in two's complement, and so does the
//! absolute value of the smallest integer. The remainder of a division by 0 is 0.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::mode::{Mode, ModeClass};
use crate::expr::pointwise::{Math, Pointwise, Real};

/// Restriction of 64-bit integers, for error messages.
pub(crate) const MOVED: &str = "which is moved, compared and selected alone";

/// Converts a scalar to a 32-bit integer, if it is one.
pub(super) fn integer(value: Real) -> Option<i32> {
    let value = value.get();
    (DType::I32.round(value) == value).then_some(value as i32)
}

impl Mode {
    /// Whether the mode maps integers to integers.
    const fn is_integral(self) -> bool {
        use Mode::*;
        let arithmetic =
            matches!(self, Add | Sub | Mul | AddSquare | Mod | Max | Min | Abs | Neg | ReluFwd);
        let same = matches!(self, Ceil | Floor);
        arithmetic || same || (self.is_exact() && !matches!(self, GenIndex))
    }
}

impl Pointwise {
    /// Replaces [`Math::Default`]: by `i32` if all data operands (for a selection, those that are
    /// selected) are integers and the operation maps integers to integers, otherwise by `f32`.
    #[must_use]
    pub fn resolved(self, operands: &[DType]) -> Pointwise {
        let integers = || self.data(operands).iter().all(|dtype| dtype.is_integer());
        match self.math {
            Math::Default if integers() && self.integral().is_ok() => self.math(Math::I32),
            Math::Default => self.math(Math::F32),
            _ => self,
        }
    }

    /// The operands without a selection's mask.
    fn data<'a, T>(&self, operands: &'a [T]) -> &'a [T] {
        match self.mode.class() {
            ModeClass::Select => &operands[..operands.len().min(2)],
            _ => operands,
        }
    }

    /// Checks that the math precision supports operands of these names and types.
    ///
    /// # Errors
    /// `BadParam` for a non-integer operand of math `i32`; `NotSupported` for an `i64` operand of a
    /// mode that does more than move, compare or select.
    pub(crate) fn check_operands<N: AsRef<str>>(&self, operands: &[(N, DType)]) -> Result<()> {
        let one = Real::new(1.0);
        let moves = self.mode.is_exact() && self.alpha1 == one && self.alpha2 == one;
        let long = operands.iter().find(|(_, dtype)| *dtype == DType::I64 && !moves);
        if let Some((name, dtype)) = long {
            let (mode, name) = (self.mode, name.as_ref());
            return Err(Error::not_supported(format!("{mode}: `{name}` is {dtype}, {MOVED}")));
        }
        let other = self.data(operands).iter().find(|(_, dtype)| !dtype.is_integer());
        match (self.math, other) {
            (Math::I32, Some((name, dtype))) => {
                let (mode, name) = (self.mode, name.as_ref());
                let text = format!("{mode}: `{name}` is {dtype}, math i32 accepts integers");
                Err(Error::bad_param(text))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the operation maps integers to integers.
    ///
    /// # Errors
    /// `BadParam` naming the mode or parameter that does not.
    pub(super) fn integral(&self) -> Result<()> {
        let mode = self.mode;
        if !mode.is_integral() {
            return Err(Error::bad_param(format!("{mode}: not defined for math i32")));
        }
        let used = self.normalised();
        let scalars = [
            ("alpha1", used.alpha1),
            ("alpha2", used.alpha2),
            ("relu_lower_clip", used.relu_lower_clip),
        ];
        let upper = used.relu_upper_clip;
        let upper = (upper.get() != f64::INFINITY).then_some(("relu_upper_clip", upper));
        for (name, value) in scalars.into_iter().chain(upper) {
            if integer(value).is_none() {
                let text = format!("{mode}: {name} {value} is no integer of math i32");
                return Err(Error::bad_param(text));
            }
        }
        match used.relu_lower_clip_slope.get() == 0.0 {
            true => Ok(()),
            false => {
                let slope = used.relu_lower_clip_slope;
                let text = format!("{mode}: math i32 has no relu_lower_clip_slope, {slope}");
                Err(Error::bad_param(text))
            }
        }
    }

    /// Whether `f32` represents every result for 8-bit integer operands exactly.
    pub(super) fn is_small(&self) -> bool {
        use Mode::*;
        let unscaled = self.alpha1 == Real::new(1.0) && self.alpha2 == Real::new(1.0);
        let grows_little = matches!(self.mode, Add | Sub | Mul | AddSquare | Max | Min | Abs | Neg);
        unscaled && (grows_little || self.mode.is_exact())
    }

    /// Evaluates one element of integers; scaled operands are wrapped, the result is not. Modes
    /// without integer semantics return their first operand.
    pub(crate) fn integer_result(&self, operands: &[f64]) -> i64 {
        let scaled = |alpha: Real, operand: Option<&f64>| {
            let of = DType::I32.round(operand.copied().unwrap_or(0.0)) as i32;
            i64::from(integer(alpha).unwrap_or(1).wrapping_mul(of))
        };
        let x = scaled(self.alpha1, operands.first());
        let b = scaled(self.alpha2, operands.get(1));
        let truth = i64::from;
        match self.mode {
            Mode::Add => x + b,
            Mode::Sub => x - b,
            Mode::Mul => x * b,
            // x + (2^31)^2 fits an i64.
            Mode::AddSquare => x + b * b,
            Mode::Mod => x.checked_rem(b).unwrap_or(0),
            Mode::Max => x.max(b),
            Mode::Min => x.min(b),
            Mode::Abs => x.abs(),
            Mode::Neg => -x,
            Mode::ReluFwd => {
                let clip = |value| integer(value).map(i64::from);
                let raised = x.max(clip(self.relu_lower_clip).unwrap_or(i64::MIN));
                raised.min(clip(self.relu_upper_clip).unwrap_or(i64::MAX))
            }
            Mode::CmpEq => truth(x == b),
            Mode::CmpNeq => truth(x != b),
            Mode::CmpGt => truth(x > b),
            Mode::CmpGe => truth(x >= b),
            Mode::CmpLt => truth(x < b),
            Mode::CmpLe => truth(x <= b),
            Mode::LogicalAnd => truth(x != 0 && b != 0),
            Mode::LogicalOr => truth(x != 0 || b != 0),
            Mode::LogicalNot => truth(x == 0),
            // The mask is compared in its own type: any nonzero value is true.
            Mode::BinarySelect if operands[2] == 0.0 => b,
            // Identity and modes that do not change integers.
            _ => x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(op: Pointwise, operands: &[f64]) -> f64 {
        op.eval(Math::I32, operands)
    }

    #[test]
    fn integers_wrap_around() {
        let [least, most] = [i32::MIN, i32::MAX].map(f64::from);
        assert_eq!(eval(Pointwise::new(Mode::Add), &[most, 1.0]), least);
        assert_eq!(eval(Pointwise::new(Mode::Sub), &[least, 1.0]), most);
        assert_eq!(eval(Pointwise::new(Mode::Mul), &[65537.0, 65537.0]), 131_073.0);
        assert_eq!(eval(Pointwise::new(Mode::AddSquare), &[most, least]), most);
        assert_eq!(eval(Pointwise::new(Mode::Abs), &[least]), least);
        assert_eq!(eval(Pointwise::new(Mode::Neg), &[least]), least);
        assert_eq!(eval(Pointwise::new(Mode::Mod), &[-7.0, 3.0]), -1.0);
        assert_eq!(eval(Pointwise::new(Mode::Mod), &[least, 0.0]), 0.0);
        assert_eq!(eval(Pointwise::new(Mode::Add).alphas(3.0, -1.0), &[most, 5.0]), 2147483640.0);
        assert_eq!(eval(Pointwise::new(Mode::Identity), &[16_777_217.0]), 16_777_217.0);
    }

    #[test]
    fn a_default_is_integers_where_operands_and_result_are() {
        let resolved = |op: Pointwise, operands: &[DType]| op.resolved(operands).math;
        let add = Pointwise::new(Mode::Add);
        assert_eq!(resolved(add, &[DType::I32, DType::U8]), Math::I32);
        assert_eq!(resolved(add, &[DType::I32, DType::F16]), Math::F32);
        assert_eq!(resolved(add.math(Math::F32), &[DType::I32; 2]), Math::F32);
        assert_eq!(resolved(add.alphas(0.5, 1.0), &[DType::I32; 2]), Math::F32);
        assert_eq!(resolved(Pointwise::new(Mode::Div), &[DType::I32; 2]), Math::F32);
        let select = Pointwise::new(Mode::BinarySelect);
        assert_eq!(resolved(select, &[DType::I32, DType::I8, DType::F32]), Math::I32);
    }
}
