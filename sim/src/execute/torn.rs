//! Strong vector stores. PTX takes them as one store per element, in no order, so another thread
//! may see some elements without the others.

use super::access;
use super::next::{Next, POLL_MAX};
use crate::access::{Access, Window};
use crate::aim::{Aim, Attempt, addresses};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, Fault};
use crate::op::MicroOp;
use crate::warp::{Late, Warp};

/// Stores some elements and leaves the others for the warp's next slice, or stores all of them, as
/// drawn for this turn of the block.
pub(super) fn store(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    (active, pc): (u32, u32),
) -> Result<Next, Failure> {
    let drawn = (block.random ^ u64::from(warp.index)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if access.single || matches!(access.window, Window::Local) || drawn & 1 != 0 {
        access::store(warp, block, cx, op, access, active)?;
        return Ok(Next::Go);
    }
    let bytes = u64::from(access.bytes) * u64::from(access.count);
    let attempt = Attempt { verb: "store", bytes };
    let at = addresses(warp, cx, op.a, access.wide_address, op.imm);
    Aim { window: access.window, addresses: at, active, attempt }.check_alignment(bytes)?;
    let cut = 1 + (drawn >> 2) as u8 % (access.count - 1);
    let (first, rest) = match drawn & 2 {
        0 => (0..cut, cut..access.count),
        _ => (cut..access.count, 0..cut),
    };
    elements(warp, block, cx, op, access, (first, active))?;
    warp.late = Some(Late { pc, active, access, elements: rest });
    Ok(Next::Poll(POLL_MAX))
}

/// Stores the elements that the last slice left.
#[cold]
pub(super) fn finish(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    late: Late,
) -> Result<(), Box<Fault>> {
    let Late { pc, active, access, elements: rest } = late;
    let op = &cx.program.ops[pc as usize];
    block.progressed = true;
    elements(warp, block, cx, op, access, (rest, active)).map_err(|failure| failure.at(pc))
}

fn elements(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    access: Access,
    (range, active): (std::ops::Range<u8>, u32),
) -> Result<(), Failure> {
    for element in range {
        let skipped = i64::from(element) * i64::from(access.bytes);
        let list = op.list + u32::from(element);
        let part = MicroOp { imm: op.imm.wrapping_add(skipped), list, ..*op };
        access::store(warp, block, cx, &part, Access { count: 1, ..access }, active)?;
    }
    Ok(())
}
