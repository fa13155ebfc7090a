//! The SSA list itself: inputs, instructions, outputs, and its text form.

use std::borrow::Cow;
use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::escape::escaped;
use crate::expr::mode::Mode;
use crate::expr::pointwise::{Math, Pointwise};

/// A value of a [`Program`]: an input or the result of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// The n-th input.
    Input(usize),
    /// The result of the n-th instruction.
    Result(usize),
}

/// Where an input's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// An element of a tensor of this type.
    Element(DType),
    /// The element's index along an axis of this extent: the operand of GEN_INDEX.
    Index {
        /// The axis of the iteration space.
        axis: usize,
        /// Indices are below it.
        extent: i64,
    },
}

/// A named input of a [`Program`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Input {
    /// Its name in texts and generated code.
    pub name: String,
    /// Where its value comes from.
    pub kind: InputKind,
}

impl Input {
    /// The type that holds every value of the input.
    pub fn dtype(&self) -> DType {
        match self.kind {
            InputKind::Element(dtype) => dtype,
            // Every integer up to 2^24 is an f32; an f64 holds any index.
            InputKind::Index { extent, .. } if extent <= 1 << 24 => DType::F32,
            InputKind::Index { .. } => DType::F64,
        }
    }
}

/// One operation of a [`Program`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Name of the result in texts and generated code.
    pub name: String,
    /// What is computed.
    pub op: Pointwise,
    /// The operands, as many as the mode's arity.
    pub operands: Vec<Value>,
    /// The type the result is rounded to.
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
    /// A program without inputs, operations or outputs.
    pub fn new() -> Self {
        Program::default()
    }

    /// The same with another name for an input.
    pub(crate) fn renamed(mut self, input: usize, name: &str) -> Program {
        self.inputs[input].name = name.to_owned();
        self
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

    /// Appends an operation whose result is rounded to `dtype`.
    ///
    /// # Errors
    /// `BadParam` when the number of operands is not the mode's, an operand does not exist or has
    /// another type than `op` computes in, or a parameter of `op` is invalid; `NotSupported` for a
    /// result of 8-bit floats.
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
            return Err(Error::bad_param(format!("{mode}: takes {arity} operands, got {given}")));
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

    /// Makes a value an output; outputs keep the order of these calls.
    ///
    /// # Panics
    /// When the value does not belong to this program.
    pub fn output(&mut self, value: Value) {
        assert!(self.defines(value), "{value:?} is not a value of this program");
        self.outputs.push(value);
    }

    /// Replaces all parts at once; for passes that keep the SSA order.
    pub(crate) fn from_parts(
        inputs: Vec<Input>,
        instructions: Vec<Instruction>,
        outputs: Vec<Value>,
    ) -> Self {
        Program { inputs, instructions, outputs }
    }

    /// The same with every line computed in `f64`, and in one what was made an `f32`. Other types
    /// stay: a program says them to round.
    #[must_use]
    pub(crate) fn lines_in_f64(&self) -> Program {
        let mut program = self.clone();
        for line in &mut program.instructions {
            line.op.math = Math::F64;
            line.dtype = wide(line.dtype);
        }
        program
    }

    /// The same, of inputs that are computed values and so in `f64`, too.
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

    /// The values handed out.
    pub fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The type that holds a value.
    pub fn dtype(&self, value: Value) -> DType {
        match value {
            Value::Input(index) => self.inputs[index].dtype(),
            Value::Result(index) => self.instructions[index].dtype,
        }
    }

    /// The name of a value.
    pub fn name(&self, value: Value) -> &str {
        match value {
            Value::Input(index) => &self.inputs[index].name,
            Value::Result(index) => &self.instructions[index].name,
        }
    }

    /// The precision an instruction computes in.
    pub fn compute(&self, instruction: &Instruction) -> Math {
        instruction.op.compute(instruction.operands.iter().map(|value| self.dtype(*value)))
    }

    /// Whether an instruction reads a value or it is an output.
    pub(crate) fn reads(&self, value: Value) -> bool {
        self.outputs.contains(&value)
            || self.instructions.iter().any(|line| line.operands.contains(&value))
    }

    /// How often each instruction's result is used by other instructions.
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

/// The type of values that were in `f32`, computed in `f64`.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F32 { DType::F64 } else { dtype }
}

impl fmt::Display for Program {
    /// One line per instruction: `y: bf16 = relu_fwd(sum)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
