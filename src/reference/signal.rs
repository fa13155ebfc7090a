//! Signals, in the order of one graph: nobody else sets its flags.

use crate::error::{Error, Result};
use crate::graph::{Signal, SignalMode};
use crate::reference::expected::{Expected, Operand};
use crate::tensor::TensorDesc;

/// A flag that is set has its value. A wait for a value that its flag has not would end by its
/// time, with an error.
///
/// # Errors
/// `BadParam` for a wait whose flag has another value.
pub(super) fn evaluate(
    op: &Signal,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Result<Vec<Expected>> {
    let x = operands.last().expect("the operation was checked");
    let passed = x.expected.clone();
    if op.mode == SignalMode::Set {
        let flag = Expected { values: vec![op.value as f64], bounds: vec![0.0] };
        return Ok([flag, passed].into_iter().take(outputs.len()).collect());
    }
    let flag = &operands[0];
    let seen = flag.expected.values[0];
    match seen == op.value as f64 {
        true => Ok([passed].into_iter().take(outputs.len()).collect()),
        false => Err(Error::bad_param(format!(
            "{op}: flag `{}` is {seen}, and nothing in the graph sets it",
            flag.desc.name
        ))),
    }
}
