//! `mma.sp.sync`: A has zeros in half of its places, by a pattern, and they are not stored.
//!
//! Each chunk of a row has four bits of metadata: two indices of two bits, of the elements that are
//! stored, or of the pairs of them where elements have 4 bits. A chunk of tf32 is two elements, of
//! which 0b0100 stores the first and 0b1110 the second. (PTX, "Sparse matrix storage".)

use super::multiply::Operands;
use super::tile::{Sums, packed, plus, singles, unpacked, words};
use crate::accuracy::Step;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::format::Format;
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::unit::{Multiply, Sparsity};
use crate::warp::Warp;

/// Largest K, and half of it.
const K_MAX: usize = 128;
const STORED_MAX: usize = K_MAX / 2;

/// Where the stored elements of a row are along K.
type Row = [u8; STORED_MAX];

/// Four bits of the metadata, and the lane that holds them.
fn chunk_of(
    metadata: &[u32; LANES],
    (product, sparsity): (Multiply, Sparsity),
    (half, row, chunk): (usize, usize, usize),
) -> (u32, usize) {
    let chunks = usize::from(product.k) / product.a.chunk();
    let selector = usize::from(sparsity.selector);
    // A word has four chunks of a row and of the one eight below it, or eight chunks of a row, of
    // which the next lane holds the one eight below.
    let (thread, place) = match product.a.bits() >= 16 {
        true => (selector * (chunks / 4) + chunk / 4, 4 * half + chunk % 4),
        false => (selector * 2 + half + chunk / 8 * 2, chunk % 8),
    };
    let lane = row * 4 + thread;
    (metadata[lane] >> (4 * place) & 0xf, lane)
}

/// Indices of the elements that a chunk stores, or of pairs of them.
fn indices(product: Multiply, sparsity: Sparsity, bits: u32) -> Option<[u8; 2]> {
    match (product.a.bits(), bits) {
        (32, 0b0100) => Some([0, 1]),
        (32, 0b1110) => Some([2, 3]),
        (32, _) => None,
        _ => {
            let [first, second] = [bits as u8 & 3, bits as u8 >> 2];
            let valid = if sparsity.ordered { first < second } else { first != second };
            valid.then_some([first, second])
        }
    }
}

fn places(
    metadata: &[u32; LANES],
    product: Multiply,
    sparsity: Sparsity,
) -> Result<[[Row; 8]; 2], Failure> {
    let length = product.a.chunk();
    let mut places = [[[0; STORED_MAX]; 8]; 2];
    for (half, rows) in places.iter_mut().enumerate() {
        for (row, places) in rows.iter_mut().enumerate() {
            for chunk in 0..usize::from(product.k) / length {
                let (bits, lane) = chunk_of(metadata, (product, sparsity), (half, row, chunk));
                let Some(indices) = indices(product, sparsity, bits) else {
                    let row = row + 8 * half;
                    return misuse(
                        lane,
                        format!("the metadata of row {row}, chunk {chunk} is invalid: {bits:#06b}"),
                    );
                };
                let stored = &mut places[chunk * length / 2..][..length / 2];
                for (at, place) in stored.iter_mut().enumerate() {
                    // The index of an element, of a pair, or of one half of an element.
                    let within = match length {
                        2 => usize::from(indices[0]) / 2,
                        4 => usize::from(indices[at]),
                        _ => usize::from(indices[at / 2]) * 2 + at % 2,
                    };
                    *place = (chunk * length + within) as u8;
                }
            }
        }
    }
    Ok(places)
}

/// Adds the products of what is stored of eight rows, in K order; `sum` adds those of an element.
fn accumulate<T: Copy>(
    operands: &Operands<T, K_MAX>,
    (half, places): (usize, &[Row; 8]),
    stored: usize,
    sums: &mut Sums<T>,
    sum: impl Fn(T, &mut dyn Iterator<Item = (T, T)>) -> T,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        for (column, out) in sums.iter_mut().enumerate() {
            let mut factors = (0..stored).map(|at| {
                let k = usize::from(places[row][at]);
                (operands.rows[half][at][row], operands.columns[k][column])
            });
            *out = sum(*out, &mut factors);
        }
    }
}

fn float_sum(sum: f32, factors: &mut dyn Iterator<Item = (f32, f32)>, step: Option<Step>) -> f32 {
    match step {
        None => factors.fold(sum, |sum, (a, b)| a.mul_add(b, sum)),
        Some(step) => {
            let products: Vec<f64> = factors.map(|(a, b)| f64::from(a) * f64::from(b)).collect();
            step.add(sum, &products)
        }
    }
}

pub(super) fn multiply(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    product: Multiply,
    sparsity: Sparsity,
) -> Result<(), Failure> {
    let [in_a, in_b, in_c] = product.registers();
    let (writes, reads) = cx.list(op).split_at(in_c);
    let word = |index: usize| *warp.registers.word(&cx.program.constants, reads[index]);
    let places = places(&word(in_a + in_b + in_c), product, sparsity)?;
    let stored = usize::from(product.k) / 2;
    let c = |index: usize| word(in_a + in_b + index);
    let mut out = [[0; LANES]; 4];
    if product.a.integer() {
        let mut operands = Operands::<i32, K_MAX>::new(0);
        operands.read(warp, cx, product, reads, Format::integer_value);
        for (half, places) in places.iter().enumerate() {
            let mut sums = [[0_i32; 8]; 8];
            accumulate(&operands, (half, places), stored, &mut sums, |sum, factors| {
                factors.fold(sum, |sum, (a, b)| sum + a * b)
            });
            for odd in 0..2 {
                let index = 2 * half + odd;
                out[index] = plus(&c(index), &sums, odd, product.saturate);
            }
        }
    } else {
        let mut operands = Operands::<f32, K_MAX>::new(0.0);
        operands.read(warp, cx, product, reads, Format::single);
        let step = cx.program.step(product.a, stored);
        for (half, places) in places.iter().enumerate() {
            let mut sums = match in_c {
                2 => unpacked(&c(half)),
                _ => singles([&c(2 * half), &c(2 * half + 1)]),
            };
            let sum =
                |sum, factors: &mut dyn Iterator<Item = (f32, f32)>| float_sum(sum, factors, step);
            accumulate(&operands, (half, places), stored, &mut sums, sum);
            match in_c {
                2 => out[half] = packed(&sums),
                _ => {
                    out[2 * half] = words(&sums, 0);
                    out[2 * half + 1] = words(&sums, 1);
                }
            }
        }
    }
    for (slot, words) in writes.iter().zip(&out) {
        warp.registers.set_word(*slot, words, u32::MAX);
    }
    Ok(())
}
