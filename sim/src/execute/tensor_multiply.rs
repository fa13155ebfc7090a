//! MMAs on tensor memory.
//!
//! Products are exact; floating-point accumulation starts with D and adds the products in K order,
//! each rounded to nearest. With scales the products of each part of K are added up, and their sum,
//! scaled without rounding, is added to D.

use crate::accuracy::Step;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::format::{Format, scale};
use crate::half::F16;
use crate::lanes::{canonical, leveled};
use crate::matrix_descriptor::Descriptor;
use crate::tensor_memory::Product;

/// Tensor memory lane of a row of D, and of A.
fn lane_of(m: usize, first: usize, row: usize) -> usize {
    match m {
        64 => row / 16 * 32 + row % 16 + first,
        _ => row,
    }
}

/// Bits of the element at a row (or column) and K index of a matrix in shared memory.
#[inline(always)]
fn element(shared: &[u32], matrix: &Descriptor, bits: usize, (row, k): (usize, usize)) -> u32 {
    let per = 128 / bits;
    let (at, part) = match matrix.transposed {
        false => (matrix.address(row as u64 / 8, row as u64 % 8, (k / per) as u64), k % per),
        true => {
            let (group, index, chunk) = ((row / per) as u64, k as u64 % 8, k as u64 / 8);
            (matrix.address(group, index, chunk), row % per)
        }
    };
    shared[at as usize / 4 + part * bits / 32] >> (part * bits % 32)
}

/// Unpacks A by rows and B by K index.
#[inline(always)]
fn unpacked<T: Copy>(
    block: &BlockState,
    product: &Product,
    value: impl Fn(Format, u32) -> T,
) -> (Vec<T>, Vec<T>) {
    let shape = product.shape;
    let mut a = Vec::with_capacity(shape.m * shape.k);
    let bits = shape.a.bits();
    for row in 0..shape.m {
        for k in 0..shape.k {
            let word = match &product.a {
                Ok(matrix) => element(&block.shared, matrix, bits, (row, k)),
                Err(first) => {
                    let lane = lane_of(shape.m, product.d as usize >> 16, row);
                    let column = *first as usize + k * bits / 32;
                    let cell = lane * crate::tensor_memory::COLUMNS + column;
                    block.tensor.cells[cell] >> (k * bits % 32)
                }
            };
            a.push(value(shape.a, word));
        }
    }
    let mut b = Vec::with_capacity(shape.k * shape.n);
    let bits = shape.b.bits();
    for k in 0..shape.k {
        for column in 0..shape.n {
            b.push(value(shape.b, element(&block.shared, &product.b, bits, (column, k))));
        }
    }
    (a, b)
}

/// Scale of a row or column and part of K.
fn scale_at(block: &BlockState, product: &Product, index: usize, row: usize, part: usize) -> f64 {
    let column = product.scales[index] as usize + row / 32;
    let word = block.tensor.cells[row % 32 * crate::tensor_memory::COLUMNS + column];
    let byte = product.shape.scale_bytes[index] + part;
    scale((word >> (8 * (byte % 4))) as u8, product.shape.scale_fraction)
}

#[inline(always)]
fn floating(block: &mut BlockState, cx: &Context<'_>, product: &Product) {
    let shape = product.shape;
    let (a, b) = unpacked(block, product, Format::single);
    let negative = shape.negated[0] != shape.negated[1];
    let parts = usize::from(product.op.scales).max(1);
    let span = shape.k / parts;
    let (first_lane, first) = (product.d as usize >> 16, product.d as usize & 0xffff);
    let shrink = f32::from_bits((127 - u32::from(product.op.shift)) << 23);
    let mut sums = vec![0.0_f32; shape.n];
    let step = cx.program.step(shape.a, span);
    for row in 0..shape.m {
        let lane = lane_of(shape.m, first_lane, row);
        for (column, sum) in sums.iter_mut().enumerate() {
            let old = shape.sum.single(*block.tensor.cell(lane, first + column));
            *sum = if product.adds { old * shrink } else { 0.0 };
        }
        let own = &a[row * shape.k..][..shape.k];
        if product.op.scales == 0 {
            accumulate(&mut sums, own, &b, negative, step);
        } else {
            for part in 0..parts {
                let mut dots = vec![0.0_f32; shape.n];
                let ks = part * span..(part + 1) * span;
                let of_b = &b[ks.start * shape.n..ks.end * shape.n];
                accumulate(&mut dots, &own[ks], of_b, negative, step);
                let of_row = scale_at(block, product, 0, row, part);
                for (column, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
                    let scale = of_row * scale_at(block, product, 1, column, part);
                    *sum = (f64::from(dot) * scale + f64::from(*sum)) as f32;
                }
            }
        }
        for (column, sum) in sums.iter().enumerate() {
            // A column holds one element, also of f16.
            *block.tensor.cell(lane, first + column) = match shape.sum {
                Format::F16 => F16::from_f32(canonical(*sum)).0.into(),
                _ => canonical(*sum).to_bits(),
            };
        }
    }
}

/// Adds a row of products to a row of sums.
#[inline(always)]
fn accumulate(sums: &mut [f32], a: &[f32], b: &[f32], negative: bool, step: Option<Step>) {
    if let Some(step) = step {
        let columns = sums.len();
        for (column, sum) in sums.iter_mut().enumerate() {
            let product = |(k, a): (usize, &f32)| {
                let product = f64::from(*a) * f64::from(b[k * columns + column]);
                if negative { -product } else { product }
            };
            let products: Vec<f64> = a.iter().enumerate().map(product).collect();
            *sum = step.add(*sum, &products);
        }
        return;
    }
    for (a, b) in a.iter().zip(b.chunks_exact(sums.len())) {
        let a = if negative { -a } else { *a };
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum = a.mul_add(*b, *sum);
        }
    }
}

fn integral(block: &mut BlockState, product: &Product) {
    let shape = product.shape;
    let (a, b) = unpacked(block, product, Format::integer_value);
    let (first_lane, first) = (product.d as usize >> 16, product.d as usize & 0xffff);
    for row in 0..shape.m {
        let lane = lane_of(shape.m, first_lane, row);
        for column in 0..shape.n {
            let dot: i32 =
                (0..shape.k).map(|k| a[row * shape.k + k] * b[k * shape.n + column]).sum();
            let cell = block.tensor.cell(lane, first + column);
            let old = if product.adds { *cell as i32 } else { 0 };
            let sum = if shape.saturate { old.saturating_add(dot) } else { old.wrapping_add(dot) };
            *cell = sum as u32;
        }
    }
}

leveled! {
    cx.has_v3 =>
    /// Executes an MMA.
    pub(super) fn multiply(block: &mut BlockState, cx: &Context<'_>, product: &Product) {
        match product.shape.sum {
            Format::S32 => integral(block, product),
            _ => floating(block, cx, product),
        }
    }
}
