//! Evaluation of programs in `f64`.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use crate::dtype::DType;
use crate::expr::mode::Mode;
use crate::expr::pointwise::{Math, NanPropagation, Pointwise, Real};
use crate::expr::program::{Program, Value};

impl Program {
    /// Evaluates the outputs for one element; each result is rounded to the math precision and then
    /// to its type.
    ///
    /// `inputs` holds one value per [input](Program::inputs), as read from storage; for a random
    /// number, the element's position.
    ///
    /// # Panics
    /// When `inputs` is shorter than the program's inputs.
    pub fn eval(&self, inputs: &[f64]) -> Vec<f64> {
        let mut results: Vec<f64> = Vec::with_capacity(self.instructions().len());
        let mut given = inputs.to_vec();
        for (at, draw) in self.draws() {
            given[at] = draw.value(inputs, inputs[at]);
        }
        let read = |results: &[f64], value: &Value| match value {
            Value::Input(index) => given[*index],
            Value::Result(index) => results[*index],
        };
        for instruction in self.instructions() {
            let mut operands = [0.0; 3];
            for (slot, value) in operands.iter_mut().zip(&instruction.operands) {
                *slot = read(&results, value);
            }
            let math = self.compute(instruction);
            let exact = instruction.op.eval(math, &operands[..instruction.operands.len()]);
            results.push(instruction.dtype.round(math.dtype().round(exact)));
        }
        self.outputs().iter().map(|value| read(&results, value)).collect()
    }
}

impl Pointwise {
    /// Evaluates one element, without rounding to `math` and the result type.
    ///
    /// Operands, scaled operands and parameters are rounded to `math` first; the rest is computed
    /// in `f64`.
    ///
    /// # Panics
    /// When there are fewer operands than the mode's arity.
    pub fn eval(&self, math: Math, operands: &[f64]) -> f64 {
        if math == Math::I32 {
            return (self.integer_result(operands) as i32).into();
        }
        let round = |value: f64| math.dtype().round(value);
        let scalar = |value: Real| round(value.get());
        let (alpha1, raw) = (scalar(self.alpha1), round(operands[0]));
        let x = round(scaled(alpha1, raw));
        let (alpha2, raw_b) = (scalar(self.alpha2), operands.get(1).map_or(0.0, |b| round(*b)));
        let b = round(scaled(alpha2, raw_b));
        match self.mode {
            // The mask is compared in its own type: any nonzero value is true.
            Mode::BinarySelect => match operands[2] != 0.0 {
                true => x,
                false => b,
            },
            // A scaled addition is a fused multiply-add with one rounding.
            Mode::Add if alpha1 != 1.0 => alpha1.mul_add(raw, b),
            Mode::Add if alpha2 != 1.0 => alpha2.mul_add(raw_b, x),
            Mode::Sub if alpha1 != 1.0 => alpha1.mul_add(raw, -b),
            Mode::Sub if alpha2 != 1.0 => (-alpha2).mul_add(raw_b, x),
            Mode::EluFwd => elu(x, scalar(self.elu_alpha)),
            Mode::EluBwd => elu_bwd(x, b, scalar(self.elu_alpha)),
            Mode::SoftplusFwd => softplus(x, scalar(self.softplus_beta)),
            Mode::SoftplusBwd => b * sigmoid(scalar(self.softplus_beta) * x),
            Mode::SwishFwd => x * sigmoid(scalar(self.swish_beta) * x),
            Mode::SwishBwd => swish_bwd(x, b, scalar(self.swish_beta)),
            Mode::ReluFwd | Mode::ReluBwd => self.relu_eval(math, x, b),
            mode => plain(mode, x, b, self.nan),
        }
    }

    fn relu_eval(&self, math: Math, x: f64, dy: f64) -> f64 {
        let scalar = |value: Real| math.dtype().round(value.get());
        let (lower, upper) = (scalar(self.relu_lower_clip), scalar(self.relu_upper_clip));
        let slope = scalar(self.relu_lower_clip_slope);
        let x = match self.nan {
            NanPropagation::NotPropagate if x.is_nan() => lower,
            _ => x,
        };
        if self.mode == Mode::ReluFwd {
            return match x {
                x if x < lower => lower + if slope == 0.0 { 0.0 } else { slope * (x - lower) },
                x if x > upper => upper,
                x => x,
            };
        }
        match x {
            x if x <= lower => slope * dy,
            x if upper.is_finite() && x >= upper => 0.0 * dy,
            x if x.is_nan() => x,
            _ => dy,
        }
    }
}

/// Scales an operand; 1 is the identity even for a signalling NaN.
fn scaled(alpha: f64, value: f64) -> f64 {
    if alpha == 1.0 { value } else { alpha * value }
}

/// Evaluates the modes whose only parameters are the alphas and the NaN rule.
fn plain(mode: Mode, x: f64, b: f64, nan: NanPropagation) -> f64 {
    let truth = |condition: bool| condition as u8 as f64;
    match mode {
        Mode::Add => x + b,
        Mode::AddSquare => b.mul_add(b, x),
        Mode::Div => x / b,
        Mode::Max | Mode::Min => extreme(mode, x, b, nan),
        Mode::Mod => libm::fmod(x, b),
        Mode::Mul => x * b,
        Mode::Pow => libm::pow(x, b),
        Mode::Sub => x - b,
        Mode::Abs => x.abs(),
        Mode::Ceil => x.ceil(),
        Mode::Cos => x.cos(),
        Mode::Exp => x.exp(),
        Mode::Floor => x.floor(),
        Mode::Log => x.ln(),
        Mode::Neg => -x,
        Mode::Rsqrt => 1.0 / x.sqrt(),
        Mode::Sin => x.sin(),
        Mode::Sqrt => x.sqrt(),
        Mode::Tan => x.tan(),
        Mode::Erf => libm::erf(x),
        Mode::TanhFwd => x.tanh(),
        Mode::SigmoidFwd => sigmoid(x),
        Mode::GeluFwd => 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)),
        Mode::GeluApproxTanhFwd => 0.5 * x * (1.0 + gelu_inner(x).tanh()),
        Mode::TanhBwd => b * (1.0 - x.tanh() * x.tanh()),
        Mode::SigmoidBwd => b * sigmoid(x) * (1.0 - sigmoid(x)),
        Mode::GeluBwd => b * gelu_slope(x),
        Mode::GeluApproxTanhBwd => b * gelu_approx_tanh_slope(x),
        Mode::CmpEq => truth(x == b),
        Mode::CmpNeq => truth(x != b),
        Mode::CmpGt => truth(x > b),
        Mode::CmpGe => truth(x >= b),
        Mode::CmpLt => truth(x < b),
        Mode::CmpLe => truth(x <= b),
        Mode::LogicalAnd => truth(x != 0.0 && b != 0.0),
        Mode::LogicalOr => truth(x != 0.0 || b != 0.0),
        Mode::LogicalNot => truth(x == 0.0),
        // Modes with parameters are handled by the caller.
        _ => x,
    }
}

fn extreme(mode: Mode, x: f64, b: f64, nan: NanPropagation) -> f64 {
    if nan == NanPropagation::Propagate && (x.is_nan() || b.is_nan()) {
        return f64::NAN;
    }
    if mode == Mode::Max { x.max(b) } else { x.min(b) }
}

fn sigmoid(x: f64) -> f64 {
    let small = (-x.abs()).exp();
    (if x < 0.0 { small } else { 1.0 }) / (1.0 + small)
}

fn elu(x: f64, alpha: f64) -> f64 {
    if x < 0.0 { alpha * x.exp_m1() } else { x }
}

fn elu_bwd(x: f64, dy: f64, alpha: f64) -> f64 {
    if x < 0.0 { dy * alpha * x.exp() } else { dy }
}

fn softplus(x: f64, beta: f64) -> f64 {
    let scaled = beta * x;
    (scaled.max(0.0) + (-scaled.abs()).exp().ln_1p()) / beta
}

fn swish_bwd(x: f64, dy: f64, beta: f64) -> f64 {
    let s = sigmoid(beta * x);
    dy * (s + beta * x * s * (1.0 - s))
}

fn gelu_inner(x: f64) -> f64 {
    (2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)
}

fn gelu_slope(x: f64) -> f64 {
    let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
    0.5 * (1.0 + libm::erf(x * FRAC_1_SQRT_2)) + x * density
}

fn gelu_approx_tanh_slope(x: f64) -> f64 {
    let t = gelu_inner(x).tanh();
    let inner_slope = (2.0 / PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
    let bend = 1.0 - t * t;
    0.5 * (1.0 + t) + if bend == 0.0 { 0.0 } else { 0.5 * x * bend * inner_slope }
}

impl DType {
    /// C++ type that holds a value of this type in a register.
    pub(crate) fn register(self) -> &'static str {
        match self {
            // i64 is exact up to 2^53, as in the rest of the library.
            DType::F64 | DType::I64 => "f64",
            DType::I32 => "i32",
            _ => "float",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(op: Pointwise, operands: &[f64]) -> f64 {
        op.eval(Math::F64, operands)
    }

    #[test]
    fn relu_follows_the_documents_formula() {
        let op = Pointwise::new(Mode::ReluFwd).relu(-1.0, 6.0, 0.5);
        assert_eq!(eval(op, &[-3.0]), -2.0);
        assert_eq!(eval(op, &[7.0]), 6.0);
        assert_eq!(eval(op, &[f64::NAN]), -1.0);
        assert!(eval(op.nan(NanPropagation::Propagate), &[f64::NAN]).is_nan());
        assert_eq!(eval(Pointwise::new(Mode::ReluFwd), &[f64::NEG_INFINITY]), 0.0);
    }

    #[test]
    fn gradients_match_finite_differences() {
        use Mode::*;
        let pairs = [
            (TanhFwd, TanhBwd),
            (SigmoidFwd, SigmoidBwd),
            (EluFwd, EluBwd),
            (GeluFwd, GeluBwd),
            (SoftplusFwd, SoftplusBwd),
            (SwishFwd, SwishBwd),
            (GeluApproxTanhFwd, GeluApproxTanhBwd),
            (ReluFwd, ReluBwd),
        ];
        for (forward, backward) in pairs {
            for x in [-2.5, -0.3, 0.4, 3.0] {
                let forward = Pointwise::new(forward).shape(1.5).relu(-1.0, 2.5, 0.25);
                let backward = Pointwise { mode: backward, ..forward };
                let step = 1e-6;
                let rise = eval(forward, &[x + step]) - eval(forward, &[x - step]);
                let slope = eval(backward, &[x, 2.0]);
                let expected = rise / step;
                assert!((slope - expected).abs() < 1e-6, "{backward} at {x}: {slope} {expected}");
            }
        }
    }

    #[test]
    fn math_precision_rounds_operands_of_inexact_modes_only() {
        let results = |math| {
            let mut program = Program::new();
            let x = program.input("x", DType::I32);
            let same = Pointwise::new(Mode::Identity);
            let sum = Pointwise::new(Mode::Add).math(math);
            let same = program.push("same", same, &[x], DType::I32);
            let sum = program.push("sum", sum, &[x, x], DType::I32);
            program.output(same.expect("valid"));
            program.output(sum.expect("valid"));
            program.eval(&[16_777_217.0])
        };
        assert_eq!(results(Math::F32), [16_777_217.0, 2.0 * 16_777_216.0]);
        assert_eq!(results(Math::I32), [16_777_217.0, 2.0 * 16_777_217.0]);
    }
}
