//! Bit-exact simplification of programs.

use std::collections::HashMap;

use crate::dtype::DType;
use crate::expr::mode::Mode;
use crate::expr::pointwise::{Pointwise, Real};
use crate::expr::program::{Input, Instruction, Program, Value};

impl Program {
    /// Returns an equivalent program with fewer instructions: redundant casts and casts of lossless
    /// casts are dropped, common subexpressions are merged, dead instructions are removed.
    ///
    /// No algebraic rewrites are applied: `x + 0` is not `x` for negative zero, and reassociation
    /// changes rounding. Unused inputs are kept, so indices of inputs and outputs stay valid.
    pub fn simplified(&self) -> Program {
        let (instructions, outputs) = remove_unused(merge(self));
        Program::from_parts(self.inputs().to_vec(), instructions, outputs)
    }
}

type Body = (Vec<Instruction>, Vec<Value>);

fn merge(program: &Program) -> Body {
    let mut kept: Vec<Instruction> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let mut known: HashMap<(Pointwise, Vec<Value>, DType), Value> = HashMap::new();
    let renamed = |values: &[Value], value: &Value| match value {
        Value::Input(_) => *value,
        Value::Result(index) => values[*index],
    };
    for instruction in program.instructions() {
        let operands = instruction.operands.iter().map(|value| renamed(&values, value)).collect();
        let op = instruction.op.normalised();
        let mut next = Instruction { op, operands, ..instruction.clone() };
        while let Some(source) = lossless_cast_source(&next, program.inputs(), &kept) {
            next.operands[0] = source;
        }
        if is_copy(&next, program.inputs(), &kept) {
            values.push(next.operands[0]);
            continue;
        }
        let key = (next.op, next.operands.clone(), next.dtype);
        let value = *known.entry(key).or_insert_with(|| {
            kept.push(next);
            Value::Result(kept.len() - 1)
        });
        values.push(value);
    }
    let outputs = program.outputs().iter().map(|value| renamed(&values, value)).collect();
    (kept, outputs)
}

fn is_plain_cast(instruction: &Instruction) -> bool {
    instruction.op.mode == Mode::Identity && instruction.op.alpha1 == Real::new(1.0)
}

fn dtype_of(value: Value, inputs: &[Input], kept: &[Instruction]) -> DType {
    match value {
        Value::Input(index) => inputs[index].dtype(),
        Value::Result(index) => kept[index].dtype,
    }
}

fn is_copy(instruction: &Instruction, inputs: &[Input], kept: &[Instruction]) -> bool {
    is_plain_cast(instruction)
        && dtype_of(instruction.operands[0], inputs, kept) == instruction.dtype
}

/// For a cast of a lossless cast, returns the source of the inner cast.
fn lossless_cast_source(
    instruction: &Instruction,
    inputs: &[Input],
    kept: &[Instruction],
) -> Option<Value> {
    let Value::Result(inner) = *instruction.operands.first()? else { return None };
    let inner = &kept[inner];
    let source = inner.operands[0];
    let lossless = dtype_of(source, inputs, kept).fits_in(inner.dtype);
    (is_plain_cast(instruction) && is_plain_cast(inner) && lossless).then_some(source)
}

fn remove_unused((instructions, outputs): Body) -> Body {
    let mut used = vec![false; instructions.len()];
    let mark = |value: &Value, used: &mut [bool]| {
        if let Value::Result(index) = value {
            used[*index] = true;
        }
    };
    outputs.iter().for_each(|value| mark(value, &mut used));
    for index in (0..instructions.len()).rev() {
        if used[index] {
            instructions[index].operands.iter().for_each(|value| mark(value, &mut used));
        }
    }
    let positions: Vec<usize> = used
        .iter()
        .scan(0, |next, used| {
            let position = *next;
            *next += usize::from(*used);
            Some(position)
        })
        .collect();
    let moved = |value: Value| match value {
        Value::Input(_) => value,
        Value::Result(index) => Value::Result(positions[index]),
    };
    let kept = instructions
        .into_iter()
        .zip(&used)
        .filter(|(_, used)| **used)
        .map(|(mut instruction, _)| {
            instruction.operands.iter_mut().for_each(|value| *value = moved(*value));
            instruction
        })
        .collect();
    (kept, outputs.into_iter().map(moved).collect())
}

impl DType {
    /// Whether `other` represents every value of this type.
    pub(crate) fn fits_in(self, other: DType) -> bool {
        use DType::*;
        match (self, other) {
            (a, b) if a == b => true,
            (I64, _) => false,
            (_, F64) => true,
            (I32 | I8 | U8 | Bool, I64) => true,
            (from, F32) => from.fits_f32(),
            (I8 | U8 | Bool, I32) => true,
            (I8 | U8 | Bool, F16) | (I8 | U8 | Bool, Bf16) => true,
            (Bool, I8 | U8) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast() -> Pointwise {
        Pointwise::new(Mode::Identity)
    }

    #[test]
    fn casts_equal_and_unused_instructions_go() {
        let mut program = Program::new();
        let x = program.input("x", DType::F16);
        let y = program.input("y", DType::F32);
        let wide = program.push("wide", cast(), &[x], DType::F32).expect("valid");
        let back = program.push("back", cast(), &[wide], DType::F16).expect("valid");
        let a =
            program.push("a", Pointwise::new(Mode::Add), &[back, y], DType::F32).expect("valid");
        let b = program.push("b", Pointwise::new(Mode::Add), &[x, y], DType::F32).expect("valid");
        program.push("dead", Pointwise::new(Mode::Exp), &[a], DType::F32).expect("valid");
        let z = program.push("z", Pointwise::new(Mode::Mul), &[a, b], DType::F32).expect("valid");
        program.output(z);
        assert_eq!(program.simplified().to_string(), "a: f32 = add(x, y)\nz: f32 = mul(a, a)\n");
    }

    #[test]
    fn lossy_casts_stay() {
        let mut program = Program::new();
        let x = program.input("x", DType::F32);
        let narrow = program.push("narrow", cast(), &[x], DType::Bf16).expect("valid");
        let wide = program.push("wide", cast(), &[narrow], DType::F32).expect("valid");
        program.output(wide);
        assert_eq!(program.simplified().instructions().len(), 2);
    }

    #[test]
    fn small_integers_fit_sixteen_bit_floats() {
        for value in -128..=255 {
            let value = f64::from(value);
            assert_eq!(DType::Bf16.round(value), value);
            assert_eq!(DType::F16.round(value), value);
        }
    }
}
