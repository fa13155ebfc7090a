//! CUDA C++ emission of programs: one statement per operation, with names from the graph.

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::expr::identifier::Identifiers;
use crate::expr::mode::{Mode, ModeClass};
use crate::expr::pointwise::{Activations, Math, NanPropagation, Pointwise, Real};
use crate::expr::program::{Input, Instruction, Program, Value};
use crate::expr::random::{Distribution, Draw, Seed, range, words_below};

/// C++ statements of a program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EmittedProgram {
    /// C++ types of the inputs, in order.
    pub input_types: Vec<&'static str>,
    /// The outputs, in order.
    pub outputs: Vec<EmittedOutput>,
    /// Statements: one per operation, then one per output that is also used elsewhere.
    pub lines: Vec<String>,
    /// Functions of `device/ops` that the statements call.
    pub functions: BTreeSet<&'static str>,
}

/// The instructions that approximate activations are made of ([`Activations`]).
const APPROXIMATE: &[&str] = &["exp2_approx", "reciprocal_approx"];
const FAST: &[&str] = &["hardware_tanh"];

/// An output of an [`EmittedProgram`]. It is assigned unrounded if no operation reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EmittedOutput {
    /// C++ type of the assigned value; the store rounds it to the storage type.
    pub ctype: &'static str,
}

/// What is known about how a program is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Emission<'a> {
    /// How activations are computed.
    pub activations: Activations,
    /// Which inputs are the same for many elements that a thread computes; none if empty. Quotients
    /// by one are products with its reciprocal, which is computed once.
    pub shared: &'a [bool],
}

impl Program {
    /// Emits the statements that compute the outputs.
    ///
    /// `inputs` and `outputs` are identifiers; results get fresh ones from `names`.
    /// [Simplify](Program::simplified) the program first, since every instruction becomes a
    /// statement.
    ///
    /// # Panics
    /// When there are fewer identifiers than inputs or outputs.
    pub fn emit(
        &self,
        inputs: &[String],
        outputs: &[String],
        names: &mut Identifiers,
    ) -> EmittedProgram {
        self.emit_with(inputs, outputs, names, Emission::default())
    }

    /// As [`Program::emit`], for one use of the program.
    ///
    /// # Panics
    /// When there are fewer identifiers than inputs or outputs.
    pub fn emit_with(
        &self,
        inputs: &[String],
        outputs: &[String],
        names: &mut Identifiers,
        emission: Emission<'_>,
    ) -> EmittedProgram {
        let mut emitter = Emitter {
            program: self,
            inputs: inputs.to_vec(),
            emission,
            results: Vec::new(),
            functions: BTreeSet::new(),
        };
        let uses = self.use_counts();
        let mut lines = Vec::new();
        for (at, draw) in self.draws().filter(|(at, _)| self.reads(Value::Input(*at))) {
            let name = names.fresh(self.name(Value::Input(at)));
            let drawn = emitter.drawn(draw, &inputs[at]);
            lines.push(format!("const {} {name} = {drawn};", draw.dtype.register()));
            emitter.inputs[at] = name;
        }
        let mut ctypes = vec![""; self.outputs().len()];
        for (index, instruction) in self.instructions().iter().enumerate() {
            let value = Value::Result(index);
            let mut written = (0..ctypes.len()).filter(|slot| self.outputs()[*slot] == value);
            if let (0, Some(slot)) = (uses[index], written.next()) {
                // The result is only stored, so the store rounds it.
                let target = &outputs[slot];
                lines.push(format!("{target} = {};", emitter.expression(instruction)));
                ctypes[slot] = ctype(self.compute(instruction));
                emitter.results.push(target.clone());
                for slot in written {
                    lines.push(format!("{} = {target};", outputs[slot]));
                    ctypes[slot] = ctype(self.compute(instruction));
                }
            } else {
                let name = names.fresh(&instruction.name);
                let rounded = emitter.rounded(instruction);
                lines.push(format!("const {} {name} = {rounded};", instruction.dtype.register()));
                emitter.results.push(name);
            }
        }
        for (slot, value) in self.outputs().iter().enumerate() {
            if ctypes[slot].is_empty() {
                lines.push(format!("{} = {};", outputs[slot], emitter.name(*value)));
                ctypes[slot] = self.dtype(*value).register();
            }
        }
        EmittedProgram {
            input_types: self.inputs().iter().map(Input::register).collect(),
            outputs: ctypes.into_iter().map(|ctype| EmittedOutput { ctype }).collect(),
            lines,
            functions: emitter.functions,
        }
    }
}

fn ctype(math: Math) -> &'static str {
    math.dtype().register()
}

struct Emitter<'a> {
    program: &'a Program,
    inputs: Vec<String>,
    emission: Emission<'a>,
    results: Vec<String>,
    functions: BTreeSet<&'static str>,
}

impl Emitter<'_> {
    fn name(&self, value: Value) -> &str {
        match value {
            Value::Input(index) => &self.inputs[index],
            Value::Result(index) => &self.results[index],
        }
    }

    /// An operand converted to the math type.
    fn operand(&self, value: Value, math: Math) -> String {
        let name = self.name(value);
        match self.program.dtype(value).register() == ctype(math) {
            true => name.to_owned(),
            false => format!("{}({name})", ctype(math)),
        }
    }

    fn call(&mut self, function: &'static str, arguments: &[&str]) -> String {
        self.functions.insert(function);
        format!("op::{function}({})", arguments.join(", "))
    }

    /// The same of a function of the normal distribution.
    fn call_normal(&mut self, function: &'static str, arguments: &[&str], math: Math) -> String {
        self.functions.extend((math == Math::F32).then_some("exp2_approx"));
        self.call(function, arguments)
    }

    /// A random number at a position.
    fn drawn(&mut self, draw: &Draw, position: &str) -> String {
        let seed = match draw.seed {
            // The smallest integer has no literal.
            Seed::Value(i64::MIN) => format!("{}ll - 1", i64::MIN + 1),
            Seed::Value(seed) => format!("{seed}ll"),
            Seed::Input(at) => format!("i64({})", self.inputs[at]),
        };
        let offset = format!("i64({})", self.inputs[draw.offset]);
        let position = &match draw.subsequence {
            None => position.to_owned(),
            Some(at) => {
                let subsequence = self.inputs[at].clone();
                self.call("position_from", &[&subsequence, position])
            }
        };
        let math = draw.math();
        let [first, second] = match draw.distribution.rounded(math) {
            Distribution::Bernoulli { probability } => {
                let ones = format!("{}ull", words_below(probability));
                return self.call("bernoulli", &[&seed, &offset, position, &ones]);
            }
            Distribution::Uniform { minimum, maximum } => [minimum, range(minimum, maximum, math)],
            Distribution::Normal { mean, deviation } => [mean, deviation],
        };
        let [first, second] = [first, second].map(|value| value.literal(math));
        self.call(draw.distribution.name(), &[&seed, &offset, position, &first, &second])
    }

    /// The expression, rounded to the instruction's result type.
    fn rounded(&mut self, instruction: &Instruction) -> String {
        let math = self.program.compute(instruction);
        let expression = self.expression(instruction);
        let register = instruction.dtype.register();
        if self.needs_no_rounding(instruction) {
            return match register == ctype(math) {
                true => expression,
                false => format!("{register}({expression})"),
            };
        }
        match instruction.dtype {
            DType::F64 | DType::F32 if register == ctype(math) => expression,
            DType::F64 | DType::F32 => format!("{register}({expression})"),
            DType::F16 => self.call("round_f16", &[&expression]),
            DType::Bf16 => self.call("round_bf16", &[&expression]),
            DType::F8E4M3 | DType::F8E5M2 => unreachable!("programs have no results of 8 bits"),
            DType::I64 => self.call("round_i64", &[&expression]),
            DType::I32 if math == Math::I32 => expression,
            DType::I32 => self.call("round_i32", &[&expression]),
            DType::I8 => self.call("round_i8", &[&expression]),
            DType::U8 => self.call("round_u8", &[&expression]),
            DType::Bool => self.call("round_bool", &[&expression]),
        }
    }

    /// Whether the expression is already a value of the result type.
    fn needs_no_rounding(&self, instruction: &Instruction) -> bool {
        let Instruction { op, operands, dtype, .. } = instruction;
        if op.mode.name().starts_with("cmp") || op.mode.name().starts_with("logical") {
            return true;
        }
        let unscaled = op.alpha1.get() == 1.0 && op.alpha2.get() == 1.0;
        let data = &operands[..operands.len().min(2)];
        let fit = data.iter().all(|value| self.program.dtype(*value).fits_in(*dtype));
        let selects =
            matches!(op.mode, Mode::Identity | Mode::BinarySelect | Mode::Max | Mode::Min);
        let signs = matches!(op.mode, Mode::Abs | Mode::Neg) && dtype.is_float();
        unscaled && fit && (selects || signs)
    }

    /// The expression in the math type.
    fn expression(&mut self, instruction: &Instruction) -> String {
        let math = self.program.compute(instruction);
        let op = instruction.op.rounded(math);
        let operands: Vec<String> =
            instruction.operands.iter().map(|value| self.operand(*value, math)).collect();
        let x = operands[0].as_str();
        if math == Math::I32 {
            return self.integers(&op, &operands, instruction.operands.last());
        }
        let is_quotient = op.mode == Mode::Div && math == Math::F32;
        match op.mode.class() {
            ModeClass::Select => {
                let (x, b) = (scaled(x, op.alpha1, math), scaled(&operands[1], op.alpha2, math));
                // The mask is compared in its own type, so that a small f64 is not rounded to zero.
                let mask = self.name(instruction.operands[2]);
                format!("{mask} != 0 ? {x} : {b}")
            }
            ModeClass::Index => x.to_owned(),
            ModeClass::Unary => self.unary(&op, x, math),
            ModeClass::Binary if is_quotient && self.is_shared(instruction.operands[1]) => {
                let (x, b) = (scaled(x, op.alpha1, math), scaled(&operands[1], op.alpha2, math));
                self.call("quotient_by_shared", &[&x, &b])
            }
            ModeClass::Binary | ModeClass::Backward => self.binary(&op, x, &operands[1], math),
        }
    }

    /// Whether many elements have this value in common.
    fn is_shared(&self, value: Value) -> bool {
        matches!(value, Value::Input(at) if self.emission.shared.get(at) == Some(&true))
    }

    /// The expression in wrapping 32-bit integers.
    fn integers(&mut self, op: &Pointwise, operands: &[String], mask: Option<&Value>) -> String {
        let one = Real::new(1.0);
        let mut scaled = |slot: usize, alpha: Real| match operands.get(slot) {
            Some(operand) if alpha != one => {
                self.call("mul_i32", &[&alpha.literal(Math::I32), operand])
            }
            operand => operand.cloned().unwrap_or_default(),
        };
        let (x, b) = (&scaled(0, op.alpha1), &scaled(1, op.alpha2));
        let (low, high) = (op.relu_lower_clip, op.relu_upper_clip);
        match op.mode {
            Mode::Add => self.call("add_i32", &[x, b]),
            Mode::Sub => self.call("sub_i32", &[x, b]),
            Mode::Mul => self.call("mul_i32", &[x, b]),
            Mode::AddSquare => {
                let square = self.call("mul_i32", &[b, b]);
                self.call("add_i32", &[x, &square])
            }
            Mode::Mod => self.call("mod_i32", &[x, b]),
            Mode::Abs => self.call("abs_i32", &[x]),
            Mode::Neg => self.call("sub_i32", &["0", x]),
            Mode::Max => format!("max({x}, {b})"),
            Mode::Min => format!("min({x}, {b})"),
            Mode::ReluFwd => {
                let raised = format!("max({x}, {})", low.literal(Math::I32));
                match high.get() < f64::from(i32::MAX) {
                    true => format!("min({raised}, {})", high.literal(Math::I32)),
                    false => raised,
                }
            }
            Mode::BinarySelect => {
                let mask = mask.map_or("", |mask| self.name(*mask));
                format!("{mask} != 0 ? {x} : {b}")
            }
            Mode::LogicalNot => truth(format!("{x} == 0"), Math::I32),
            Mode::Identity | Mode::Ceil | Mode::Floor => x.to_owned(),
            _ => self.binary(&Pointwise { alpha1: one, alpha2: one, ..*op }, x, b, Math::I32),
        }
    }

    fn unary(&mut self, op: &Pointwise, x: &str, math: Math) -> String {
        let one = Real::new(1.0);
        let approximate: Option<(_, &[_])> = match (self.emission.activations, op.mode) {
            _ if math != Math::F32 => None,
            (Activations::Approximate, Mode::TanhFwd) => Some(("tanh_approx", APPROXIMATE)),
            (Activations::Approximate, Mode::SigmoidFwd) => Some(("sigmoid_approx", APPROXIMATE)),
            (Activations::Fast, Mode::TanhFwd) => Some(("tanh_fast", FAST)),
            (Activations::Fast, Mode::SigmoidFwd) => Some(("sigmoid_fast", FAST)),
            _ => None,
        };
        if let Some((function, instructions)) = approximate {
            let scale = (op.alpha1 != one).then(|| op.alpha1.literal(math));
            let arguments: Vec<&str> = [x].into_iter().chain(scale.as_deref()).collect();
            self.functions.extend(instructions);
            return self.call(function, &arguments);
        }
        let x = &scaled(x, op.alpha1, math);
        match op.mode {
            Mode::Abs => format!("fabs({x})"),
            Mode::Neg => format!("-{}", wrapped(x)),
            Mode::Identity => x.to_owned(),
            Mode::Ceil | Mode::Cos | Mode::Exp | Mode::Floor | Mode::Log | Mode::Rsqrt => {
                format!("{}({x})", op.mode)
            }
            Mode::Sin | Mode::Sqrt | Mode::Tan | Mode::Erf => format!("{}({x})", op.mode),
            Mode::TanhFwd => format!("tanh({x})"),
            Mode::LogicalNot => truth(format!("{x} == 0"), math),
            Mode::ReluFwd => self.relu(op, x, math),
            Mode::SigmoidFwd => self.call("sigmoid", &[x]),
            Mode::GeluFwd => self.call_normal("gelu", &[x], math),
            Mode::GeluApproxTanhFwd => self.call("gelu_approx_tanh", &[x]),
            Mode::EluFwd => self.call("elu", &[x, &op.elu_alpha.literal(math)]),
            Mode::SoftplusFwd => self.call("softplus", &[x, &op.softplus_beta.literal(math)]),
            Mode::SwishFwd if op.swish_beta == one => self.call("silu", &[x]),
            Mode::SwishFwd => self.call("swish", &[x, &op.swish_beta.literal(math)]),
            _ => unreachable!("{} is not unary", op.mode),
        }
    }

    fn relu(&mut self, op: &Pointwise, x: &str, math: Math) -> String {
        let (lower, upper) = (op.relu_lower_clip, op.relu_upper_clip);
        let clips_above = upper.get() != f64::INFINITY;
        let (low, high) = (lower.literal(math), upper.literal(math));
        let propagate = op.nan == NanPropagation::Propagate;
        if op.relu_lower_clip_slope.get() != 0.0 {
            let slope = op.relu_lower_clip_slope.literal(math);
            let x = if propagate { x.to_owned() } else { self.call("replace_nan", &[x, &low]) };
            return self.call("leaky_relu", &[&x, &low, &high, &slope]);
        }
        match (propagate, clips_above) {
            (false, false) => format!("fmax({x}, {low})"),
            (false, true) => format!("fmin(fmax({x}, {low}), {high})"),
            (true, false) => self.call("max_nan", &[x, &low]),
            (true, true) => {
                let raised = self.call("max_nan", &[x, &low]);
                self.call("min_nan", &[&raised, &high])
            }
        }
    }

    fn binary(&mut self, op: &Pointwise, x: &str, b: &str, math: Math) -> String {
        let one = Real::new(1.0);
        let (sx, sb) = (scaled(x, op.alpha1, math), scaled(b, op.alpha2, math));
        let (a1, a2) = (op.alpha1.literal(math), op.alpha2.literal(math));
        let propagate = op.nan == NanPropagation::Propagate;
        match op.mode {
            // Contraction is disabled so that results do not depend on how the compiler groups
            // operations; scaled additions use an explicit fma instead.
            Mode::Add if op.alpha1 != one => format!("fma({a1}, {x}, {sb})"),
            Mode::Add if op.alpha2 != one => format!("fma({a2}, {b}, {x})"),
            Mode::Add => format!("{x} + {b}"),
            Mode::Sub if op.alpha1 != one => format!("fma({a1}, {x}, -{})", wrapped(&sb)),
            Mode::Sub if op.alpha2 != one => {
                let minus = Real::new(-op.alpha2.get()).literal(math);
                format!("fma({minus}, {b}, {x})")
            }
            Mode::Sub => format!("{x} - {b}"),
            Mode::AddSquare => self.call("add_square", &[&sx, &sb]),
            Mode::Mul => format!("{} * {}", sx, wrapped(&sb)),
            Mode::Div => format!("{} / {}", sx, wrapped(&sb)),
            Mode::Mod => format!("fmod({sx}, {sb})"),
            Mode::Pow => format!("pow({sx}, {sb})"),
            Mode::Max if propagate => self.call("max_nan", &[&sx, &sb]),
            Mode::Min if propagate => self.call("min_nan", &[&sx, &sb]),
            Mode::Max => format!("fmax({sx}, {sb})"),
            Mode::Min => format!("fmin({sx}, {sb})"),
            Mode::CmpEq => truth(format!("{sx} == {sb}"), math),
            Mode::CmpNeq => truth(format!("{sx} != {sb}"), math),
            Mode::CmpGt => truth(format!("{sx} > {sb}"), math),
            Mode::CmpGe => truth(format!("{sx} >= {sb}"), math),
            Mode::CmpLt => truth(format!("{sx} < {sb}"), math),
            Mode::CmpLe => truth(format!("{sx} <= {sb}"), math),
            Mode::LogicalAnd => truth(format!("{sx} != 0 && {sb} != 0"), math),
            Mode::LogicalOr => truth(format!("{sx} != 0 || {sb} != 0"), math),
            _ => self.backward(op, &sx, &sb, math),
        }
    }

    fn backward(&mut self, op: &Pointwise, x: &str, dy: &str, math: Math) -> String {
        match op.mode {
            Mode::ReluBwd => {
                let low = op.relu_lower_clip.literal(math);
                let high = op.relu_upper_clip.literal(math);
                let slope = op.relu_lower_clip_slope.literal(math);
                let x = match op.nan {
                    NanPropagation::Propagate => x.to_owned(),
                    NanPropagation::NotPropagate => self.call("replace_nan", &[x, &low]),
                };
                match op.relu_upper_clip.get() == f64::INFINITY {
                    true => self.call("relu_bwd", &[&x, dy, &low, &slope]),
                    false => self.call("clipped_relu_bwd", &[&x, dy, &low, &high, &slope]),
                }
            }
            Mode::TanhBwd => self.call("tanh_bwd", &[x, dy]),
            Mode::SigmoidBwd => self.call("sigmoid_bwd", &[x, dy]),
            Mode::GeluBwd => self.call_normal("gelu_bwd", &[x, dy], math),
            Mode::GeluApproxTanhBwd => self.call("gelu_approx_tanh_bwd", &[x, dy]),
            Mode::EluBwd => self.call("elu_bwd", &[x, dy, &op.elu_alpha.literal(math)]),
            Mode::SoftplusBwd => {
                self.call("softplus_bwd", &[x, dy, &op.softplus_beta.literal(math)])
            }
            Mode::SwishBwd => self.call("swish_bwd", &[x, dy, &op.swish_beta.literal(math)]),
            _ => unreachable!("{} takes no gradient", op.mode),
        }
    }
}

fn truth(condition: String, math: Math) -> String {
    match math {
        Math::I32 => format!("{condition} ? 1 : 0"),
        Math::Default | Math::F32 => format!("{condition} ? 1.f : 0.f"),
        Math::F64 => format!("{condition} ? 1.0 : 0.0"),
    }
}

fn scaled(operand: &str, alpha: Real, math: Math) -> String {
    match alpha.get() == 1.0 {
        true => operand.to_owned(),
        false => format!("{} * {operand}", alpha.literal(math)),
    }
}

/// Parenthesises a compound or negative expression.
fn wrapped(expression: &str) -> String {
    match expression.contains(' ') || expression.starts_with('-') {
        true => format!("({expression})"),
        false => expression.to_owned(),
    }
}

impl Real {
    /// The shortest C++ literal that reads back as the scalar rounded to the math precision.
    pub fn literal(self, math: Math) -> String {
        let (text, infinite) = match math {
            Math::I32 => {
                // The smallest integer has no literal.
                return match DType::I32.round(self.get()) as i32 {
                    i32::MIN => format!("({} - 1)", i32::MIN + 1),
                    value => value.to_string(),
                };
            }
            Math::Default | Math::F32 => {
                let value = self.get() as f32;
                (format!("{value:?}f"), value.is_infinite())
            }
            Math::F64 => (format!("{:?}", self.get()), self.get().is_infinite()),
        };
        if infinite {
            let sign = if self.get() < 0.0 { "-" } else { "" };
            return format!("{sign}op::infinity<{}>()", ctype(math));
        }
        text.replace(".0f", ".f")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emit(program: &Program, inputs: &[&str], outputs: &[&str]) -> EmittedProgram {
        let mut names = Identifiers::new();
        let inputs: Vec<String> = inputs.iter().map(|name| names.fresh(name)).collect();
        let outputs: Vec<String> = outputs.iter().map(|name| names.fresh(name)).collect();
        program.emit(&inputs, &outputs, &mut names)
    }

    #[test]
    fn one_line_per_operation() {
        let mut program = Program::new();
        let x = program.input("x", DType::Bf16);
        let b = program.input("bias", DType::I32);
        let add = Pointwise::new(Mode::Add).alphas(0.1, 1.0);
        let h = program.push("h", add, &[x, b], DType::Bf16).expect("valid");
        let y = program.push("y", Pointwise::new(Mode::GeluFwd), &[h], DType::Bf16).expect("valid");
        let m =
            program.push("m", Pointwise::new(Mode::CmpGt), &[h, y], DType::Bool).expect("valid");
        program.output(y);
        program.output(m);
        let emitted = emit(&program, &["x", "bias"], &["y", "m"]);
        assert_eq!(
            emitted.lines,
            [
                "const float h = op::round_bf16(fma(0.1f, x, float(bias)));",
                "const float y2 = op::round_bf16(op::gelu(h));",
                "m = h > y2 ? 1.f : 0.f;",
                "y = y2;",
            ]
        );
        assert_eq!(emitted.input_types, ["float", "i32"]);
        assert_eq!(
            emitted.functions.into_iter().collect::<Vec<_>>(),
            ["exp2_approx", "gelu", "round_bf16"]
        );
    }

    #[test]
    fn literals_read_back() {
        assert_eq!(Real::new(1.0).literal(Math::F32), "1.f");
        assert_eq!(Real::new(0.1).literal(Math::F32), "0.1f");
        assert_eq!(Real::new(1e-30).literal(Math::F32), "1e-30f");
        assert_eq!(Real::new(0.1).literal(Math::F64), "0.1");
        assert_eq!(Real::new(1e300).literal(Math::F32), "op::infinity<float>()");
        assert_eq!(Real::new(f64::NEG_INFINITY).literal(Math::F64), "-op::infinity<f64>()");
    }
}
