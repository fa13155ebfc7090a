//! JSON form of programs whose inputs are elements of tensors: operations on named values.

use serde::{Deserialize, Serialize};

use super::pointwise::PointwiseJson;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Program, Value};

/// A value with its type.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Typed {
    value: String,
    dtype: String,
}

/// The types of values that are not f32.
pub(super) fn types(program: &Program) -> Vec<Typed> {
    let all = (0..program.inputs().len()).map(Value::Input);
    let all = all.chain((0..program.instructions().len()).map(Value::Result));
    let others = all.filter(|value| program.dtype(*value) != DType::F32);
    let typed = |value| Typed {
        value: program.name(value).to_owned(),
        dtype: program.dtype(value).to_string(),
    };
    others.map(typed).collect()
}

/// The program of some operations.
pub(super) fn read<'a>(
    inputs: impl Iterator<Item = &'a String>,
    operations: &'a [PointwiseJson],
    types: &[Typed],
    outputs: impl Iterator<Item = &'a String>,
) -> Result<Program> {
    let dtype = |name: &str| {
        let typed = types.iter().find(|of| of.value == name);
        typed.map_or(Ok(DType::F32), |of| of.dtype.parse())
    };
    let mut program = Program::new();
    let mut values: Vec<(&str, Value)> = Vec::new();
    for name in inputs {
        values.push((name.as_str(), program.input(name, dtype(name)?)));
    }
    let find = |values: &[(&str, Value)], name: &str| {
        let found = values.iter().rev().find(|(known, _)| *known == name);
        let unknown = || Error::bad_param(format!("no value is named `{name}`"));
        found.map(|(_, value)| *value).ok_or_else(unknown)
    };
    for operation in operations {
        let operands = operation.inputs.iter().map(|name| find(&values, name));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let name = operation.output.as_str();
        values.push((name, program.push(name, operation.op()?, &operands, dtype(name)?)?));
    }
    for name in outputs {
        program.output(find(&values, name)?);
    }
    Ok(program)
}
