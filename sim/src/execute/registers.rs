//! `setmaxnreg`: warps give registers back to their block, and take what others gave back.

use super::Next;
use crate::block_state::BlockState;
use crate::failure::{Failure, misuse};
use crate::warp::Warp;

/// Sets a warp's registers per thread. One that asks for more than its block has free waits until
/// other warps have given them back. Where `assembled` does not say what it began with, a warp may
/// have had fewer than the most that it is taken to have.
pub(super) fn set(
    warp: &mut Warp,
    block: &mut BlockState,
    count: u32,
    (raises, assembled): (bool, bool),
) -> Result<Next, Failure> {
    let (held, free) = (warp.budget, block.free_registers);
    if raises {
        if count < held && assembled {
            return misuse(0, format!("setmaxnreg.inc to {count} registers of {held}"));
        }
        let more = count.saturating_sub(held);
        if more > free {
            return Ok(Next::Retry(u32::MAX));
        }
        block.free_registers -= more;
    } else {
        let Some(fewer) = held.checked_sub(count) else {
            return misuse(0, format!("setmaxnreg.dec to {count} registers of {held}"));
        };
        block.free_registers += fewer;
    }
    warp.budget = count;
    block.progressed = true;
    Ok(Next::Go)
}
