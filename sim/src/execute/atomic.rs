//! Atomics, executed lane by lane.

use super::atomic_pair;
use crate::access::{Atomic, Modify};
use crate::aim::{Attempt, Place, addresses, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::error::ErrorKind;
use crate::failure::Failure;
use crate::half::{Bf16, F16, Half};
use crate::lanes::{canonical, half_max, half_min};
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::types::{Class, Type};
use crate::warp::Warp;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// New value of a memory cell.
pub(super) fn modified(atomic: Atomic, old: u64, b: u64, c: u64) -> u64 {
    let words = (old as u32, b as u32);
    match (atomic.modify, atomic.ty) {
        (Modify::Exchange, _) => b,
        (Modify::Compare, _) => {
            if old == b {
                c
            } else {
                old
            }
        }
        (Modify::And, _) => old & b,
        (Modify::Or, _) => old | b,
        (Modify::Xor, _) => old ^ b,
        (Modify::Increment, _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        (Modify::Decrement, _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        (Modify::Add, Type::F32) => {
            let sum = f32::from_bits(words.0) + f32::from_bits(words.1);
            canonical(sum).to_bits().into()
        }
        (Modify::Add, Type::F64) => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        (_, Type::F16) => half::<F16>(atomic.modify, old as u16, b as u16).into(),
        (_, Type::Bf16) => half::<Bf16>(atomic.modify, old as u16, b as u16).into(),
        (_, Type::F16x2) => pair::<F16>(atomic.modify, words.0, words.1).into(),
        (_, Type::Bf16x2) => pair::<Bf16>(atomic.modify, words.0, words.1).into(),
        (Modify::Add, Type::U64 | Type::S64) => old.wrapping_add(b),
        (Modify::Add, _) => words.0.wrapping_add(words.1).into(),
        (Modify::Min, Type::S32) => ((words.0 as i32).min(words.1 as i32) as u32).into(),
        (Modify::Max, Type::S32) => ((words.0 as i32).max(words.1 as i32) as u32).into(),
        (Modify::Min, Type::S64) => (old as i64).min(b as i64) as u64,
        (Modify::Max, Type::S64) => (old as i64).max(b as i64) as u64,
        (Modify::Min, _) => old.min(b),
        (Modify::Max, _) => old.max(b),
    }
}

fn half<H: Half>(modify: Modify, a: u16, b: u16) -> u16 {
    let (a, b) = (H::from_bits(a), H::from_bits(b));
    let value = match modify {
        Modify::Min => half_min(a, b, false),
        Modify::Max => half_max(a, b, false),
        _ => H::nearest(a.single() + b.single()),
    };
    value.bits()
}

fn pair<H: Half>(modify: Modify, a: u32, b: u32) -> u32 {
    let low = half::<H>(modify, a as u16, b as u16);
    let high = half::<H>(modify, (a >> 16) as u16, (b >> 16) as u16);
    u32::from(low) | u32::from(high) << 16
}

/// Updates a word atomically; returns the old value.
pub(super) fn update(word: &AtomicU32, f: impl Fn(u32) -> u32) -> u32 {
    let mut old = word.load(Relaxed);
    loop {
        match word.compare_exchange_weak(old, f(old), Relaxed, Relaxed) {
            Ok(old) => return old,
            Err(now) => old = now,
        }
    }
}

fn update_plain(word: &mut u32, f: impl Fn(u32) -> u32) -> u32 {
    let old = *word;
    *word = f(old);
    old
}

pub(super) fn atomic(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    atomic: Atomic,
    active: u32,
) -> Result<(), Failure> {
    if atomic.ty == Type::B128 {
        return atomic_pair::pair(warp, block, cx, op, atomic, active);
    }
    let constants = &cx.program.constants;
    let bytes = u64::from(atomic.ty.bytes());
    let attempt = Attempt { verb: "atomic", bytes };
    let at = addresses(warp, cx, op.a, atomic.wide_address, op.imm);
    let wide = atomic.ty.class() == Class::Wide;
    let operands = |slot| -> [u64; LANES] {
        match wide {
            true => *warp.registers.wide(constants, slot),
            false => warp.registers.word(constants, slot).map(u64::from),
        }
    };
    let b = operands(op.b);
    let c = if atomic.modify == Modify::Compare { operands(op.c) } else { [0; LANES] };
    let mut out = [0_u64; LANES];
    let _one_step = wide.then(|| cx.memory.lock_wide());
    for lane in (0..LANES).filter(|lane| active >> lane & 1 != 0) {
        if !at[lane].is_multiple_of(bytes) {
            return Err(attempt.misaligned(lane, at[lane], bytes));
        }
        let place = resolve(warp, block, cx, atomic.window, lane, at[lane], attempt)?;
        let f = |old: u64| modified(atomic, old, b[lane], c[lane]);
        let old = match wide {
            true => wide_cell(warp, block, &place, lane, f)?,
            false => {
                let kept = if bytes == 2 { 0xffff } else { u32::MAX };
                word_cell(warp, block, &place, lane, kept, f)?
            }
        };
        let cell = if bytes == 2 { b[lane] & 0xffff } else { b[lane] };
        let changed = modified(atomic, old, cell, c[lane]) != old;
        block.progressed |= changed;
        out[lane] = old;
    }
    if wide {
        warp.registers.set_wide(op.d, &out, active);
    } else {
        warp.registers.set_word(op.d, &out.map(|value| value as u32), active);
    }
    Ok(())
}

fn to_parameter(lane: usize) -> Failure {
    Failure::new(ErrorKind::OutOfBounds, lane, "atomic on a parameter")
}

/// Updates a word or half of one.
fn word_cell(
    warp: &mut Warp,
    block: &mut BlockState,
    place: &Place<'_>,
    lane: usize,
    kept: u32,
    f: impl Fn(u64) -> u64,
) -> Result<u64, Failure> {
    let cell = |at: u64| (at as usize / 4, 8 * (at % 4) as u32);
    let change = |shift: u32| {
        let f = &f;
        move |word: u32| {
            let new = f(u64::from(word >> shift & kept)) as u32 & kept;
            (word & !(kept << shift)) | new << shift
        }
    };
    let (old, shift) = match *place {
        Place::Global(allocation, at) => {
            let (index, shift) = cell(at);
            (update(&allocation.words[index], change(shift)), shift)
        }
        Place::Shared(at) => {
            let (index, shift) = cell(at);
            (update_plain(&mut block.shared[index], change(shift)), shift)
        }
        Place::Peer(rank, at) => {
            let (index, shift) = cell(at);
            (update_plain(&mut block.peers.shared[rank][index], change(shift)), shift)
        }
        Place::Local(at) => {
            let (index, shift) = cell(at);
            (update_plain(&mut warp.local[index], change(shift)), shift)
        }
        Place::Param(_) => return Err(to_parameter(lane)),
    };
    Ok(u64::from(old >> shift & kept))
}

/// Updates two words under the lock that makes 64-bit accesses atomic.
fn wide_cell(
    warp: &mut Warp,
    block: &mut BlockState,
    place: &Place<'_>,
    lane: usize,
    f: impl Fn(u64) -> u64,
) -> Result<u64, Failure> {
    if let Place::Global(allocation, at) = *place {
        let words = &allocation.words[at as usize / 4..][..2];
        let old = u64::from(words[0].load(Relaxed)) | u64::from(words[1].load(Relaxed)) << 32;
        let new = f(old);
        words[0].store(new as u32, Relaxed);
        words[1].store((new >> 32) as u32, Relaxed);
        return Ok(old);
    }
    let words = match *place {
        Place::Shared(at) => &mut block.shared[at as usize / 4..][..2],
        Place::Peer(rank, at) => &mut block.peers.shared[rank][at as usize / 4..][..2],
        Place::Local(at) => &mut warp.local[at as usize / 4..][..2],
        _ => return Err(to_parameter(lane)),
    };
    let old = u64::from(words[0]) | u64::from(words[1]) << 32;
    let new = f(old);
    words[0] = new as u32;
    words[1] = (new >> 32) as u32;
    Ok(old)
}
