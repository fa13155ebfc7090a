//! `cp.async`: copies that complete when waited for, or before the mbarrier arrival that signals
//! them.

use super::mbarrier::{change, locate};
use crate::access::Window;
use crate::aim::{Aim, Attempt, Place, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::copies::{Arrival, Copy, Pending};
use crate::failure::{Failure, Fault, misuse};
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::warp::Warp;
use std::sync::atomic::Ordering::Relaxed;

/// Checks and issues a copy without completing it.
pub(super) fn issue(
    warp: &mut Warp,
    block: &BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    bytes: u8,
    active: u32,
    pc: u32,
) -> Result<(), Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let to = *warp.registers.wide(constants, slots[0]);
    let from = *warp.registers.wide(constants, slots[1]);
    let sizes = *warp.registers.word(constants, slots[2]);
    let ignored = warp.registers.predicate(slots[3]);
    let size = u64::from(bytes);
    let mut reading = 0;
    let kept: [u8; LANES] = std::array::from_fn(|lane| {
        let kept = if ignored >> lane & 1 != 0 { 0 } else { sizes[lane].min(bytes.into()) as u8 };
        reading |= u32::from(kept != 0 && active >> lane & 1 != 0) << lane;
        kept
    });
    if let Some(lane) = lanes_of(active).find(|&lane| sizes[lane] > bytes.into()) {
        let found = sizes[lane];
        return misuse(lane, format!("cp.async of {bytes} bytes with a src-size of {found}"));
    }
    let attempt = Attempt { verb: "cp.async", bytes: size };
    let aims = [(Window::Shared, to, active), (Window::Global, from, reading)];
    for (window, addresses, active) in aims.into_iter().filter(|aim| aim.2 != 0) {
        let aim = Aim { window, addresses, active, attempt };
        aim.check_alignment(size)?;
        if aim.span(warp, block, cx).is_some() {
            continue;
        }
        for lane in lanes_of(active) {
            let bytes = if window == Window::Global { kept[lane].into() } else { size };
            let attempt = Attempt { bytes, ..attempt };
            let place = resolve(warp, block, cx, window, lane, addresses[lane], attempt)?;
            if let Place::Peer(..) = place {
                return misuse(lane, "cp.async to another block of the cluster");
            }
        }
    }
    let groups = warp.copies.groups;
    let mut left = active;
    while left != 0 {
        let group = groups[left.trailing_zeros() as usize];
        let mask = lanes_of(left).filter(|&lane| groups[lane] == group);
        let mask = mask.fold(0, |mask, lane| mask | 1 << lane);
        left &= !mask;
        let to = to.map(|address| block.peers.locate(address).1 as u32);
        let copy = Copy { mask, group, pc, bytes, from, to, kept };
        warp.copies.pending.push(Pending::Copy(Box::new(copy)));
    }
    Ok(())
}

pub(super) fn commit(warp: &mut Warp, active: u32) {
    for lane in lanes_of(active) {
        warp.copies.groups[lane] += 1;
    }
}

/// Completes the copies of some lanes.
fn land(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    copy: &Copy,
    lanes: u32,
) -> Result<(), Failure> {
    let words = usize::from(copy.bytes) / 4;
    for lane in lanes_of(lanes) {
        let kept = usize::from(copy.kept[lane]);
        let to = copy.to[lane] as usize / 4;
        let place = match kept {
            0 => None,
            _ => {
                let attempt = Attempt { verb: "cp.async", bytes: kept as u64 };
                Some(resolve(warp, block, cx, Window::Global, lane, copy.from[lane], attempt)?)
            }
        };
        for k in 0..words {
            let word = match place {
                Some(Place::Global(allocation, at)) if 4 * k < kept => {
                    let word = allocation.words[at as usize / 4 + k].load(Relaxed);
                    let bytes = kept - 4 * k;
                    if bytes < 4 { word & ((1 << (8 * bytes)) - 1) } else { word }
                }
                _ => 0,
            };
            block.shared[to + k] = word;
        }
    }
    block.progressed = true;
    Ok(())
}

/// Completes the copies that the lanes wait for: all, or all groups but the newest.
pub(super) fn wait(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    newest: Option<u32>,
    active: u32,
) -> Result<(), Failure> {
    let mut pending = std::mem::take(&mut warp.copies.pending);
    for item in &mut pending {
        let Pending::Copy(copy) = item else { continue };
        let groups = &warp.copies.groups;
        let over = |lane: &usize| newest.is_none_or(|newest| groups[*lane] - copy.group > newest);
        let lanes = lanes_of(copy.mask & active).filter(over).fold(0, |mask, l| mask | 1 << l);
        land(warp, block, cx, copy, lanes)?;
        copy.mask &= !lanes;
    }
    pending.retain(|item| !matches!(item, Pending::Copy(copy) if copy.mask == 0));
    warp.copies.pending = pending;
    Ok(())
}

/// Issues an arrival that follows the copies issued before it.
pub(super) fn arrive(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    (window, joins): (Window, bool),
    active: u32,
    pc: u32,
) -> Result<(), Failure> {
    let addresses = *warp.registers.wide(&cx.program.constants, cx.list(op)[0]);
    let mut at = [0; LANES];
    for lane in lanes_of(active) {
        let place = locate(warp, block, cx, window, lane, addresses[lane])?;
        if place.0 != block.peers.rank as usize {
            return misuse(lane, "cp.async.mbarrier.arrive on another block's barrier");
        }
        if joins {
            change(block, lane, place, |state| state.join())?;
        }
        at[lane] = place.1 as u32;
    }
    let arrival = Arrival { mask: active, pc, at };
    warp.copies.pending.push(Pending::Arrival(Box::new(arrival)));
    warp.copies.arrivals += 1;
    Ok(())
}

/// Completes the copies that arrivals wait for, and arrives; a warp that has exited completes them
/// all.
pub(super) fn advance(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
) -> Result<(), Box<Fault>> {
    let exited = warp.live == 0;
    if warp.copies.pending.is_empty() || warp.copies.arrivals == 0 && !exited {
        return Ok(());
    }
    let mut pending = std::mem::take(&mut warp.copies.pending);
    for index in 0..pending.len() {
        let (before, rest) = pending.split_at_mut(index);
        let Some(Pending::Arrival(arrival)) = rest.first() else { continue };
        for item in before {
            let Pending::Copy(copy) = item else { continue };
            let lanes = copy.mask & arrival.mask;
            land(warp, block, cx, copy, lanes).map_err(|f| f.at(copy.pc))?;
            copy.mask &= !lanes;
        }
        let rank = block.peers.rank as usize;
        if let Some(shadow) = &mut block.shadow {
            shadow.copies_arrive();
        }
        for lane in lanes_of(arrival.mask) {
            let at = (rank, arrival.at[lane].into());
            let odd = block.parity(at);
            if let Some(shadow) = &mut block.shadow {
                shadow.copy_arrived(warp.index as usize, lane, at, odd);
            }
            let changed = change(block, lane, at, |state| state.arrive(1, false));
            changed.map_err(|f| f.at(arrival.pc))?;
        }
    }
    pending.retain(|item| matches!(item, Pending::Copy(copy) if copy.mask != 0 && !exited));
    warp.copies.pending = pending;
    warp.copies.arrivals = 0;
    Ok(())
}
