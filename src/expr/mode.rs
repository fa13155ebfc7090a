//! The 49 pointwise modes of the backend document (`mcdnnPointwiseMode_t`, section 8.1.1.16).

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Number and meaning of a mode's operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModeClass {
    /// `y = op(alpha1 * x)`.
    Unary,
    /// `y = op(alpha1 * x, alpha2 * b)`.
    Binary,
    /// `dx = op'(alpha1 * x) * (alpha2 * dy)`: the gradient of an activation at its input `x`.
    Backward,
    /// `y = index of the element along an axis of x`; the values of `x` are not used.
    Index,
    /// `y = t ? alpha1 * x : alpha2 * b`; operands in the order `x`, `b`, `t`.
    Select,
}

macro_rules! modes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $class:ident;)*) => {
        /// A pointwise mode (`mcdnnPointwiseMode_t`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Mode { $($(#[$doc])* $variant,)* }

        impl Mode {
            /// All modes in the document's order.
            pub const ALL: [Mode; 49] = [$(Mode::$variant,)*];

            /// Name in problem files and messages: the document's, in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(Mode::$variant => $name,)* }
            }

            /// Whether it is a function of ten instructions and more.
            pub(crate) const fn is_function(self) -> bool {
                use Mode::*;
                match self {
                    Pow | Mod | Cos | Exp | Log | Sin | Tan | Erf => true,
                    TanhFwd | SigmoidFwd | EluFwd | GeluFwd | SoftplusFwd | SwishFwd => true,
                    GeluApproxTanhFwd | EluBwd | GeluBwd | SoftplusBwd | SwishBwd => true,
                    GeluApproxTanhBwd | TanhBwd | SigmoidBwd => true,
                    _ => false,
                }
            }

            /// Number and meaning of the operands.
            pub const fn class(self) -> ModeClass {
                match self { $(Mode::$variant => ModeClass::$class,)* }
            }
        }
    };
}

modes! {
    /// `x + b`.
    Add "add" Binary;
    /// `x + b * b`.
    AddSquare "add_square" Binary;
    /// `x / b`.
    Div "div" Binary;
    /// The larger operand.
    Max "max" Binary;
    /// The smaller operand.
    Min "min" Binary;
    /// The remainder of `x / b` with the sign of `x` (C `fmod`).
    Mod "mod" Binary;
    /// `x * b`.
    Mul "mul" Binary;
    /// `x` to the power of `b` (C `pow`).
    Pow "pow" Binary;
    /// `x - b`.
    Sub "sub" Binary;
    /// The absolute value.
    Abs "abs" Unary;
    /// The smallest integer not below `x`.
    Ceil "ceil" Unary;
    /// The cosine, `x` in radians.
    Cos "cos" Unary;
    /// `e` to the power of `x`.
    Exp "exp" Unary;
    /// The largest integer not above `x`.
    Floor "floor" Unary;
    /// The natural logarithm.
    Log "log" Unary;
    /// `-x`.
    Neg "neg" Unary;
    /// `1 / sqrt(x)`.
    Rsqrt "rsqrt" Unary;
    /// The sine, `x` in radians.
    Sin "sin" Unary;
    /// The square root.
    Sqrt "sqrt" Unary;
    /// The tangent, `x` in radians.
    Tan "tan" Unary;
    /// The error function.
    Erf "erf" Unary;
    /// `x` itself; a cast if the result has another type.
    Identity "identity" Unary;
    /// `x` clipped below (with an optional slope) and above.
    ReluFwd "relu_fwd" Unary;
    /// The hyperbolic tangent.
    TanhFwd "tanh_fwd" Unary;
    /// `1 / (1 + exp(-x))`.
    SigmoidFwd "sigmoid_fwd" Unary;
    /// `x < 0 ? alpha * (exp(x) - 1) : x`.
    EluFwd "elu_fwd" Unary;
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    GeluFwd "gelu_fwd" Unary;
    /// `log(1 + exp(beta * x)) / beta`.
    SoftplusFwd "softplus_fwd" Unary;
    /// `x / (1 + exp(-beta * x))`.
    SwishFwd "swish_fwd" Unary;
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
    GeluApproxTanhFwd "gelu_approx_tanh_fwd" Unary;
    /// Gradient of `ReluFwd`: `dy` between the clips, `slope * dy` at or below the lower clip, 0 at
    /// or above the upper.
    ReluBwd "relu_bwd" Backward;
    /// Gradient of `TanhFwd`.
    TanhBwd "tanh_bwd" Backward;
    /// Gradient of `SigmoidFwd`.
    SigmoidBwd "sigmoid_bwd" Backward;
    /// Gradient of `EluFwd`.
    EluBwd "elu_bwd" Backward;
    /// Gradient of `GeluFwd`.
    GeluBwd "gelu_bwd" Backward;
    /// Gradient of `SoftplusFwd`.
    SoftplusBwd "softplus_bwd" Backward;
    /// Gradient of `SwishFwd`.
    SwishBwd "swish_bwd" Backward;
    /// Gradient of `GeluApproxTanhFwd`.
    GeluApproxTanhBwd "gelu_approx_tanh_bwd" Backward;
    /// `x == b`.
    CmpEq "cmp_eq" Binary;
    /// `x != b`.
    CmpNeq "cmp_neq" Binary;
    /// `x > b`.
    CmpGt "cmp_gt" Binary;
    /// `x >= b`.
    CmpGe "cmp_ge" Binary;
    /// `x < b`.
    CmpLt "cmp_lt" Binary;
    /// `x <= b`.
    CmpLe "cmp_le" Binary;
    /// Both operands are nonzero.
    LogicalAnd "logical_and" Binary;
    /// At least one operand is nonzero.
    LogicalOr "logical_or" Binary;
    /// The operand is zero.
    LogicalNot "logical_not" Unary;
    /// The element's index along an axis.
    GenIndex "gen_index" Index;
    /// `t ? x : b`.
    BinarySelect "binary_select" Select;
}

impl Mode {
    /// The number of tensor operands.
    pub const fn arity(self) -> usize {
        match self.class() {
            ModeClass::Unary | ModeClass::Index => 1,
            ModeClass::Binary | ModeClass::Backward => 2,
            ModeClass::Select => 3,
        }
    }

    /// Whether the mode only moves, compares or selects its operands. Such a mode uses operands
    /// exactly, whatever the math precision; all others round wide operands to it first.
    pub const fn is_exact(self) -> bool {
        use Mode::*;
        matches!(
            self,
            Identity
                | BinarySelect
                | GenIndex
                | CmpEq
                | CmpNeq
                | CmpGt
                | CmpGe
                | CmpLt
                | CmpLe
                | LogicalAnd
                | LogicalOr
                | LogicalNot
        )
    }

    /// Whether the mode is an instruction or two, whose result is as well computed again as kept.
    pub(crate) const fn is_short(self) -> bool {
        use Mode::*;
        let arithmetic =
            matches!(self, Add | Sub | Mul | AddSquare | Max | Min | Abs | Neg | ReluFwd);
        arithmetic || (self.is_exact() && !matches!(self, GenIndex))
    }

    /// Whether the mode has a NaN rule.
    pub const fn is_comparison_based(self) -> bool {
        matches!(self, Mode::Max | Mode::Min | Mode::ReluFwd | Mode::ReluBwd)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| {
            let near = Mode::ALL.into_iter().map(Mode::name).find(|name| {
                name.starts_with(text) || text.starts_with(name.split('_').next().unwrap_or(name))
            });
            let hint = near.map_or(String::new(), |name| format!(", did you mean `{name}`?"));
            Error::bad_param(format!("unknown pointwise mode `{text}`{hint}"))
        })
    }
}
