//! An accumulator tile of 8 x 8, and its operands.
//!
//! Columns are in the order 0, 2, 4, 6, 1, 3, 5, 7: a lane holds the sums of two neighbouring
//! columns in two registers, so that half a row of the tile is four neighbouring lanes of one
//! register.
//!
//! The loops are written out, since `map` and `from_fn` of arrays are not always inlined, and what
//! is not is compiled without the instructions of the caller's level.

use crate::accuracy::Step;
use crate::half::F16;
use crate::lanes::canonical;
use crate::registers::LANES;

/// An operand along K: eight rows of A, or eight columns of B.
pub(super) type Slices<T, const K: usize> = [[T; 8]; K];

/// Sums by row and column.
pub(super) type Sums<T> = [[T; 8]; 8];

/// The column at a place of the tile's order.
#[inline(always)]
pub(super) fn column_at(place: usize) -> usize {
    place % 4 * 2 + place / 4
}

/// Slices of a register of A, or of B with `columns`. A lane holds neighbours along K, and four
/// lanes a row of A or a column of B.
#[inline(always)]
pub(super) fn slice<T: Copy, const K: usize>(
    out: &mut Slices<T, K>,
    words: &[u32; LANES],
    first_k: usize,
    bits: usize,
    columns: bool,
    value: impl Fn(u32) -> T,
) {
    let per = 32 / bits;
    for neighbour in 0..4 {
        let mut along = [0; 8];
        for (place, along) in along.iter_mut().enumerate() {
            let index = if columns { column_at(place) } else { place };
            *along = words[index * 4 + neighbour];
        }
        for part in 0..per {
            let slice = &mut out[first_k + neighbour * per + part];
            for place in 0..8 {
                slice[place] = value(along[place] >> (part * bits));
            }
        }
    }
}

/// Adds the products of eight rows and `N` columns in K order; `muladd` is the accumulation step.
#[inline(always)]
pub(super) fn accumulate<T: Copy, const K: usize, const N: usize>(
    rows: &Slices<T, K>,
    columns: &[[T; N]; K],
    k: usize,
    sums: &mut [[T; N]; 8],
    muladd: impl Fn(T, T, T) -> T,
) {
    let mut out = *sums;
    for (rows, columns) in rows[..k].iter().zip(&columns[..k]) {
        for (out, row) in out.iter_mut().zip(rows) {
            for place in 0..N {
                out[place] = muladd(*row, columns[place], out[place]);
            }
        }
    }
    *sums = out;
}

/// The same sums in the steps of a tensor core, which truncate.
#[cold]
pub(super) fn accumulate_in_steps<const K: usize>(
    rows: &Slices<f32, K>,
    columns: &Slices<f32, K>,
    k: usize,
    sums: &mut Sums<f32>,
    step: Step,
) {
    let mut products = vec![0.0; k];
    for (row, sums) in sums.iter_mut().enumerate() {
        for (place, sum) in sums.iter_mut().enumerate() {
            for (at, product) in products.iter_mut().enumerate() {
                *product = f64::from(rows[at][row]) * f64::from(columns[at][place]);
            }
            *sum = step.add(*sum, &products);
        }
    }
}

/// Adds the products of floating-point numbers, in K order or in the steps of a tensor core.
#[inline(always)]
pub(super) fn accumulate_singles<const K: usize>(
    rows: &Slices<f32, K>,
    columns: &Slices<f32, K>,
    k: usize,
    sums: &mut Sums<f32>,
    step: Option<Step>,
) {
    match step {
        None => accumulate(rows, columns, k, sums, f32::mul_add),
        Some(step) => accumulate_in_steps(rows, columns, k, sums, step),
    }
}

/// Accumulators of f32, of the even and of the odd columns.
#[inline(always)]
pub(super) fn singles(words: [&[u32; LANES]; 2]) -> Sums<f32> {
    let mut out = [[0.0; 8]; 8];
    for (row, out) in out.iter_mut().enumerate() {
        for (odd, words) in words.into_iter().enumerate() {
            for at in 0..4 {
                out[odd * 4 + at] = f32::from_bits(words[row * 4 + at]);
            }
        }
    }
    out
}

/// Words of accumulators of f32, of the even columns or the odd ones.
#[inline(always)]
pub(super) fn words(sums: &Sums<f32>, odd: usize) -> [u32; LANES] {
    let mut out = [0; LANES];
    for (row, sums) in sums.iter().enumerate() {
        for at in 0..4 {
            out[row * 4 + at] = canonical(sums[odd * 4 + at]).to_bits();
        }
    }
    out
}

/// Accumulators of f16: the even column in the low half.
#[inline(always)]
pub(super) fn unpacked(words: &[u32; LANES]) -> Sums<f32> {
    let mut out = [[0.0; 8]; 8];
    for (row, out) in out.iter_mut().enumerate() {
        for at in 0..4 {
            let word = words[row * 4 + at];
            out[at] = F16(word as u16).to_f32();
            out[4 + at] = F16((word >> 16) as u16).to_f32();
        }
    }
    out
}

/// Words of accumulators of f16.
#[inline(always)]
pub(super) fn packed(sums: &Sums<f32>) -> [u32; LANES] {
    let bits = |sum: f32| u32::from(F16::from_f32(canonical(sum)).0);
    let mut out = [0; LANES];
    for (row, sums) in sums.iter().enumerate() {
        for at in 0..4 {
            out[row * 4 + at] = bits(sums[at]) | bits(sums[4 + at]) << 16;
        }
    }
    out
}

/// Adds integer sums to accumulators of the even columns or the odd ones.
#[inline(always)]
pub(super) fn plus(c: &[u32; LANES], sums: &Sums<i32>, odd: usize, saturate: bool) -> [u32; LANES] {
    let mut out = [0; LANES];
    for (row, sums) in sums.iter().enumerate() {
        for at in 0..4 {
            let (c, sum) = (c[row * 4 + at] as i32, sums[odd * 4 + at]);
            let new = if saturate { c.saturating_add(sum) } else { c.wrapping_add(sum) };
            out[row * 4 + at] = new as u32;
        }
    }
    out
}
