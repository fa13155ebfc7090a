//! `ldmatrix`, `stmatrix`, `movmatrix`: 8x8 matrices of 16-bit elements.
//!
//! A matrix is 8 rows of 16 bytes. Its 32 words in row-major order are the fragment: lane `l` holds
//! elements 2 (l mod 4) and 2 (l mod 4) + 1 of row l / 4.

use crate::aim::{Attempt, Place, addresses, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::unit::MatrixMove;
use crate::warp::Warp;

/// Transposes a fragment.
fn transposed(words: &[u32; LANES]) -> [u32; LANES] {
    let element = |row: usize, column: usize| {
        let word = words[row * 4 + column / 2];
        (word >> (16 * (column % 2))) & 0xffff
    };
    std::array::from_fn(|lane| {
        let (row, column) = (lane % 4 * 2, lane / 4);
        element(row, column) | element(row + 1, column) << 16
    })
}

/// Word offset in shared memory of every row, given by the first lanes.
fn rows(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    moved: MatrixMove,
    verb: &'static str,
) -> Result<[usize; LANES], Failure> {
    let slot = match verb {
        "ldmatrix" => cx.list(op)[usize::from(moved.count)],
        _ => cx.list(op)[0],
    };
    let at = addresses(warp, cx, slot, moved.wide_address, op.imm);
    let attempt = Attempt { verb, bytes: 16 };
    let mut out = [0; LANES];
    for lane in 0..8 * usize::from(moved.count) {
        if !at[lane].is_multiple_of(16) {
            return Err(attempt.misaligned(lane, at[lane], 16));
        }
        match resolve(warp, block, cx, moved.window, lane, at[lane], attempt)? {
            Place::Shared(offset) => out[lane] = offset as usize / 4,
            _ => return misuse(lane, format!("{verb} of {:#x}, outside shared memory", at[lane])),
        }
    }
    Ok(out)
}

pub(super) fn load(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    moved: MatrixMove,
) -> Result<(), Failure> {
    let rows = rows(warp, block, cx, op, moved, "ldmatrix")?;
    for index in 0..usize::from(moved.count) {
        let mut words = [0; LANES];
        for (row, &at) in words.chunks_exact_mut(4).zip(&rows[8 * index..]) {
            row.copy_from_slice(&block.shared[at..at + 4]);
        }
        if moved.transposed {
            words = transposed(&words);
        }
        warp.registers.set_word(cx.list(op)[index], &words, u32::MAX);
    }
    Ok(())
}

pub(super) fn store(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    moved: MatrixMove,
) -> Result<(), Failure> {
    let rows = rows(warp, block, cx, op, moved, "stmatrix")?;
    block.progressed = true;
    for index in 0..usize::from(moved.count) {
        let mut words = *warp.registers.word(&cx.program.constants, cx.list(op)[1 + index]);
        if moved.transposed {
            words = transposed(&words);
        }
        for (row, &at) in words.chunks_exact(4).zip(&rows[8 * index..]) {
            block.shared[at..at + 4].copy_from_slice(row);
        }
    }
    Ok(())
}

pub(super) fn transpose(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp) {
    let words = *warp.registers.word(&cx.program.constants, op.a);
    warp.registers.set_word(op.d, &transposed(&words), u32::MAX);
}
