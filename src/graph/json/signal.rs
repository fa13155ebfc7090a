//! JSON form of signals: what is done with the flag under the key `signal`, and the value.

use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::Result;
use crate::graph::find::find;
use crate::graph::{Op, Operation, PassThrough, Signal, SignalMode};
use crate::tensor::TensorDesc;

pub(super) fn read(fields: &mut Fields) -> Result<Op> {
    let mode = fields.choice(fields.kind, &SignalMode::ALL.map(|mode| (mode.name(), mode)))?;
    let value = fields.number("value")?;
    let timeout = fields.optional("timeout_ms", "a whole number", Value::as_i64)?;
    if mode == SignalMode::Set && timeout.is_some() {
        return fields.fail("key `timeout_ms` is that of `wait`");
    }
    let in_place = fields.optional("in_place", "true or false", Value::as_bool)?;
    let pass = match (fields.has("y"), in_place) {
        (false, Some(_)) => return fields.fail("key `in_place` without `y`"),
        (false, None) => PassThrough::Nothing,
        (true, Some(true)) => PassThrough::InPlace,
        (true, _) => PassThrough::Default,
    };
    let timeout_ms = timeout.unwrap_or(Signal::TIMEOUT_MS);
    Ok(Op::Signal(Signal { mode, value, timeout_ms, pass }))
}

/// The attributes by key; what is usual is left out.
pub(super) fn write(
    op: &Signal,
    operation: &Operation,
    tensors: &[TensorDesc],
) -> Vec<(&'static str, Value)> {
    let mut keys = vec![("signal", json!(op.mode.name())), ("value", json!(op.value))];
    if op.timeout_ms != Signal::TIMEOUT_MS && op.mode == SignalMode::Wait {
        keys.push(("timeout_ms", json!(op.timeout_ms)));
    }
    let tensor = |uid| find(tensors, uid);
    let in_place = operation.passed().is_some_and(|(op, x, y)| {
        std::iter::zip(tensor(x), tensor(y)).any(|(x, y)| op.is_shared(x, y))
    });
    if in_place {
        keys.push(("in_place", json!(true)));
    }
    keys
}
