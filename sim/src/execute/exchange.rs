//! Exchanges between the lanes of a warp.

use super::next::Next;
use crate::access::Modify;
use crate::context::Context;
use crate::error::ErrorKind;
use crate::failure::{Failure, first_lane};
use crate::lanes::canonical;
use crate::op::{Kind, MicroOp, Shuffle, Vote};
use crate::registers::{LANES, Slot};
use crate::shuffle::sources;
use crate::warp::Warp;
use std::cmp::Ordering;

fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
}

/// Executes the op if all member lanes are present, otherwise waits for them.
pub(super) fn synchronised(
    warp: &mut Warp,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<Next, Failure> {
    let slot = match op.kind {
        Kind::Shuffle(_) => cx.program.lists[op.list as usize],
        Kind::WarpSync => op.a,
        _ => op.b,
    };
    let members = *warp.registers.word(&cx.program.constants, slot);
    let named = lanes_of(active).fold(0, |all, lane| all | members[lane]);
    if named & warp.live & !active != 0 {
        return Ok(Next::WaitLanes(active));
    }
    if let Some(lane) = lanes_of(active).find(|&lane| members[lane] >> lane & 1 == 0) {
        let message = format!("the member mask {:#010x} lacks lane {lane}", members[lane]);
        return Err(Failure::new(ErrorKind::DivergentBarrier, lane, message));
    }
    match op.kind {
        Kind::Shuffle(mode) => shuffle(warp, cx, op, mode, active),
        Kind::Vote(mode) => vote(warp, op, mode, &members, active),
        Kind::MatchWord { all } => {
            let values = warp.registers.word(&cx.program.constants, op.a).map(u64::from);
            matching(warp, op, &values, &members, all, active);
        }
        Kind::MatchWide { all } => {
            let values = *warp.registers.wide(&cx.program.constants, op.a);
            matching(warp, op, &values, &members, all, active);
        }
        Kind::Reduce { modify, signed } => {
            let values = *warp.registers.word(&cx.program.constants, op.a);
            let mut out = [0; LANES];
            for lane in lanes_of(active) {
                out[lane] = reduced(modify, signed, &values, members[lane] & active);
            }
            warp.registers.set_word(op.d, &out, active);
        }
        Kind::ReduceFloat { max, magnitude, nan } => {
            let values = *warp.registers.word(&cx.program.constants, op.a);
            let mut out = [0; LANES];
            for lane in lanes_of(active) {
                let of =
                    lanes_of(members[lane] & active).map(|other| f32::from_bits(values[other]));
                let of = of.map(|value| if magnitude { value.abs() } else { value });
                out[lane] = extreme(of, max, nan).to_bits();
            }
            warp.registers.set_word(op.d, &out, active);
        }
        _ => {}
    }
    Ok(Next::Go)
}

fn shuffle(warp: &mut Warp, cx: &Context<'_>, op: &MicroOp, mode: Shuffle, active: u32) {
    let (from, valid) = sources(warp, cx, op, mode);
    let values = *warp.registers.word(&cx.program.constants, op.a);
    warp.registers.set_word(op.d, &from.map(|lane| values[lane]), active);
    if op.e != Slot::TRUE {
        warp.registers.set_predicate(op.e, valid, active);
    }
}

fn vote(warp: &mut Warp, op: &MicroOp, mode: Vote, members: &[u32; LANES], active: u32) {
    let truth = warp.registers.predicate(op.a) & active;
    if mode == Vote::Ballot {
        let ballot = members.map(|members| truth & members);
        warp.registers.set_word(op.d, &ballot, active);
        return;
    }
    let mut out = 0;
    for lane in lanes_of(active) {
        let (of, set) = (members[lane] & active, truth & members[lane]);
        let holds = match mode {
            Vote::All => set == of,
            Vote::Any => set != 0,
            _ => set == of || set == 0,
        };
        out |= u32::from(holds) << lane;
    }
    warp.registers.set_predicate(op.d, out, active);
}

fn matching(
    warp: &mut Warp,
    op: &MicroOp,
    values: &[u64; LANES],
    members: &[u32; LANES],
    all: bool,
    active: u32,
) {
    let mut out = [0; LANES];
    let mut agreed = 0;
    for lane in lanes_of(active) {
        let of = members[lane] & active;
        let equal = lanes_of(of).filter(|&other| values[other] == values[lane]);
        let equal = equal.fold(0, |mask, other| mask | 1 << other);
        if !all || equal == of {
            out[lane] = equal;
            agreed |= 1 << lane;
        }
    }
    warp.registers.set_word(op.d, &out, active);
    if all && op.e != Slot::TRUE {
        warp.registers.set_predicate(op.e, agreed, active);
    }
}

fn reduced(modify: Modify, signed: bool, values: &[u32; LANES], of: u32) -> u32 {
    let first = values[first_lane(of)];
    lanes_of(of & of.wrapping_sub(1)).fold(first, |sum, lane| {
        let value = values[lane];
        match (modify, signed) {
            (Modify::Add, _) => sum.wrapping_add(value),
            (Modify::Min, false) => sum.min(value),
            (Modify::Max, false) => sum.max(value),
            (Modify::Min, true) => (sum as i32).min(value as i32) as u32,
            (Modify::Max, true) => (sum as i32).max(value as i32) as u32,
            (Modify::And, _) => sum & value,
            (Modify::Or, _) => sum | value,
            _ => sum ^ value,
        }
    })
}

/// The least or the greatest value. A NaN counts only if all are, or if `nan`; -0 is below +0.
fn extreme(values: impl Iterator<Item = f32>, max: bool, nan: bool) -> f32 {
    let pick = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (true, _) => {
            if nan {
                a
            } else {
                b
            }
        }
        (_, true) => {
            if nan {
                b
            } else {
                a
            }
        }
        _ if (a.total_cmp(&b) == Ordering::Less) != max => a,
        _ => b,
    };
    canonical(values.reduce(pick).unwrap_or(f32::NAN))
}
