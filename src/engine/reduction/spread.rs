//! Variances in one pass.
//!
//! An average of squared distances from a mean would need the elements a second time, when the
//! mean is known. Where a row is read again in each phase, every thread adds up squared distances
//! from the mean of what it has read so far (Welford 1962; Chan, Golub and LeVeque 1983) in the
//! phase of the mean itself; as soon as that is known, `n (mean of these - mean)^2` makes them
//! distances from it. All terms are positive: nothing cancels.
//!
//! What rounding loses stays within what the reference allows for distances from a rounded mean.
//! Of a thread with `k` groups of `b` values among `T` threads, the mean so far is off by no more
//! than `u S`, `S` being the sum of the groups' absolute means: each step rounds a mean, `S / i`
//! at most, and later steps weigh that `i / k`. This moves the squares by `2 u S` times the sum of
//! steps, which is no more than `2 + ln k` times that of the distances. The reference allows `4 u`
//! times the sum of all distances times that of all values, and `2 u` times their number times the
//! squares: both are larger where `2 + ln k` is below `b T`.

use crate::engine::reduction::phases::Step;
use crate::engine::reduction::space::Space;
use crate::expr::{Mode, Pointwise};
use crate::graph::{CanonicalGraph, Op, Operation, ReductionOp};

/// The average of squared distances that an operation takes, as a step beside that of the mean.
pub(super) fn of(graph: CanonicalGraph<'_>, space: &Space, operation: &Operation) -> Option<Step> {
    let writer = |at: i64| graph.operations.iter().find(|of| of.outputs.contains(&at));
    let average = |of: &Operation| match of.op {
        Op::Reduction(op) if op.op == ReductionOp::Avg => Some(op),
        _ => None,
    };
    let op = average(operation)?;
    // Written in the precision that is computed in, so that nothing between is rounded.
    let plain = |at: i64, mode: Mode| {
        let expected = Pointwise::new(mode).math(op.math);
        let written = writer(at).filter(|of| of.as_pointwise() == Some(&expected));
        written.filter(|_| graph.tensors[at as usize].dtype == op.math.dtype())
    };
    let [square] = operation.inputs[..] else { return None };
    let [deviation, same] = plain(square, Mode::Mul)?.inputs[..] else { return None };
    let [x, mean] = plain(deviation, Mode::Sub).filter(|_| deviation == same)?.inputs[..] else {
        return None;
    };
    let averaged = writer(mean).filter(|of| average(of) == Some(op))?.inputs[0];
    let widened = plain(averaged, Mode::Identity).is_some_and(|of| of.inputs[0] == x);
    if averaged != x && !widened {
        return None;
    }
    let [operand, mean, result] = [averaged, mean, operation.outputs[0]].map(|at| at as usize);
    let whole = graph.tensors[operand].dims == graph.tensors[square as usize].dims;
    let rows = space.is_row(mean) && space.is_row(result) && !space.is_row(operand);
    (whole && rows).then_some(Step { op, operand, result, around: Some(mean) })
}

/// Registers of a value of each variance that is taken so.
pub(super) fn words(graph: CanonicalGraph<'_>, space: &Space) -> i64 {
    let steps = graph.operations.iter().filter_map(|operation| of(graph, space, operation));
    steps.map(|step| step.op.math.dtype().bytes() as i64 / 4).sum()
}
