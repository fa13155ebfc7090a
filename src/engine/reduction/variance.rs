//! Variances in one pass.
//!
//! An average of squared distances from a mean would need the elements a second time, when the
//! mean is known. Where every phase reads a row again, every thread accumulates squared distances
//! from the mean of its elements so far, which it keeps as the sum `T` that the mean needs (Welford
//! 1962; Youngs and Cramer 1971; Chan, Golub and LeVeque 1983), in the phase of the mean itself: an
//! `x` after `i - 1` others adds `(T - i x)^2 / (i (i - 1))`. As soon as the mean is known,
//! `(T - n mean)^2 / n` makes them distances from it. All terms are positive: nothing cancels, and
//! the quotients may be those of an approximate reciprocal, which costs a few `u` times a term.
//!
//! What rounding loses stays within what the reference allows for distances from a rounded mean,
//! however many threads there are, to first order in the unit roundoff `u` and but for a few `u`
//! times the squares. Of all `N` values `x` with the mean `m` and distances `d` from it let `S`,
//! `D` and `Q` be the sums of `|x|`, `|d|` and `d^2`. A thread takes `k` of them, of the first `j`
//! of which the sums are `S_j`, `D_j` and `Q_j`, and the average distance is `a_j`. `T` after `i`
//! is off by `i e_i <= u (S_2 + .. + S_i)`: the first is exact, and a step rounds a sum of `S_j` at
//! most. As `T - i x` is `(i - 1) (a_(i-1) - d_i)`, this moves the squares by
//! `2 e_i |d_i - a_(i-1)|` each, where
//! - `d_i` makes no more than `2 u (1 - 1 / N) S D` of all;
//! - `a_(i-1)`, since `S_j <= j |m| + D_j`, no more than `2 u |m| D (k / 2 + ln k)` of all, and
//!   with `D_j` `2 u D_j |a_j|` each. Squares so far are rounded too, by `u (Q_j - j a_j^2)`. As
//!   `D_j^2 <= j Q_j` and `p = j a_j^2 / Q_j <= 1`, both are `u Q_j (2 sqrt(p) + 1 - p) <= 2 u Q_j`
//!   at most, and `2 u k Q` over all steps.
//!
//! The reference allows `4 u (1 - 1 / N) S D + 8 u |m| D` for the mean, where `N |m| <= S`, and
//! `2 u (N - 1) Q` for the sum of squares, besides `6 u Q` for squares themselves.

use crate::engine::reduction::space::Space;
use crate::engine::reduction::step::Step;
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
