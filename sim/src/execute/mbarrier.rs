//! `mbarrier`: barrier objects in shared memory.

use super::{Next, POLL_STRONG};
use crate::access::Window;
use crate::aim::{Attempt, Place, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::mbarrier::{BarrierAddress, Mbarrier, Refusal};
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::unit::{BarrierAction, MemoryBarrier};
use crate::warp::Warp;

fn load(block: &mut BlockState, (rank, at): BarrierAddress) -> Result<Mbarrier, Refusal> {
    let words = &block.shared_of(rank)[at as usize / 4..][..2];
    Mbarrier::decode(u64::from(words[0]) | u64::from(words[1]) << 32)
}

fn store(block: &mut BlockState, (rank, at): BarrierAddress, bits: u64) {
    let words = &mut block.shared_of(rank)[at as usize / 4..][..2];
    words[0] = bits as u32;
    words[1] = (bits >> 32) as u32;
    block.progressed = true;
}

fn refused<T>(lane: usize, (_, at): BarrierAddress, refusal: Refusal) -> Result<T, Failure> {
    misuse(lane, format!("mbarrier at shared offset {at:#x}: {refusal}"))
}

/// Updates an mbarrier; returns its previous state.
pub(super) fn change(
    block: &mut BlockState,
    lane: usize,
    at: BarrierAddress,
    f: impl FnOnce(&mut Mbarrier) -> Result<(), Refusal>,
) -> Result<u64, Failure> {
    let changed = load(block, at).and_then(|mut barrier| {
        let before = barrier.encode();
        f(&mut barrier).map(|()| (before, barrier))
    });
    match changed {
        Ok((before, barrier)) => {
            store(block, at, barrier.encode());
            Ok(before)
        }
        Err(refusal) => refused(lane, at, refusal),
    }
}

/// Location of a lane's mbarrier.
pub(super) fn locate(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    window: Window,
    lane: usize,
    address: u64,
) -> Result<BarrierAddress, Failure> {
    let attempt = Attempt { verb: "mbarrier", bytes: 8 };
    if !address.is_multiple_of(8) {
        return Err(attempt.misaligned(lane, address, 8));
    }
    match resolve(warp, block, cx, window, lane, address, attempt)? {
        Place::Shared(at) => Ok((block.peers.rank as usize, at)),
        Place::Peer(rank, at) => Ok((rank, at)),
        _ => misuse(lane, format!("mbarrier at {address:#x}, outside shared memory")),
    }
}

pub(super) fn step(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    barrier: MemoryBarrier,
    active: u32,
) -> Result<Next, Failure> {
    let constants = &cx.program.constants;
    let slots = cx.list(op);
    match barrier.action {
        BarrierAction::Arrive { drops, no_complete } => {
            let addresses = *warp.registers.wide(constants, slots[1]);
            let counts = *warp.registers.word(constants, slots[2]);
            let bytes = *warp.registers.word(constants, slots[3]);
            let mut out = [0; LANES];
            for lane in lanes_of(active) {
                let at = locate(warp, block, cx, barrier.window, lane, addresses[lane])?;
                out[lane] = change(block, lane, at, |state| {
                    if bytes[lane] != 0 {
                        state.transfer(bytes[lane].into())?;
                    }
                    if no_complete && state.completes(counts[lane]) {
                        return Err(Refusal::Completes);
                    }
                    state.arrive(counts[lane], drops)
                })?;
            }
            warp.registers.set_wide(slots[0], &out, active);
            Ok(Next::Go)
        }
        BarrierAction::TestState | BarrierAction::TestParity => {
            test(warp, block, cx, op, barrier, active)
        }
        action => {
            let addresses = *warp.registers.wide(constants, slots[0]);
            let numbers = match action {
                BarrierAction::Invalidate => [0; LANES],
                _ => *warp.registers.word(constants, slots[1]),
            };
            for lane in lanes_of(active) {
                let at = locate(warp, block, cx, barrier.window, lane, addresses[lane])?;
                set(block, lane, at, action, numbers[lane])?;
            }
            Ok(Next::Go)
        }
    }
}

/// Operations without a result.
fn set(
    block: &mut BlockState,
    lane: usize,
    at: BarrierAddress,
    action: BarrierAction,
    number: u32,
) -> Result<(), Failure> {
    let bytes = i64::from(number);
    match action {
        BarrierAction::Initialise => match Mbarrier::new(number) {
            Ok(barrier) => store(block, at, barrier.encode()),
            Err(refusal) => return refused(lane, at, refusal),
        },
        BarrierAction::Invalidate => {
            change(block, lane, at, |_| Ok(()))?;
            store(block, at, 0);
        }
        BarrierAction::Expect => drop(change(block, lane, at, |state| state.transfer(bytes))?),
        _ => drop(change(block, lane, at, |state| state.transfer(-bytes))?),
    }
    Ok(())
}

fn test(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    barrier: MemoryBarrier,
    active: u32,
) -> Result<Next, Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let addresses = *warp.registers.wide(constants, slots[1]);
    let odd: [bool; LANES] = match barrier.action {
        BarrierAction::TestParity => {
            warp.registers.word(constants, slots[2]).map(|word| word & 1 != 0)
        }
        _ => {
            let states = *warp.registers.wide(constants, slots[2]);
            let mut odd = [false; LANES];
            for lane in lanes_of(active) {
                let Ok(state) = Mbarrier::decode(states[lane]) else {
                    return misuse(lane, "the state is not one that an arrival gave");
                };
                odd[lane] = state.odd;
            }
            odd
        }
    };
    let mut over = 0;
    for lane in lanes_of(active) {
        let at = locate(warp, block, cx, barrier.window, lane, addresses[lane])?;
        if at.0 != block.peers.rank as usize {
            return misuse(lane, "a wait for a barrier of another block");
        }
        match load(block, at) {
            Ok(state) if state.odd != odd[lane] => {
                block.tensor.observed(at, odd[lane]);
                over |= 1 << lane;
            }
            Ok(_) => {}
            Err(refusal) => return refused(lane, at, refusal),
        }
    }
    warp.registers.set_predicate(slots[0], over, active);
    Ok(if over == active { Next::Go } else { Next::Poll(POLL_STRONG) })
}

pub(super) fn pending_count(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<(), Failure> {
    let slots = cx.list(op);
    let states = *warp.registers.wide(&cx.program.constants, slots[1]);
    let mut out = [0; LANES];
    for lane in lanes_of(active) {
        match Mbarrier::decode(states[lane]) {
            Ok(state) => out[lane] = state.pending,
            Err(_) => return misuse(lane, "the state is not one that an arrival gave"),
        }
    }
    warp.registers.set_word(slots[0], &out, active);
    Ok(())
}
