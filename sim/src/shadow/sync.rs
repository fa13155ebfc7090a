//! Synchronisation through memory: releases and acquires by address.
//!
//! A release stores its warp's knowledge at the address; an acquire that reads the address obtains
//! it. Fences do the same for subsequent and prior strong accesses. Strong writes without a release
//! are recorded too, in order to suggest a remedy.

use super::clocks::{Clocks, Event, Known, joined};
use crate::traits::{Order, Scope};
use std::collections::HashMap;
use std::rc::Rc;

/// Number of synchronising reads remembered per warp, for remedies.
const POLLS_MAX: usize = 4;

/// Effect of a strong access on its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    Write,
    Modify,
}

/// Knowledge released at an address.
#[derive(Debug, Default)]
struct Cell {
    /// At device scope.
    wide: Rc<Known>,
    /// At narrower scopes, for the threads of a block or cluster.
    near: Vec<(Place, Rc<Known>)>,
    /// Strong writes without a release: the last of each warp, as epoch and op.
    loose: HashMap<(u32, u32), (u32, u32)>,
}

/// Threads within a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Block(u32),
    Cluster(u32),
}

/// The block of these clocks, and with a wider scope its cluster.
fn places(clocks: &Clocks, scope: Scope) -> [Option<Place>; 2] {
    let cluster = (scope >= Scope::Cluster).then_some(Place::Cluster(clocks.cluster));
    [Some(Place::Block(clocks.block)), cluster]
}

impl Cell {
    fn receive(&mut self, clocks: &Clocks, scope: Scope, given: &Rc<Known>) {
        for place in places(clocks, scope).into_iter().flatten() {
            match self.near.iter_mut().find(|(of, _)| *of == place) {
                Some((_, known)) => *known = joined(known, given),
                None => self.near.push((place, given.clone())),
            }
        }
        if scope == Scope::Device {
            self.wide = joined(&self.wide, given);
        }
    }
}

/// A strong read.
#[derive(Debug, Clone, Copy)]
struct Poll {
    key: u64,
    pc: u32,
    acquired: bool,
}

/// Fence state of a warp.
#[derive(Debug, Default)]
pub(crate) struct Fenced {
    /// Knowledge that strong writes of these lanes release, due to a fence.
    before: Option<(Scope, u32, Rc<Known>)>,
    /// Knowledge that the next fence acquires.
    after: Vec<Rc<Known>>,
    polls: Vec<Poll>,
}

impl Fenced {
    /// Knowledge that strong writes of these lanes release due to a fence, and its scope.
    pub fn given(&self, lanes: u32) -> Option<(Scope, Rc<Known>)> {
        let before = self.before.as_ref().filter(|(_, fenced, _)| lanes & !fenced == 0);
        before.map(|(scope, _, known)| (*scope, known.clone()))
    }

    /// Some lanes execute a fence.
    pub fn fence(&mut self, clocks: &mut Clocks, warp: usize, lanes: u32, scope: Scope) {
        for known in std::mem::take(&mut self.after) {
            clocks.acquire(warp, &known);
        }
        for poll in &mut self.polls {
            poll.acquired = true;
        }
        let earlier = match self.before.take() {
            Some((earlier, mask, _)) if earlier == scope => mask,
            _ => 0,
        };
        self.before = Some((scope, lanes | earlier, clocks.released(warp)));
    }
}

/// A strong access of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strong {
    pub key: u64,
    pub touch: Touch,
    pub order: Order,
    pub warp: usize,
    pub lane: u32,
    pub pc: u32,
}

/// Missing synchronisation between two accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A wait for this op's copy.
    Wait(u32),
    /// A release on this op.
    Release(u32),
    /// An acquire on this op.
    Acquire(u32),
    /// Both a release and an acquire.
    Everything,
}

/// All addresses of strong accesses.
#[derive(Debug, Default)]
pub(crate) struct Sync {
    cells: HashMap<u64, Cell>,
}

impl Sync {
    /// Records a strong access with its release or acquire.
    pub fn strong(&mut self, clocks: &mut Clocks, fenced: &mut Fenced, access: Strong) {
        let Strong { key, touch, order, warp, .. } = access;
        let block = clocks.block;
        if touch == Touch::Read && !self.cells.contains_key(&key) {
            remember(fenced, access);
            return;
        }
        let cell = self.cells.entry(key).or_default();
        if touch != Touch::Write && !order.silent {
            let own = places(clocks, order.scope);
            let near = cell.near.iter().filter(|(of, _)| own.contains(&Some(*of)));
            let near = near.map(|(_, known)| known);
            let wide = (order.scope == Scope::Device).then_some(&cell.wide);
            for known in near.chain(wide).filter(|known| !known.is_empty()) {
                if order.acquires {
                    clocks.acquire(warp, known);
                } else if !fenced.after.iter().any(|held| Rc::ptr_eq(held, known)) {
                    fenced.after.push(known.clone());
                }
            }
            remember(fenced, access);
        }
        if touch == Touch::Read {
            return;
        }
        if touch == Touch::Write {
            cell.wide = Rc::default();
            cell.near.clear();
        }
        let (scope, given) = match (order.releases, fenced.given(1 << access.lane)) {
            (true, _) => (order.scope, clocks.released(warp)),
            (false, Some((scope, known))) => (scope.min(order.scope), known),
            (false, None) => {
                let epoch = clocks.warps[warp].epoch;
                cell.loose.insert((block, warp as u32), (epoch, access.pc));
                return;
            }
        };
        cell.receive(clocks, scope, &given);
    }

    /// Adds to what is released at an address, for the whole device.
    pub fn publish(&mut self, key: u64, clocks: &Clocks, given: &Rc<Known>) {
        self.cells.entry(key).or_default().receive(clocks, Scope::Device, given);
    }

    /// What a warp lacks to be ordered after an event of another block. `fenced` are the states of
    /// its block, the warp's own first.
    pub fn missing<'a>(&self, fenced: impl Iterator<Item = &'a Fenced>, event: &Event) -> Missing {
        for poll in fenced.flat_map(|fenced| fenced.polls.iter().rev()) {
            let Some(cell) = self.cells.get(&poll.key) else { continue };
            if !poll.acquired && cell.wide.has(event) {
                return Missing::Acquire(poll.pc);
            }
            let after = |at: &((u32, u32), (u32, u32))| {
                let ((block, warp), (epoch, _)) = *at;
                block == event.block && (warp != event.warp || epoch >= event.epoch)
            };
            let loose = cell.loose.iter().map(|(&by, &at)| (by, at)).filter(after);
            if let Some((_, (_, pc))) = loose.min() {
                return Missing::Release(pc);
            }
        }
        Missing::Everything
    }
}

fn remember(fenced: &mut Fenced, access: Strong) {
    let poll = Poll { key: access.key, pc: access.pc, acquired: access.order.acquires };
    fenced.polls.retain(|held| held.key != poll.key);
    if fenced.polls.len() == POLLS_MAX {
        fenced.polls.remove(0);
    }
    fenced.polls.push(poll);
}
