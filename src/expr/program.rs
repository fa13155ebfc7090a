//! The SSA list: inputs, instructions, outputs and the text form.

use std::borrow::Cow;
use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::escape::escaped;
use crate::expr::mode::Mode;
use crate::expr::pointwise::{Math, Pointwise};
use crate::expr::random::{Draw, Seed};

/// A value of a [`Program`]: an input or the result of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// The n-th input.
    Input(usize),
    /// The result of the n-th instruction.
    Result(usize),
}

/// Source of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// Element of a tensor of this type.
    Element(DType),
    /// Index of the element along an axis of this extent: the operand of GEN_INDEX.
    Index {
        /// Axis of the iteration space.
        axis: usize,
        /// Extent of the axis.
        extent: i64,
    },
    /// Random number drawn for the element: what is fed is its position, in row-major order.
    Random(Draw),
}

/// A named input of a [`Program`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Input {
    /// Name in messages and generated code.
    pub name: String,
    /// Source of the value.
    pub kind: InputKind,
}

impl Input {
    /// Type that represents every value of the input.
    pub fn dtype(&self) -> DType {
        match self.kind {
            InputKind::Element(dtype) => dtype,
            // f32 represents all integers up to 2^24, f64 every index.
            InputKind::Index { extent, .. } if extent <= 1 << 24 => DType::F32,
            InputKind::Index { .. } => DType::F64,
            InputKind::Random(draw) => draw.dtype,
        }
    }

    /// C++ type in which the value is fed.
    pub(super) fn register(&self) -> &'static str {
        match self.kind {
            InputKind::Random(_) => "op::Position",
            _ => self.dtype().register(),
        }
    }
}

/// One operation of a [`Program`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Name of the result in messages and generated code.
    pub name: String,
    /// The operation.
    pub op: Pointwise,
    /// Operands, as many as the mode's arity.
    pub operands: Vec<Value>,
    /// Type to which the result is rounded.
    pub dtype: DType,
}

/// An SSA list of pointwise operations; a value may only be used after it is defined.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Program {
    inputs: Vec<Input>,
    instructions: Vec<Instruction>,
    outputs: Vec<Value>,
}

impl Program {
    /// Returns an empty program.
    pub fn new() -> Self {
        Program::default()
    }

    /// The same with another name for an input.
    pub(crate) fn renamed(mut self, input: usize, name: &str) -> Program {
        self.inputs[input].name = name.to_owned();
        self
    }

    /// Gives the result of an instruction another name.
    pub(crate) fn rename(&mut self, line: usize, name: &str) {
        self.instructions[line].name = name.to_owned();
    }

    /// Adds an input that is an element of a tensor.
    pub fn input(&mut self, name: impl Into<String>, dtype: DType) -> Value {
        self.inputs.push(Input { name: name.into(), kind: InputKind::Element(dtype) });
        Value::Input(self.inputs.len() - 1)
    }

    /// Adds an input that is the element's index along `axis`, for GEN_INDEX.
    pub fn index(&mut self, name: impl Into<String>, axis: usize, extent: i64) -> Value {
        self.inputs.push(Input { name: name.into(), kind: InputKind::Index { axis, extent } });
        Value::Input(self.inputs.len() - 1)
    }

    /// Adds an input that is a random number; seed and offset are inputs already.
    pub(crate) fn random(&mut self, name: impl Into<String>, draw: Draw) -> Value {
        self.inputs.push(Input { name: name.into(), kind: InputKind::Random(draw) });
        Value::Input(self.inputs.len() - 1)
    }

    /// Appends an operation whose result is rounded to `dtype`.
    ///
    /// # Errors
    /// `BadParam` when the number of operands is not the mode's arity, an operand is undefined or
    /// incompatible with the math precision, or a parameter of `op` is invalid; `NotSupported` for
    /// an 8-bit float result.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        op: Pointwise,
        operands: &[Value],
        dtype: DType,
    ) -> Result<Value> {
        op.validate()?;
        let (arity, given) = (op.mode.arity(), operands.len());
        if arity != given {
            let mode = op.mode;
            return Err(Error::bad_param(format!(
                "{mode}: expected {arity} operands, got {given}"
            )));
        }
        if let Some(missing) = operands.iter().find(|value| !self.defines(**value)) {
            return Err(Error::bad_param(format!(
                "{}: operand {missing:?} is not defined",
                op.mode
            )));
        }
        if dtype.is_f8() {
            return Err(Error::not_supported(format!("{}: a result of {dtype}", op.mode)));
        }
        let data = operands.iter().map(|value| (self.name(*value), self.dtype(*value)));
        let data: Vec<(&str, DType)> = data.collect();
        let dtypes: Vec<DType> = data.iter().map(|(_, dtype)| *dtype).collect();
        let op = op.resolved(&dtypes);
        op.check_operands(&data)?;
        let operands = operands.to_vec();
        self.instructions.push(Instruction { name: name.into(), op, operands, dtype });
        Ok(Value::Result(self.instructions.len() - 1))
    }

    /// Appends a value to the outputs.
    ///
    /// # Panics
    /// When the value does not belong to this program.
    pub fn output(&mut self, value: Value) {
        assert!(self.defines(value), "{value:?} is not a value of this program");
        self.outputs.push(value);
    }

    /// Builds a program from its components; for passes that preserve the SSA order.
    pub(crate) fn from_parts(
        inputs: Vec<Input>,
        instructions: Vec<Instruction>,
        outputs: Vec<Value>,
    ) -> Self {
        Program { inputs, instructions, outputs }
    }

    /// Raises every instruction, and every `f32` result, to `f64`. Other result types are kept
    /// because they round deliberately.
    #[must_use]
    pub(crate) fn lines_in_f64(&self) -> Program {
        let mut program = self.clone();
        for line in &mut program.instructions {
            line.op.math = Math::F64;
            line.dtype = wide(line.dtype);
        }
        program
    }

    /// As [`Program::lines_in_f64`], with `f32` inputs raised to `f64` too, for inputs that are
    /// themselves computed.
    #[must_use]
    pub(crate) fn in_f64(&self) -> Program {
        let mut program = self.lines_in_f64();
        for input in &mut program.inputs {
            if let InputKind::Element(dtype) = &mut input.kind {
                *dtype = wide(*dtype);
            }
        }
        program
    }

    fn defines(&self, value: Value) -> bool {
        match value {
            Value::Input(index) => index < self.inputs.len(),
            Value::Result(index) => index < self.instructions.len(),
        }
    }

    /// The inputs in order of definition.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The operations in order of execution.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The outputs.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// Type of a value.
    pub fn dtype(&self, value: Value) -> DType {
        match value {
            Value::Input(index) => self.inputs[index].dtype(),
            Value::Result(index) => self.instructions[index].dtype,
        }
    }

    /// Name of a value.
    pub fn name(&self, value: Value) -> &str {
        match value {
            Value::Input(index) => &self.inputs[index].name,
            Value::Result(index) => &self.instructions[index].name,
        }
    }

    /// Precision in which an instruction computes.
    pub fn compute(&self, instruction: &Instruction) -> Math {
        instruction.op.compute(instruction.operands.iter().map(|value| self.dtype(*value)))
    }

    /// Whether an instruction or output uses a value, or a random number that one uses.
    pub(crate) fn reads(&self, value: Value) -> bool {
        let drawn_from = |draw: &Draw| {
            Value::Input(draw.offset) == value
                || matches!(draw.seed, Seed::Input(at) if Value::Input(at) == value)
                || draw.subsequence.is_some_and(|at| Value::Input(at) == value)
        };
        self.outputs.contains(&value)
            || self.instructions.iter().any(|line| line.operands.contains(&value))
            || self.draws().any(|(at, draw)| drawn_from(draw) && self.reads(Value::Input(at)))
    }

    /// The random numbers among the inputs.
    pub(crate) fn draws(&self) -> impl Iterator<Item = (usize, &Draw)> {
        self.inputs.iter().enumerate().filter_map(|(at, input)| match &input.kind {
            InputKind::Random(draw) => Some((at, draw)),
            _ => None,
        })
    }

    /// Number of instruction operands that use each instruction's result.
    pub(crate) fn use_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.instructions.len()];
        for operand in self.instructions.iter().flat_map(|instruction| &instruction.operands) {
            if let Value::Result(index) = operand {
                counts[*index] += 1;
            }
        }
        counts
    }
}

/// Raises `f32` to `f64`.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F32 { DType::F64 } else { dtype }
}

impl fmt::Display for Program {
    /// Prints one line per random number, `keep: f32 = bernoulli{probability=0.9}(seed, offset)`,
    /// with a subsequence if there is one, and per instruction, `y: bf16 = relu_fwd(sum)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, draw) in self.draws().filter(|(at, _)| self.reads(Value::Input(*at))) {
            let seed = match draw.seed {
                Seed::Value(seed) => Cow::Owned(seed.to_string()),
                Seed::Input(at) => escaped(self.name(Value::Input(at))),
            };
            let [name, offset] = [at, draw.offset].map(|at| escaped(self.name(Value::Input(at))));
            write!(f, "{name}: {} = {}({seed}, {offset}", draw.dtype, draw.distribution)?;
            if let Some(at) = draw.subsequence {
                write!(f, ", {}", escaped(self.name(Value::Input(at))))?;
            }
            writeln!(f, ")")?;
        }
        for instruction in &self.instructions {
            let operands: Vec<Cow<'_, str>> =
                instruction.operands.iter().map(|value| escaped(self.name(*value))).collect();
            let operands = match instruction.op.mode {
                Mode::BinarySelect => {
                    format!("{} ? {} : {}", operands[2], operands[0], operands[1])
                }
                _ => operands.join(", "),
            };
            let Instruction { name, op, dtype, .. } = instruction;
            let name = escaped(name);
            writeln!(f, "{name}: {dtype} = {op}({operands})")?;
        }
        Ok(())
    }
}
