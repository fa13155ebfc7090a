//! Execution of a warp for a time slice.

#![expect(
    unsafe_code,
    reason = "lane operations are compiled for the vector width of the processor"
)]

mod access;
mod atomic;
mod atomic_pair;
mod bulk;
mod cluster;
mod copy;
mod exchange;
mod fragments;
mod heap;
mod matrix;
mod mbarrier;
mod multiply;
mod next;
mod print;
mod registers;
mod scaled;
mod sparse;
mod special;
mod tensor;
mod tensor_map;
mod tensor_multiply;
mod tile;
mod torn;
mod unit;
mod warpgroup;

use crate::block_state::BlockState;
use crate::bulk::Leak;
use crate::context::Context;
use crate::error::ErrorKind;
use crate::failure::{Failure, Fault, first_lane};
use crate::lanes::leveled;
use crate::op::{Barrier, Kind, MicroOp};
use crate::warp::{At, Running, Wait, Warp};
use crate::watch::Watch;
use next::{Next, POLL_ATOMIC, POLL_MAX, POLL_STRONG};
pub(crate) use tensor::{moved_cells, reads as tensor_reads, touched as tensor_touched};

/// Instructions per slice.
const SLICE: u32 = 4096;
/// Reason for the end of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// All lanes have exited.
    Exited,
    /// All remaining lanes are waiting.
    Parked,
    /// The lanes are polling.
    Polled,
    /// The slice is exhausted.
    Used,
}

leveled! {
    cx.has_v3 =>
    /// Runs the warp until it exits, waits, polls or exhausts its slice.
    pub(crate) fn run<const WATCHED: bool>(
        warp: &mut Warp,
        block: &mut BlockState,
        cx: &Context<'_>,
        watch: &mut Watch,
    ) -> Result<Stop, Box<Fault>> {
        slice::<WATCHED>(warp, block, cx, watch)
    }
}

#[inline(always)]
fn slice<const WATCHED: bool>(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    watch: &mut Watch,
) -> Result<Stop, Box<Fault>> {
    if let Some(late) = warp.late.take() {
        torn::finish(warp, block, cx, late)?;
    }
    let program = cx.program;
    let Some(Running { mut pc, mut mask, mut limit }) = warp.pick() else {
        return Ok(if warp.live == 0 { Stop::Exited } else { Stop::Parked });
    };
    let slice = cx.instructions_left().min(SLICE.into()) as u32;
    let (mut left, mut polls) = (slice, 0);
    let mut lanes = 0_u64;
    let stop = loop {
        if pc >= limit {
            Running { pc, mask, limit } = warp.settle(pc, mask);
        }
        if left == 0 || polls >= POLL_MAX {
            let others = !warp.splits.is_empty();
            warp.suspend(pc, mask, Wait::Ready);
            if let Some(split) = warp.splits.last_mut() {
                split.yielded = others;
            }
            break if polls >= POLL_MAX { Stop::Polled } else { Stop::Used };
        }
        left -= 1;
        let op = &program.ops[pc as usize];
        let active = mask & warp.registers.predicate(op.guard);
        if WATCHED {
            watch.before(warp, block, cx, At { pc, mask, active });
        }
        if active == 0 {
            pc += 1;
            continue;
        }
        lanes += u64::from(active.count_ones());
        let (gone, weight) = match op.kind {
            Kind::Lane(handler) => {
                // SAFETY: `lanes::handler`, the only source of handlers, returns functions whose
                // instructions this processor supports.
                unsafe { handler(&mut warp.registers, &program.constants, op, active) };
                pc += 1;
                continue;
            }
            Kind::Branch => {
                let target = op.imm as u32;
                if active == mask {
                    pc = target;
                } else {
                    warp.suspend(target, active, Wait::Ready);
                    (pc, mask) = (pc + 1, mask & !active);
                }
                if !warp.splits.is_empty() {
                    Running { pc, mask, limit } = warp.settle(pc, mask);
                }
                continue;
            }
            Kind::Load(access)
                if access.is_shared_word()
                    && active == u32::MAX
                    && access::load_shared(warp, block, cx, op, access) =>
            {
                pc += 1;
                continue;
            }
            _ => {
                let at = At { pc, mask, active };
                other::<WATCHED>(warp, block, cx, watch, at).map_err(|f| f.at(pc))?
            }
        };
        polls += weight;
        pc += 1;
        if gone == 0 {
            continue;
        }
        // Some lanes left; the rest continue.
        mask &= !gone;
        if mask != 0 {
            Running { pc, mask, limit } = warp.settle(pc, mask);
            continue;
        }
        match warp.pick() {
            Some(running) => Running { pc, mask, limit } = running,
            None if warp.live == 0 => break Stop::Exited,
            None => break Stop::Parked,
        }
    };
    cx.count_instructions((slice - left).into());
    block.warp_instructions += u64::from(slice - left);
    block.lane_instructions += lanes;
    Ok(stop)
}

/// Executes an op that is neither lane-wise nor a branch; returns the lanes that do not continue
/// after it, and its poll weight.
#[inline(always)]
fn other<const WATCHED: bool>(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    watch: &mut Watch,
    at: At,
) -> Result<(u32, u32), Failure> {
    let At { pc, active, .. } = at;
    let op = &cx.program.ops[pc as usize];
    match op.kind {
        Kind::BranchIndexed => {
            branch_indexed(warp, cx, op, active)?;
            return Ok((active, 0));
        }
        Kind::Exit => {
            warp.leave(active);
            if warp.live == 0 {
                block.products_issued[warp.index as usize] = u32::MAX;
            }
            block.barrier_changed = true;
            return Ok((active, 0));
        }
        _ => {}
    }
    let next = step(warp, block, cx, op, active, pc)?;
    if WATCHED {
        watch.after(warp, block, cx, at, matches!(next, Next::WaitLanes(_) | Next::Retry(_)));
    }
    Ok(match next {
        Next::Go => (0, 0),
        Next::Poll(weight) => (0, weight),
        Next::Retry(lanes) => {
            warp.suspend(pc, lanes, Wait::Ready);
            (lanes, POLL_MAX)
        }
        Next::WaitLanes(lanes) => {
            warp.suspend(pc, lanes, Wait::Lanes);
            (lanes, 0)
        }
        Next::WaitBarrier(lanes, id) => {
            warp.suspend(pc, lanes, Wait::Barrier(id));
            (lanes, 0)
        }
    })
}

/// Completes asynchronous copies, possible between any two slices; an error names its warp.
pub(crate) fn advance(
    block: &mut BlockState,
    warps: &mut [Warp],
    cx: &Context<'_>,
    random: u64,
) -> Result<(), (usize, Box<Fault>)> {
    for (index, warp) in warps.iter_mut().enumerate() {
        copy::advance(warp, block, cx).map_err(|fault| (index, fault))?;
    }
    // The tensor core lags behind by up to three operations.
    let work = block.tensor.queue.len().saturating_sub(random as usize % 4);
    tensor::advance(block, cx, work.max(1)).map_err(|(warp, fault)| (warp as usize, fault))?;
    bulk::advance(block, cx, random).map_err(|(warp, fault)| (warp as usize, fault))
}

/// Completes the pending copies of a block that has exited.
pub(crate) fn finish(
    block: &mut BlockState,
    cx: &Context<'_>,
) -> Result<Vec<Leak>, (usize, Box<Fault>)> {
    tensor::advance(block, cx, usize::MAX).map_err(|(warp, fault)| (warp as usize, fault))?;
    if let Some(left) = block.tensor.allocations.first() {
        let text = format!("{} columns of tensor memory are not deallocated", left.count);
        let fault = Failure::new(ErrorKind::Misuse, 0, text).at(left.pc);
        return Err((left.warp as usize, fault));
    }
    bulk::finish(block, cx).map_err(|(warp, fault)| (warp as usize, fault))
}

/// Branches each lane to its target.
fn branch_indexed(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<(), Failure> {
    let index = *warp.registers.word(&cx.program.constants, op.a);
    let first = op.list as usize;
    let targets = &cx.program.targets[first..first + op.imm as usize];
    for lane in (0..32).filter(|lane| active >> lane & 1 != 0) {
        let Some(&target) = targets.get(index[lane] as usize) else {
            let message = format!("branch index {} of {}", index[lane], targets.len());
            return Err(Failure::new(ErrorKind::OutOfBounds, lane, message));
        };
        let same =
            |split: &&mut crate::warp::Split| split.pc == target && split.wait == Wait::Ready;
        match warp.splits.iter_mut().find(same) {
            Some(split) => split.mask |= 1 << lane,
            None => warp.suspend(target, 1 << lane, Wait::Ready),
        }
    }
    Ok(())
}

/// Arrives at a barrier of the block.
fn arrive(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    barrier: Barrier,
    active: u32,
) -> Result<Next, Failure> {
    if barrier.aligned && active != warp.live {
        return Ok(Next::WaitLanes(active));
    }
    let constants = &cx.program.constants;
    let lane = first_lane(active);
    let id = warp.registers.word(constants, op.a)[lane];
    let threads = warp.registers.word(constants, op.b)[lane];
    let predicate = warp.registers.predicate(op.c) & active;
    if id >= 16 {
        let message = format!("barrier {id} of 16");
        return Err(Failure::new(ErrorKind::OutOfBounds, lane, message));
    }
    block.arrive(warp.index, id as usize, threads, active, predicate);
    Ok(if barrier.wait { Next::WaitBarrier(active, id as u8) } else { Next::Go })
}

/// Executes an op that is neither lane-wise nor a branch.
fn step(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
    pc: u32,
) -> Result<Next, Failure> {
    match op.kind {
        Kind::Load(access) => {
            access::load(warp, block, cx, op, access, active)?;
            Ok(if access.strong { Next::Poll(POLL_STRONG) } else { Next::Go })
        }
        Kind::Store(access) => {
            block.progressed = true;
            if access.strong && access.count > 1 {
                return torn::store(warp, block, cx, op, access, (active, pc));
            }
            access::store(warp, block, cx, op, access, active)?;
            Ok(Next::Go)
        }
        Kind::Atomic(atomic) => {
            use crate::access::Modify::{Compare, Exchange};
            atomic::atomic(warp, block, cx, op, atomic, active)?;
            let spins = matches!(atomic.modify, Compare | Exchange);
            Ok(Next::Poll(if spins { POLL_STRONG } else { POLL_ATOMIC }))
        }
        Kind::Special(_) | Kind::SpecialWide(_) | Kind::VariableAddress | Kind::ActiveMask => {
            special::write(warp, block, cx, op, active);
            Ok(Next::Go)
        }
        Kind::Shuffle(_)
        | Kind::Vote(_)
        | Kind::MatchWord { .. }
        | Kind::MatchWide { .. }
        | Kind::Reduce { .. }
        | Kind::ReduceFloat { .. }
        | Kind::WarpSync => exchange::synchronised(warp, cx, op, active),
        Kind::Barrier(barrier) => arrive(warp, block, cx, op, barrier, active),
        Kind::Sleep => Ok(Next::Poll(POLL_STRONG)),
        Kind::Fence | Kind::GridWait => Ok(Next::Go),
        Kind::Unit(which) => unit::step(warp, block, cx, op, which, (active, pc)),
        Kind::Trap => {
            let text = match op.imm {
                0 => "trap",
                _ => "an indirect call of no function of its prototype, or of one under way",
            };
            Err(Failure::new(ErrorKind::Trap, first_lane(active), text))
        }
        Kind::Lane(_) | Kind::Branch | Kind::BranchIndexed | Kind::Exit => Ok(Next::Go),
    }
}
