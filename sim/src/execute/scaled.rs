//! `mma.sync` with a scale per row or column and part of K.
//!
//! The products of each part are added up like those of an MMA without scales, and their sum,
//! scaled without rounding, is added to the accumulator.

use super::multiply::Operands;
use crate::context::Context;
use crate::format::{Format, scale as scale_of};
use crate::lanes::canonical;
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::unit::{Multiply, Scale};
use crate::warp::Warp;

const K_MAX: usize = 64;

pub(super) fn multiply(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    product: Multiply,
    scale: Scale,
) {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let mut operands = Operands::<f32, K_MAX>::new(0.0);
    operands.read(warp, cx, product, reads, Format::single);
    let word = |index: usize| *warp.registers.word(&cx.program.constants, reads[index]);
    let (of_a, of_b) = (word(in_a + in_b + in_c), word(in_a + in_b + in_c + 1));
    let value = |word: u32, first: u8, part: usize| {
        scale_of((word >> (8 * (usize::from(first) + part))) as u8, scale.fraction)
    };
    // Two threads of four hold the scales of a row of either half, one those of a column.
    let row_scale = |half: usize, row: usize, part: usize| {
        value(of_a[row * 4 + usize::from(scale.a[1]) * 2 + half], scale.a[0], part)
    };
    let column_scale = |column: usize, part: usize| {
        value(of_b[column * 4 + usize::from(scale.b[1])], scale.b[0], part)
    };
    let parts = usize::from(scale.vector);
    let span = usize::from(product.k) / parts;
    let sum = |index: usize, lane: usize| {
        let (half, row, column) = (index / 2, lane / 4, lane % 4 * 2 + index % 2);
        let place = lane % 4 + index % 2 * 4;
        let mut sum = f32::from_bits(word(in_a + in_b + index)[lane]);
        for part in 0..parts {
            let ks = part * span..(part + 1) * span;
            let dot = dot(&operands, half, ks, (row, place));
            let scale = row_scale(half, row, part) * column_scale(column, part);
            sum = (f64::from(dot) * scale + f64::from(sum)) as f32;
        }
        canonical(sum).to_bits()
    };
    let out: [[u32; LANES]; 4] =
        std::array::from_fn(|index| std::array::from_fn(|lane| sum(index, lane)));
    for (slot, row) in writes.iter().zip(&out) {
        warp.registers.set_word(*slot, row, u32::MAX);
    }
}

fn dot(
    operands: &Operands<f32, K_MAX>,
    half: usize,
    ks: std::ops::Range<usize>,
    (row, place): (usize, usize),
) -> f32 {
    let (rows, columns) = (&operands.rows[half], &operands.columns);
    ks.fold(0.0, |sum, k| rows[k][row].mul_add(columns[k][place], sum))
}
