//! JSON form of signals: what is done with the flag under the key `signal`, and the value.

use serde_json::{Value, json};

use super::fields::Fields;
use crate::error::Result;
use crate::graph::{Op, Operation, OperationGraph, PassThrough, Signal, SignalMode};

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
    graph: &OperationGraph,
) -> Vec<(&'static str, Value)> {
    let mut keys = vec![("signal", json!(op.mode.name())), ("value", json!(op.value))];
    if op.timeout_ms != Signal::TIMEOUT_MS && op.mode == SignalMode::Wait {
        keys.push(("timeout_ms", json!(op.timeout_ms)));
    }
    if graph.in_place().any(|piece| operation.outputs.contains(&piece.within)) {
        keys.push(("in_place", json!(true)));
    }
    keys
}
