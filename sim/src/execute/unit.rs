//! Ops of the units: their operands, and which file runs which.

use super::{Failure, Next, matrix, multiply};
use crate::block::BlockState;
use crate::error::ErrorKind;
use crate::launch::Context;
use crate::op::MicroOp;
use crate::registers::Slot;
use crate::unit::Unit;
use crate::warp::Warp;

/// An op's list: what it writes, then what it reads.
pub(super) fn list<'a>(cx: &Context<'a>, op: &MicroOp) -> &'a [Slot] {
    &cx.program.lists[op.list as usize..]
}

/// A failure for what breaks an op's rules.
pub(super) fn misuse<T>(lane: usize, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure { kind: ErrorKind::Misuse, message: message.into(), lane })
}

/// Whether a `.sync.aligned` op of the whole warp can run: none of its lanes may have exited.
fn whole(warp: &Warp, active: u32) -> Result<bool, Failure> {
    if active != u32::MAX && active == warp.live {
        let count = active.count_ones();
        return misuse(
            active.trailing_zeros() as usize & 31,
            format!("a matrix instruction needs the 32 lanes of a warp and has {count}"),
        );
    }
    Ok(active == u32::MAX)
}

pub(super) fn step(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    unit: Unit,
    active: u32,
) -> Result<Next, Failure> {
    match unit {
        Unit::LoadMatrix(_) | Unit::StoreMatrix(_) | Unit::TransposeMatrix | Unit::Multiply(_) => {
            if !whole(warp, active)? {
                return Ok(Next::WaitLanes(active));
            }
            match unit {
                Unit::LoadMatrix(moved) => matrix::load(warp, block, cx, op, moved)?,
                Unit::StoreMatrix(moved) => matrix::store(warp, block, cx, op, moved)?,
                Unit::Multiply(product) => multiply::multiply(warp, cx, op, product),
                _ => matrix::transpose(warp, cx, op),
            }
            Ok(Next::Go)
        }
    }
}
