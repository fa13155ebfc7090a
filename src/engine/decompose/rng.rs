//! Random numbers as engines draw them: in the order of a packed intermediate, in the precision of
//! the computation. What is stored, or of another type, is a copy.

use crate::engine::decompose::calculus::Calculus;
use crate::error::{Error, Result};
use crate::graph::{CanonicalGraph, Op, Operation, Rng};
use crate::tensor::{TensorDesc, packed_strides};

/// Checks that seeds and offsets are read, not computed.
///
/// # Errors
/// `NotSupported` naming the one that an operation of the graph writes.
pub(super) fn check(graph: CanonicalGraph<'_>) -> Result<()> {
    let draws = graph.operations.iter().filter(|operation| matches!(operation.op, Op::Rng(_)));
    let given = draws.flat_map(|operation| operation.inputs.iter().map(|uid| *uid as usize));
    match { given }.find(|at| graph.is_written(*at)) {
        None => Ok(()),
        Some(at) => Err(Error::not_supported(format!(
            "`{}` is computed, random numbers need it in memory",
            graph.tensors[at].name
        ))),
    }
}

/// Whether engines draw the numbers as they are.
pub(super) fn is_plain(graph: CanonicalGraph<'_>, op: &Rng, operation: &Operation) -> bool {
    let result = &graph.tensors[operation.outputs[0] as usize];
    let ranks = operation.inputs.iter().map(|uid| graph.tensors[*uid as usize].dims.len());
    draws_into(op, result) && ranks.into_iter().all(|rank| rank == result.dims.len())
}

/// Draws the numbers, and copies them where the result is not what is drawn.
pub(super) fn numbers(calculus: &mut Calculus, op: &Rng, operation: &Operation) {
    let result = operation.outputs[0];
    let tensor = &calculus.tensors[result as usize];
    if draws_into(op, tensor) {
        return calculus.keep(Op::Rng(*op), operation);
    }
    let (dims, dtype) = (tensor.dims.clone(), op.drawn(tensor.dtype));
    let drawn = calculus.intermediate("random", &dims, dtype);
    let inputs = operation.inputs.clone();
    calculus.operations.push(Operation { op: Op::Rng(*op), inputs, outputs: vec![drawn] });
    calculus.store(drawn, result);
}

fn draws_into(op: &Rng, result: &TensorDesc) -> bool {
    result.is_virtual
        && result.dtype == op.drawn(result.dtype)
        && result.strides == packed_strides(&result.dims)
}
