//! Cluster addresses, the cluster barrier, and lane election.

use super::Next;
use crate::aim::lanes_of;
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::memory::{RANK_BYTES, SHARED_BASE, WINDOW_BYTES};
use crate::op::MicroOp;
use crate::peers::window_of;
use crate::registers::LANES;
use crate::warp::{Wait, Warp};

pub(super) fn map_address(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<(), Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let addresses = *warp.registers.wide(constants, slots[1]);
    let ranks = *warp.registers.word(constants, slots[2]);
    let mut out = [0; LANES];
    for lane in lanes_of(active) {
        let (address, rank, size) = (addresses[lane], ranks[lane], block.peers.size);
        if rank >= size {
            return misuse(lane, format!("mapa to block {rank} of a cluster of {size}"));
        }
        let window = address & !(WINDOW_BYTES - 1);
        if window != SHARED_BASE && window != 0 {
            return misuse(lane, format!("mapa of {address:#x}, outside shared memory"));
        }
        out[lane] = window + address % RANK_BYTES + window_of(rank);
    }
    warp.registers.set_wide(slots[0], &out, active);
    Ok(())
}

pub(super) fn address_rank(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) {
    let slots = cx.list(op);
    let addresses = warp.registers.wide(&cx.program.constants, slots[1]);
    let ranks = addresses.map(|address| block.peers.locate(address % WINDOW_BYTES).0 as u32);
    warp.registers.set_word(slots[0], &ranks, active);
}

pub(super) fn arrive(warp: &mut Warp, aligned: bool, active: u32) -> Result<Next, Failure> {
    if aligned && active != warp.live {
        return Ok(Next::WaitLanes(active));
    }
    let twice = active & warp.cluster_owed;
    if twice != 0 {
        let lane = twice.trailing_zeros() as usize;
        return misuse(lane, "barrier.cluster.arrive again without barrier.cluster.wait");
    }
    warp.cluster_arrived |= active;
    warp.cluster_owed |= active;
    Ok(Next::Go)
}

pub(super) fn wait(warp: &mut Warp, aligned: bool, active: u32) -> Result<Next, Failure> {
    if aligned && active != warp.live {
        return Ok(Next::WaitLanes(active));
    }
    let early = active & !warp.cluster_owed;
    if early != 0 {
        let lane = early.trailing_zeros() as usize;
        return misuse(lane, "barrier.cluster.wait without barrier.cluster.arrive");
    }
    if active & warp.cluster_arrived != 0 {
        return Ok(Next::WaitBarrier(active, Wait::CLUSTER));
    }
    warp.cluster_owed &= !active;
    Ok(Next::Go)
}

pub(super) fn elect(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<Next, Failure> {
    let slots = cx.list(op);
    let members = *warp.registers.word(&cx.program.constants, slots[2]);
    let named = lanes_of(active).fold(0, |all, lane| all | members[lane]);
    if named & warp.live & !active != 0 {
        return Ok(Next::WaitLanes(active));
    }
    if let Some(lane) = lanes_of(active).find(|&lane| members[lane] >> lane & 1 == 0) {
        return misuse(lane, format!("the member mask {:#010x} lacks lane {lane}", members[lane]));
    }
    let leaders = members.map(|members| (members & active).trailing_zeros());
    let chosen = lanes_of(active).filter(|&lane| leaders[lane] as usize == lane);
    let chosen = chosen.fold(0, |mask, lane| mask | 1 << lane);
    warp.registers.set_word(slots[0], &leaders, active);
    warp.registers.set_predicate(slots[1], chosen, active);
    Ok(Next::Go)
}
