//! Derivatives of pointwise operations: from the gradient of a result those of the operands, as
//! pointwise operations.
//!
//! Conventions where a mode is not smooth: ReLU and its clips as `relu_bwd` says, 0 where the
//! slope is 0; `abs` 0 at 0; equal operands of `max` and `min` half each; `pow` 0 by a base of an
//! exponent of 0, and by an exponent of at least 0 where the base is 0. Where a derivative of 0 is
//! multiplied with an infinite gradient the product is NaN. Comparisons, logic, `ceil`, `floor` and
//! indices have none.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

use crate::expr::mode::Mode;
use crate::expr::pointwise::Pointwise;

/// Factors of GELU's approximation: `tanh(SCALE * (x + CUBIC * x^3))`.
const CUBIC: f64 = 0.044_715;

/// Writes pointwise operations on values, in one precision.
pub(crate) struct Writer<'a, V> {
    /// Adds an operation and returns its result.
    pub(crate) push: &'a mut dyn FnMut(Pointwise, &[V]) -> V,
    /// The operation that is differentiated; what is written has its precision.
    pub(crate) of: Pointwise,
}

impl<V: Copy> Writer<'_, V> {
    fn with(&mut self, mode: Mode, [a, b]: [f64; 2], operands: &[V]) -> V {
        let op = Pointwise::new(mode).alphas(a, b).math(self.of.math);
        (self.push)(op, operands)
    }

    fn unary(&mut self, mode: Mode, x: V) -> V {
        self.with(mode, [1.0, 1.0], &[x])
    }

    /// Of `factor * x`.
    fn of_scaled(&mut self, mode: Mode, factor: f64, x: V) -> V {
        self.with(mode, [factor, 1.0], &[x])
    }

    fn scaled(&mut self, factor: f64, x: V) -> V {
        self.of_scaled(Mode::Identity, factor, x)
    }

    fn product(&mut self, factor: f64, a: V, b: V) -> V {
        self.with(Mode::Mul, [factor, 1.0], &[a, b])
    }

    /// `a * x + b * y`.
    fn sum(&mut self, factors: [f64; 2], x: V, y: V) -> V {
        self.with(Mode::Add, factors, &[x, y])
    }

    /// 1, whatever `x` is.
    fn one(&mut self, x: V) -> V {
        let is_zero = self.unary(Mode::LogicalNot, x);
        self.with(Mode::LogicalOr, [1.0, 1.0], &[x, is_zero])
    }

    /// 0, whatever `x` is.
    fn zero(&mut self, x: V) -> V {
        let one = self.one(x);
        self.unary(Mode::LogicalNot, one)
    }

    /// `t ? a : b`.
    fn select(&mut self, a: V, b: V, t: V) -> V {
        self.with(Mode::BinarySelect, [1.0, 1.0], &[a, b, t])
    }

    /// A gradient of an activation, `op'(factor * x) * (scale * dy)`, with the attributes of the
    /// operation that is differentiated.
    fn activation(&mut self, mode: Mode, [factor, scale]: [f64; 2], x: V, dy: V) -> V {
        let op = Pointwise { mode, ..self.of }.alphas(factor, scale);
        (self.push)(op, &[x, dy])
    }

    /// The gradients of the operands, for that of the result; `None` for one that is 0.
    pub(crate) fn pullback(&mut self, operands: &[V], dy: V) -> Vec<Option<V>> {
        match *operands {
            [x] => vec![self.unary_gradient(x, dy)],
            [x, b] => self.binary_gradients(x, b, dy).into(),
            [_, _, t] => {
                let [a, b] = [self.of.alpha1.get(), self.of.alpha2.get()];
                let zero = self.zero(dy);
                let dx = self.with(Mode::BinarySelect, [a, 1.0], &[dy, zero, t]);
                let db = self.with(Mode::BinarySelect, [1.0, b], &[zero, dy, t]);
                vec![Some(dx), Some(db), None]
            }
            _ => Vec::new(),
        }
    }

    /// As [`pullback`](Self::pullback), with the result of the operation at hand: the slopes of
    /// sigmoid, tanh and the exponential are computed from that.
    pub(crate) fn pullback_with(&mut self, operands: &[V], y: V, dy: V) -> Vec<Option<V>> {
        let a = self.of.alpha1.get();
        match self.of.mode {
            Mode::TanhFwd => {
                let square = self.product(1.0, y, y);
                let bent = self.product(1.0, square, dy);
                vec![Some(self.sum([a, -a], dy, bent))]
            }
            Mode::SigmoidFwd => {
                let straight = self.product(1.0, y, dy);
                let bent = self.product(1.0, y, straight);
                vec![Some(self.sum([a, -a], straight, bent))]
            }
            Mode::Exp => vec![Some(self.product(a, y, dy))],
            _ => self.pullback(operands, dy),
        }
    }

    fn unary_gradient(&mut self, x: V, dy: V) -> Option<V> {
        let a = self.of.alpha1.get();
        Some(match self.of.mode {
            Mode::Identity => self.scaled(a, dy),
            Mode::Neg => self.scaled(-a, dy),
            Mode::Abs => {
                let zero = self.zero(x);
                let above = self.with(Mode::CmpGt, [1.0, 1.0], &[x, zero]);
                let below = self.with(Mode::CmpLt, [1.0, 1.0], &[x, zero]);
                let sign = self.sum([1.0, -1.0], above, below);
                self.product(a.abs(), sign, dy)
            }
            Mode::Sin => {
                let cos = self.of_scaled(Mode::Cos, a, x);
                self.product(a, cos, dy)
            }
            Mode::Cos => {
                let sin = self.of_scaled(Mode::Sin, a, x);
                self.product(-a, sin, dy)
            }
            Mode::Tan => {
                let tan = self.of_scaled(Mode::Tan, a, x);
                let square = self.product(1.0, tan, tan);
                let bent = self.product(a, square, dy);
                self.sum([a, 1.0], dy, bent)
            }
            Mode::Exp => {
                let exp = self.of_scaled(Mode::Exp, a, x);
                self.product(a, exp, dy)
            }
            Mode::Log => self.with(Mode::Div, [1.0, 1.0], &[dy, x]),
            Mode::Sqrt => {
                let rsqrt = self.of_scaled(Mode::Rsqrt, a, x);
                self.product(0.5 * a, rsqrt, dy)
            }
            Mode::Rsqrt => {
                let rsqrt = self.of_scaled(Mode::Rsqrt, a, x);
                let cubed = self.with(Mode::Div, [-0.5, 1.0], &[rsqrt, x]);
                self.product(1.0, cubed, dy)
            }
            Mode::Erf => {
                let square = self.product(-a * a, x, x);
                let exp = self.unary(Mode::Exp, square);
                self.product(FRAC_2_SQRT_PI * a, exp, dy)
            }
            mode => self.activation(backward(mode)?, [a, a], x, dy),
        })
    }

    fn binary_gradients(&mut self, x: V, b: V, dy: V) -> [Option<V>; 2] {
        let [a, c] = [self.of.alpha1.get(), self.of.alpha2.get()];
        let [dx, db] = match self.of.mode {
            Mode::Add => [self.scaled(a, dy), self.scaled(c, dy)],
            Mode::Sub => [self.scaled(a, dy), self.scaled(-c, dy)],
            Mode::AddSquare => [self.scaled(a, dy), self.product(2.0 * c * c, b, dy)],
            Mode::Mul => [self.product(a * c, b, dy), self.product(a * c, x, dy)],
            Mode::Div => {
                let quotient = self.with(Mode::Div, [a, c], &[x, b]);
                let over = self.with(Mode::Div, [1.0, c], &[dy, b]);
                [self.scaled(a, over), self.product(-c, quotient, over)]
            }
            Mode::Mod => {
                let rest = self.with(Mode::Mod, [a, c], &[x, b]);
                let whole = self.sum([a, -1.0], x, rest);
                let count = self.with(Mode::Div, [1.0, c], &[whole, b]);
                [self.scaled(a, dy), self.product(-c, count, dy)]
            }
            Mode::Max | Mode::Min => {
                let larger = self.of.mode == Mode::Max;
                let [above, at_least] =
                    if larger { [Mode::CmpGt, Mode::CmpGe] } else { [Mode::CmpLt, Mode::CmpLe] };
                let mut share = |modes: [Mode; 2], factor: f64| {
                    let [first, second] = modes.map(|mode| self.with(mode, [a, c], &[x, b]));
                    let share = self.sum([0.5, 0.5], first, second);
                    self.product(factor, share, dy)
                };
                let [below, at_most] =
                    if larger { [Mode::CmpLt, Mode::CmpLe] } else { [Mode::CmpGt, Mode::CmpGe] };
                [share([above, at_least], a), share([below, at_most], c)]
            }
            Mode::Pow => self.pow_gradients(x, b, dy),
            mode => return self.of_gradient(mode, x, b, dy),
        };
        [Some(dx), Some(db)]
    }

    /// Of `(a x)^(c b)`: `c b (a x)^(c b - 1)` and `(a x)^(c b) log(a x)`.
    fn pow_gradients(&mut self, x: V, b: V, dy: V) -> [V; 2] {
        let [a, c] = [self.of.alpha1.get(), self.of.alpha2.get()];
        let one = self.one(b);
        let zero = self.unary(Mode::LogicalNot, one);
        let less = self.sum([c, -1.0], b, one);
        let lower = self.with(Mode::Pow, [a, 1.0], &[x, less]);
        let slope = self.product(a * c, b, lower);
        let dx = self.product(1.0, slope, dy);
        let no_exponent = self.unary(Mode::LogicalNot, b);
        let power = self.with(Mode::Pow, [a, c], &[x, b]);
        let log = self.of_scaled(Mode::Log, a, x);
        let slope = self.product(c, power, log);
        let db = self.product(1.0, slope, dy);
        let no_base = self.unary(Mode::LogicalNot, x);
        let at_least = self.with(Mode::CmpGe, [c, 1.0], &[b, zero]);
        let of_zero = self.with(Mode::LogicalAnd, [1.0, 1.0], &[no_base, at_least]);
        [self.masked(dx, no_exponent), self.masked(db, of_zero)]
    }

    /// A value, but 0 where `t` holds; the operands of a selection have one shape.
    fn masked(&mut self, value: V, t: V) -> V {
        let zero = self.zero(value);
        let t = self.sum([1.0, 1.0], t, zero);
        self.select(zero, value, t)
    }

    /// The gradients of the gradient of an activation, `f'(a x) (c w)`: by `x` the second
    /// derivative, by `w` the first.
    fn of_gradient(&mut self, mode: Mode, x: V, w: V, dy: V) -> [Option<V>; 2] {
        let [a, c] = [self.of.alpha1.get(), self.of.alpha2.get()];
        if !mode.name().ends_with("_bwd") {
            return [None, None];
        }
        let dw = self.activation(mode, [a, c], x, dy);
        let both = self.product(1.0, w, dy);
        let dx = match mode {
            Mode::TanhBwd => {
                let tanh = self.of_scaled(Mode::TanhFwd, a, x);
                let slope = self.activation(mode, [a, 1.0], x, both);
                Some(self.product(-2.0 * a * c, tanh, slope))
            }
            Mode::SigmoidBwd => {
                let [_, turned] = self.sigmoid_slopes(a, x, both);
                Some(self.scaled(a * c, turned))
            }
            Mode::EluBwd => {
                let slope = self.activation(mode, [a, a * c], x, both);
                let zero = self.zero(slope);
                let below = self.with(Mode::CmpLt, [a, 1.0], &[x, zero]);
                Some(self.select(slope, zero, below))
            }
            Mode::SoftplusBwd => {
                let beta = self.of.softplus_beta.get();
                let slope = Pointwise::new(Mode::SigmoidBwd).math(self.of.math);
                let slope = slope.alphas(beta * a, beta * a * c);
                Some((self.push)(slope, &[x, both]))
            }
            Mode::SwishBwd => {
                let beta = self.of.swish_beta.get();
                let [slope, turned] = self.sigmoid_slopes(beta * a, x, both);
                let bent = self.product(1.0, x, turned);
                Some(self.sum([2.0 * beta * a * c, beta * beta * a * a * c], slope, bent))
            }
            Mode::GeluBwd => {
                let factor = a * c / (2.0 * PI).sqrt();
                let square = self.product(a * a, x, x);
                let density = self.of_scaled(Mode::Exp, -0.5, square);
                let weighted = self.product(1.0, density, both);
                let bent = self.product(1.0, square, weighted);
                Some(self.sum([2.0 * factor, -factor], weighted, bent))
            }
            Mode::GeluApproxTanhBwd => Some(self.gelu_approx_second(x, both)),
            _ => None,
        };
        [dx, Some(dw)]
    }

    /// `s'(z) p` and `s''(z) p` of the sigmoid at `z = factor * x`.
    fn sigmoid_slopes(&mut self, factor: f64, x: V, p: V) -> [V; 2] {
        let sigmoid = self.of_scaled(Mode::SigmoidFwd, factor, x);
        let slope = Pointwise::new(Mode::SigmoidBwd).math(self.of.math).alphas(factor, 1.0);
        let slope = (self.push)(slope, &[x, p]);
        let part = self.product(1.0, sigmoid, slope);
        [slope, self.sum([1.0, -2.0], slope, part)]
    }

    /// The second derivative of `u / 2 (1 + t)`, `t = tanh(k)`, `k = s (u + q u^3)`, times `p`:
    /// with `k' = s (1 + 3 q u^2)` and `k'' = 6 s q u`, `(1 - t^2) (k' + u k'' / 2 - u t k'^2)`.
    fn gelu_approx_second(&mut self, x: V, p: V) -> V {
        let [a, c] = [self.of.alpha1.get(), self.of.alpha2.get()];
        let s = (2.0 / PI).sqrt();
        let square = self.product(a * a, x, x);
        let one = self.one(x);
        let inside = self.sum([s, s * CUBIC], one, square);
        let k = self.product(a, x, inside);
        let tanh = self.unary(Mode::TanhFwd, k);
        let slope = self.sum([s, 3.0 * s * CUBIC], one, square);
        // k' + u k'' / 2
        let straight = self.sum([1.0, 3.0 * s * CUBIC], slope, square);
        let slopes = self.product(1.0, slope, slope);
        let bent = self.product(a, x, tanh);
        let bent = self.product(1.0, bent, slopes);
        let whole = self.sum([1.0, -1.0], straight, bent);
        let weighted = self.product(1.0, whole, p);
        let slope = Pointwise::new(Mode::TanhBwd).math(self.of.math).alphas(1.0, a * c);
        (self.push)(slope, &[k, weighted])
    }
}

/// The mode that is the gradient of an activation.
fn backward(mode: Mode) -> Option<Mode> {
    Some(match mode {
        Mode::ReluFwd => Mode::ReluBwd,
        Mode::TanhFwd => Mode::TanhBwd,
        Mode::SigmoidFwd => Mode::SigmoidBwd,
        Mode::EluFwd => Mode::EluBwd,
        Mode::GeluFwd => Mode::GeluBwd,
        Mode::SoftplusFwd => Mode::SoftplusBwd,
        Mode::SwishFwd => Mode::SwishBwd,
        Mode::GeluApproxTanhFwd => Mode::GeluApproxTanhBwd,
        _ => return None,
    })
}
