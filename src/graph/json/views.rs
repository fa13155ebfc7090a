//! JSON form of the operations that move elements.

use serde_json::{Value, json};

use super::fields::Fields;
use super::keys::{reference, referred};
use crate::error::Result;
use crate::graph::find::find;
use crate::graph::{CONCATENATED_MAX, Concatenate, Op, Operation, Reshape};
use crate::graph::{Slice, Transpose};
use crate::tensor::TensorDesc;

fn whole_numbers(value: &Value) -> Option<Vec<i64>> {
    value.as_array()?.iter().map(Value::as_i64).collect()
}

/// `slice` has the first index along each dimension; `end` and `stride` may be left out where they
/// are the extents and 1.
pub(super) fn slice(fields: &mut Fields, tensors: &[TensorDesc]) -> Result<Op> {
    let mut list = |key| fields.optional(key, "a list of whole numbers", whole_numbers);
    let [begin, end, stride] = [list("slice")?, list("end")?, list("stride")?];
    let begin = begin.expect("the key was found");
    let x = fields.peek("x").and_then(|name| referred(tensors, name));
    let dims = x.and_then(|uid| tensors.iter().find(|tensor| tensor.uid == uid));
    let end = end.or_else(|| dims.map(|tensor| tensor.dims.clone())).unwrap_or_default();
    let stride = stride.unwrap_or_else(|| vec![1; begin.len()]);
    Ok(Op::Slice(Slice { begin, end, stride }))
}

pub(super) fn transpose(fields: &mut Fields, _tensors: &[TensorDesc]) -> Result<Op> {
    let axes = |value: &Value| {
        let axis = |value: &Value| value.as_u64().and_then(|axis| usize::try_from(axis).ok());
        value.as_array()?.iter().map(axis).collect()
    };
    let permutation = fields.optional("transpose", "a list of whole numbers from 0", axes)?;
    Ok(Op::Transpose(Transpose { permutation: permutation.expect("the key was found") }))
}

/// `reshape` has the dimensions of the result, which those of its tensor must agree with.
pub(super) fn reshape(fields: &mut Fields, tensors: &[TensorDesc]) -> Result<Op> {
    let dims = fields.optional("reshape", "a list of whole numbers", whole_numbers)?;
    let y = fields.peek("y").and_then(|name| referred(tensors, name));
    if let (Some(dims), Some(y)) = (dims, y.and_then(|uid| tensors.iter().find(|of| of.uid == uid)))
        && dims != y.dims
    {
        let (name, own) = (&y.name, &y.dims);
        return fields.fail(format_args!("output `{name}` is {own:?}, expected {dims:?}"));
    }
    Ok(Op::Reshape(Reshape))
}

/// `concatenate` has the axis, `x` the operands as a list.
pub(super) fn concatenate(fields: &mut Fields, _tensors: &[TensorDesc]) -> Result<Op> {
    let axis = fields.number("concatenate")?;
    let in_place = fields.optional("in_place", "a whole number", Value::as_i64)?;
    let names = fields.optional("x", "a list of tensors", |value| {
        let name = |value: &Value| value.as_str().map(str::to_owned);
        value.as_array()?.iter().map(name).collect::<Option<Vec<String>>>()
    })?;
    let Some(names) = names else { return fields.fail("key `x` is missing") };
    let operands = names.len();
    if !(1..=CONCATENATED_MAX).contains(&operands) {
        return fields.fail(format_args!("{operands} operands, expected 1 to {CONCATENATED_MAX}"));
    }
    for (at, name) in names.into_iter().enumerate() {
        fields.put(&format!("x{at}"), name);
    }
    Ok(Op::Concatenate(Concatenate { axis, operands, in_place }))
}

/// All keys of the operation, the one that selects it first.
pub(super) fn write(operation: &Operation, tensors: &[TensorDesc]) -> Vec<(&'static str, Value)> {
    let name = |uid: &i64| json!(reference(tensors, *uid));
    let dims = |uid: i64| find(tensors, uid).map_or(&[][..], |tensor| &tensor.dims);
    let (x, y) = (operation.inputs[0], operation.outputs[0]);
    let mut keys = Vec::new();
    match &operation.op {
        Op::Slice(Slice { begin, end, stride }) => {
            keys.push(("slice", json!(begin)));
            if end != dims(x) {
                keys.push(("end", json!(end)));
            }
            if stride.iter().any(|stride| *stride != 1) {
                keys.push(("stride", json!(stride)));
            }
        }
        Op::Transpose(op) => keys.push(("transpose", json!(op.permutation))),
        Op::Concatenate(op) => {
            keys.push(("concatenate", json!(op.axis)));
            keys.extend(op.in_place.map(|at| ("in_place", json!(at))));
            keys.push(("x", operation.inputs.iter().map(name).collect()));
        }
        _ => keys.push(("reshape", json!(dims(y)))),
    }
    if !matches!(operation.op, Op::Concatenate(_)) {
        keys.push(("x", name(&x)));
    }
    keys.push(("y", name(&y)));
    keys
}
