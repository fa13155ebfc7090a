//! Matrix multiplication.

use crate::dtype::DType;
use crate::graph::{Matmul, MatmulMath};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::expected::{Expected, Operand};
use crate::reference::index::{broadcast_position, count, unravel};
use crate::reference::integer::Integer;
use crate::tensor::TensorDesc;

/// Relative error of truncation to tf32, 11 significant bits.
pub(super) const TF32_EPSILON: f64 = 1.0 / 1024.0;

pub(super) fn evaluate(op: &Matmul, operands: &[Operand<'_>], c: &TensorDesc) -> Expected {
    let (a, b) = (&operands[0], &operands[1]);
    let rank = c.dims.len();
    let (batches, [rows, columns]) = (&c.dims[..rank - 2], [c.dims[rank - 2], c.dims[rank - 1]]);
    let depth = a.desc.dims[rank - 1];
    let matrix = |operand: &Operand<'_>, batch: &[i64]| {
        let [height, width] = [operand.desc.dims[rank - 2], operand.desc.dims[rank - 1]];
        let first = broadcast_position(batch, &operand.desc.dims[..rank - 2]);
        first * (height * width) as usize
    };
    let mut results = Vec::new();
    for batch in 0..count(batches) as i64 {
        let index = unravel(batch, batches);
        let (first_a, first_b) = (matrix(a, &index), matrix(b, &index));
        let mut extents = [rows, columns, depth];
        let given = op.overrides.iter().zip(&mut extents).filter(|(given, _)| **given);
        for ((_, extent), own) in given.zip(&operands[2..]) {
            *extent = (own.expected.values[batch as usize] as i64).clamp(0, *extent);
        }
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |at| (row, at))) {
            let at = |i: i64| {
                let in_a = first_a + (row * depth + i) as usize;
                let in_b = first_b + (i * columns + column) as usize;
                (in_a, in_b)
            };
            let inside = row < extents[0] && column < extents[1];
            let terms = (0..if inside { extents[2] } else { 0 }).map(at);
            results.push(dot(op.math, a, b, terms));
        }
    }
    Expected::stored(results, c)
}

/// Dot product over pairs of positions.
pub(super) fn dot(
    math: MatmulMath,
    a: &Operand<'_>,
    b: &Operand<'_>,
    terms: impl Iterator<Item = (usize, usize)>,
) -> Approx {
    if math == MatmulMath::I32 {
        let integer = |of: &Operand<'_>, at: usize| Integer::of(of.approx(at));
        let products = terms.map(|(at, bt)| integer(a, at).mul(integer(b, bt)));
        return products.fold(Integer::ZERO, Integer::add).approx();
    }
    let dtype = if math == MatmulMath::F64 { DType::F64 } else { DType::F32 };
    let arithmetic = Arithmetic::new(dtype);
    let operand = |of: &Operand<'_>, at: usize| {
        let value = of.at(arithmetic, at);
        if math == MatmulMath::Tf32 { tf32(value) } else { value }
    };
    arithmetic.sum(terms.map(|(at, bt)| arithmetic.mul(operand(a, at), operand(b, bt))))
}

/// An operand converted to tf32, by rounding or truncation.
pub(super) fn tf32(from: Approx) -> Approx {
    let fits = from.value == f64::from(f32::from_bits((from.value as f32).to_bits() & !0x1fff));
    let own = if (fits && from.error == 0.0) || from.value.is_nan() {
        0.0
    } else {
        (from.value.abs() + from.error) * TF32_EPSILON
    };
    Approx { value: from.value, error: from.error + own }
}
