//! Reductions.

use crate::dtype::DType;
use crate::expr::Math;
use crate::graph::{Reduction, ReductionOp};
use crate::reference::approx::{ANYTHING, Approx, Arithmetic};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, count, unravel};
use crate::reference::integer::Integer;
use crate::tensor::TensorDesc;

pub(super) fn evaluate(op: &Reduction, x: &Operand<'_>, y: &TensorDesc) -> Expected {
    let arithmetic = Arithmetic::new(op.math.dtype());
    let value = |at| if op.math == Math::I32 { x.approx(at) } else { x.at(arithmetic, at) };
    let groups = grouped(&x.desc.dims, &y.dims).into_iter();
    let values = groups.map(|group| group.into_iter().map(value).collect());
    Expected::stored(values.map(|values| reduced(op.op, op.math.dtype(), values)), y)
}

/// Some values reduced in a precision.
pub(super) fn reduced(op: ReductionOp, math: DType, values: Vec<Approx>) -> Approx {
    match math {
        DType::I32 => integers(op, values.into_iter().map(Integer::of)),
        _ => reduce(op, Arithmetic::new(math), values),
    }
}

/// Groups the positions of `dims` by the position in `reduced` that they reduce to.
pub(super) fn grouped(dims: &[i64], reduced: &[i64]) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); count(reduced)];
    for at in 0..count(dims) {
        groups[broadcast_position(&unravel(at as i64, dims), reduced)].push(at);
    }
    groups
}

fn reduce(op: ReductionOp, arithmetic: Arithmetic, values: Vec<Approx>) -> Approx {
    let magnitudes = || values.iter().map(|value| value.abs());
    match op {
        ReductionOp::Add => arithmetic.sum(values),
        ReductionOp::Norm1 => arithmetic.sum(magnitudes()),
        ReductionOp::Norm2 => {
            let squares = values.iter().map(|value| arithmetic.mul(*value, *value));
            arithmetic.sqrt(arithmetic.sum(squares))
        }
        ReductionOp::Avg => {
            let count = Approx::exact(values.len() as f64);
            match values.is_empty() {
                true => Approx::exact(f64::NAN),
                false => arithmetic.div(arithmetic.sum(values), count),
            }
        }
        ReductionOp::Mul => product(arithmetic, values),
        ReductionOp::MulNoZeros => {
            product(arithmetic, values.into_iter().filter(|value| value.value != 0.0))
        }
        ReductionOp::Min => extreme(f64::INFINITY, values.into_iter(), |a, b| a < b),
        ReductionOp::Max => extreme(f64::NEG_INFINITY, values.into_iter(), |a, b| a > b),
        ReductionOp::Amax => extreme(0.0, magnitudes(), |a, b| a > b),
    }
}

/// Reduces integers; wrapping makes the order irrelevant.
fn integers(op: ReductionOp, values: impl Iterator<Item = Integer>) -> Approx {
    let greater = |a, b| a > b;
    let reduced = match op {
        ReductionOp::Add => values.fold(Integer::ZERO, Integer::add),
        ReductionOp::Norm1 => values.map(Integer::abs).fold(Integer::ZERO, Integer::add),
        ReductionOp::Mul => values.fold(Integer::ONE, Integer::mul),
        ReductionOp::MulNoZeros => {
            values.filter(|value| !value.is_zero()).fold(Integer::ONE, Integer::mul)
        }
        ReductionOp::Min => {
            values.fold(Integer::from(i32::MAX), |best, value| best.extreme(value, |a, b| a < b))
        }
        ReductionOp::Max => {
            values.fold(Integer::from(i32::MIN), |best, value| best.extreme(value, greater))
        }
        ReductionOp::Amax => {
            values.map(Integer::abs).fold(Integer::ZERO, |best, value| best.extreme(value, greater))
        }
        ReductionOp::Avg | ReductionOp::Norm2 => unreachable!("{op:?} is computed in floats"),
    };
    reduced.approx()
}

fn product(arithmetic: Arithmetic, values: impl IntoIterator<Item = Approx>) -> Approx {
    let one = Approx::exact(1.0);
    values.into_iter().fold(one, |product, value| arithmetic.mul(product, value))
}

/// Extreme value: within their errors, any candidate may be selected. Propagates NaN.
fn extreme(
    none: f64,
    values: impl Iterator<Item = Approx>,
    before: impl Fn(f64, f64) -> bool,
) -> Approx {
    values.fold(Approx::exact(none), |best, value| {
        if best.is_certainly_nan() || value.is_certainly_nan() {
            return Approx::exact(f64::NAN);
        }
        let first = if before(value.value, best.value) { value.value } else { best.value };
        let open = best.error.is_nan() || value.error.is_nan();
        let error = if open { ANYTHING } else { best.error.max(value.error) };
        Approx { value: first, error }
    })
}
