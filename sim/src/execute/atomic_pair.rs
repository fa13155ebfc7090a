//! Exchange and compare-and-swap of 128 bits.

use crate::access::{Atomic, Modify};
use crate::aim::{Attempt, Place, addresses, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::error::ErrorKind;
use crate::failure::Failure;
use crate::op::MicroOp;
use crate::registers::{LANES, Slot};
use crate::warp::Warp;
use std::sync::atomic::Ordering::Relaxed;

const BYTES: u64 = 16;

/// Executes the op lane by lane, under the lock that makes wide accesses atomic.
pub(super) fn pair(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    atomic: Atomic,
    active: u32,
) -> Result<(), Failure> {
    let attempt = Attempt { verb: "atomic", bytes: BYTES };
    let at = addresses(warp, cx, op.a, atomic.wide_address, op.imm);
    let value = |low: Slot, high: Slot| -> [u128; LANES] {
        let half = |slot| warp.registers.wide(&cx.program.constants, slot);
        let (low, high) = (half(low), half(high));
        std::array::from_fn(|lane| u128::from(low[lane]) | u128::from(high[lane]) << 64)
    };
    let compares = atomic.modify == Modify::Compare;
    let first = value(op.b, op.c);
    let second = if compares { value(cx.list(op)[0], cx.list(op)[1]) } else { first };
    let mut out = [0_u128; LANES];
    let _one_step = cx.memory.lock_wide();
    for lane in lanes_of(active) {
        if !at[lane].is_multiple_of(BYTES) {
            return Err(attempt.misaligned(lane, at[lane], BYTES));
        }
        let f = |old: u128| if compares && old != first[lane] { old } else { second[lane] };
        let place = resolve(warp, block, cx, atomic.window, lane, at[lane], attempt)?;
        let words = match place {
            Place::Global(allocation, at) => {
                let words = &allocation.words[at as usize / 4..][..4];
                let old = joined(words.iter().map(|word| word.load(Relaxed)));
                let new = f(old);
                for (index, word) in words.iter().enumerate() {
                    word.store((new >> (32 * index)) as u32, Relaxed);
                }
                block.progressed |= new != old;
                out[lane] = old;
                continue;
            }
            Place::Shared(at) => &mut block.shared[at as usize / 4..][..4],
            Place::Peer(rank, at) => &mut block.peers.shared[rank][at as usize / 4..][..4],
            Place::Local(_) | Place::Param(_) => {
                let text = "atomic of 128 bits on local memory or a parameter";
                return Err(Failure::new(ErrorKind::OutOfBounds, lane, text));
            }
        };
        let old = joined(words.iter().copied());
        let new = f(old);
        for (index, word) in words.iter_mut().enumerate() {
            *word = (new >> (32 * index)) as u32;
        }
        block.progressed |= new != old;
        out[lane] = old;
    }
    warp.registers.set_wide(op.d, &out.map(|value| value as u64), active);
    warp.registers.set_wide(op.e, &out.map(|value| (value >> 64) as u64), active);
    Ok(())
}

fn joined(words: impl DoubleEndedIterator<Item = u32>) -> u128 {
    words.rev().fold(0, |value, word| value << 32 | u128::from(word))
}
