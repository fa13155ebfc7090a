//! The warps of a thread block on an SM, which share its pipes and meet at barriers.
//!
//! Each goes its way as in a walk of its own. Of those of a scheduler, the one that can issue first
//! does, and goes on as long as no other can issue earlier.

use crate::architecture::SCHEDULERS;
use crate::instruction::Instruction;
use crate::opcode::Pipe;
use crate::path::{Path, Way, meets};
use crate::walk::Pipes;

/// Instructions that are simulated; of longer routes, the first so many.
const STEPS_MAX: usize = 4_000_000;

/// A warp on its route.
struct Warp<'a> {
    way: Way<'a>,
    route: &'a [usize],
    /// Instructions of the block it is in that are left, and the first of them.
    left: &'a [Instruction],
    ready: f64,
    /// Whether it waits at a barrier.
    waits: bool,
}

impl<'a> Warp<'a> {
    /// Comes to the next instruction; `None` at the end of the route.
    fn advance(&mut self, path: &Path<'a>) -> Option<()> {
        while self.left.is_empty() {
            let (&block, route) = self.route.split_first()?;
            self.route = route;
            self.way.enter(path, block);
            self.left = &path.code.instructions[path.flow.blocks[block].instructions.clone()];
        }
        self.ready = self.way.walk.ready(&self.left[0]);
        Some(())
    }
}

/// The pipes of an SM.
#[derive(Default)]
struct Sm {
    schedulers: [Pipes; SCHEDULERS as usize],
    shared: Pipes,
}

impl Sm {
    /// The pipes that a warp of a scheduler meets.
    fn pipes(&self, scheduler: usize) -> Pipes {
        let mut pipes = self.schedulers[scheduler];
        for pipe in Pipe::ALL.into_iter().filter(|pipe| pipe.is_shared()) {
            pipes.free[pipe as usize] = self.shared.free[pipe as usize];
        }
        pipes
    }

    fn leave(&mut self, scheduler: usize, pipes: Pipes) {
        self.schedulers[scheduler] = pipes;
        self.shared = pipes;
    }

    /// When a warp's next instruction can issue.
    fn issues(&self, scheduler: usize, warp: &Warp<'_>) -> f64 {
        let pipes = &self.schedulers[scheduler];
        let instruction = &warp.left[0];
        let queues = instruction.opcode.pipe.is_shared()
            || instruction.shape().is_some_and(|shape| shape.asynchronous);
        let free = if queues { 0.0 } else { pipes.free[instruction.opcode.pipe as usize] };
        warp.ready.max(pipes.issue).max(free)
    }
}

/// Clocks of a thread block whose warps wait for each other in a loop; 0 of others, whose warps
/// drift apart until what they keep busy overlaps, and where not all warps have a route.
pub(crate) fn phases(path: &Path<'_>, routes: &[Vec<usize>], warps_block: u64) -> f64 {
    let mut loops = path.flow.loops.iter().flat_map(|each| &each.blocks);
    let meet = loops.any(|&block| {
        let instructions = &path.code.instructions[path.flow.blocks[block].instructions.clone()];
        instructions.iter().any(|each| meets(path.code, each))
    });
    match routes.get(..warps_block as usize) {
        Some(routes) if meet => clocks(path, routes),
        _ => 0.0,
    }
}

/// Clocks until all warps have gone their routes.
fn clocks<'a>(path: &Path<'a>, routes: &'a [Vec<usize>]) -> f64 {
    let length = |block: &usize| path.flow.blocks[*block].instructions.len();
    let steps: usize = routes.iter().flatten().map(length).sum();
    let share = (STEPS_MAX as f64 / steps.max(1) as f64).min(1.0);
    let start = |route: &'a Vec<usize>| {
        let route = &route[..(route.len() as f64 * share).ceil() as usize];
        let (way, left) = (Way::new(path), &path.code.instructions[..0]);
        let mut warp = Warp { way, route, left, ready: 0.0, waits: false };
        warp.advance(path).map(|()| warp)
    };
    let mut warps: Vec<Option<Warp<'a>>> = routes.iter().map(start).collect();
    let (mut sm, mut last, mut ended) = (Sm::default(), 0, 0.0_f64);
    loop {
        let scheduler = |warp: usize| warp % SCHEDULERS as usize;
        let count = warps.len();
        // The one that issued last comes first.
        let order = (0..count).map(|at| (last + at) % count);
        let running = order.filter_map(|at| match &warps[at] {
            Some(warp) if !warp.waits => Some((at, sm.issues(scheduler(at), warp))),
            _ => None,
        });
        let Some((next, _)) = running.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            let waiting = || warps.iter().flatten();
            if waiting().next().is_none() {
                return ended / share;
            }
            let met = waiting().map(|warp| warp.way.walk.clock()).fold(0.0, f64::max);
            for warp in warps.iter_mut().flatten() {
                warp.way.walk.wait(met - warp.way.walk.clock());
                warp.waits = false;
                warp.ready = warp.ready.max(met);
            }
            continue;
        };
        last = next;
        let Some(warp) = &mut warps[next] else { continue };
        let Some((instruction, left)) = warp.left.split_first() else { continue };
        *warp.way.walk.pipes() = sm.pipes(scheduler(next));
        warp.way.step(path.code, instruction);
        sm.leave(scheduler(next), *warp.way.walk.pipes());
        warp.left = left;
        warp.waits = meets(path.code, instruction);
        if warp.advance(path).is_none() {
            ended = ended.max(warp.way.walk.clock());
            warps[next] = None;
        }
    }
}
