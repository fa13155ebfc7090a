//! A block: its warps, shared memory and barriers.
//!
//! A block is a coroutine. A turn runs every ready warp for a time slice, in an order drawn from
//! the launch's seed, since a fixed order would hide missing synchronisation.

use crate::block_state::{BARRIERS, Barrier, BlockState};
use crate::bulk::Queue;
use crate::context::Context;
use crate::error::{Error, ErrorKind};
use crate::execute::{self, Stop, run};
use crate::failure::Fault;
use crate::op::{Kind, Vote};
use crate::peers::{Peers, place_of};
use crate::place::Place;
use crate::registers::LANES;
use crate::shadow::BlockShadow;
use crate::tensor_memory::TensorMemory;
use crate::types::Class;
use crate::unit::Unit;
use crate::warp::{Wait, Warp};
use crate::watch::Watch;

/// Result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Every thread has exited.
    Done,
    /// At least one thread made progress.
    Moved,
    /// Every ready thread is polling, and nothing was written.
    Idle,
    /// Every thread is waiting, some of them for other blocks of the cluster.
    Waiting,
}

/// A thread block.
#[derive(Debug)]
pub(crate) struct Block {
    pub state: BlockState,
    pub warps: Vec<Warp>,
    order: Vec<usize>,
    random: u64,
}

impl Block {
    /// Creates the block with a given rank in a cluster.
    pub fn new(cluster: u64, rank: u32, cx: &Context<'_>) -> Block {
        let ([x, y, _], size) = (cx.launch.grid, cx.cluster);
        let (across, down) = (u64::from(x / size[0]), u64::from(y / size[1]));
        let first = [cluster % across, cluster / across % down, cluster / across / down];
        let place = place_of(rank, size);
        let index: [u32; 3] =
            std::array::from_fn(|axis| first[axis] as u32 * size[axis] + place[axis]);
        let [bx, by, bz] = index.map(u64::from);
        let linear = bx + (by + bz * u64::from(y)) * u64::from(x);
        let peers = Peers { size: size.iter().product(), rank, place, ..Peers::default() };
        let threads: u32 = cx.launch.block.iter().product();
        let shared_bytes = cx.program.shared_bytes + cx.launch.shared_bytes;
        let budget = cx.launch.registers_of(cx.kernel);
        let warps = (0..threads.div_ceil(LANES as u32)).map(|warp| {
            let mine = threads - warp * LANES as u32;
            let (count, local) = (cx.program.registers, cx.program.local_bytes);
            Warp { budget, ..Warp::new(warp, mine, count, local) }
        });
        let warps: Vec<Warp> = warps.collect();
        let state = BlockState {
            index,
            linear,
            shared: vec![0; shared_bytes.div_ceil(4) as usize],
            shared_bytes,
            peers,
            queue: Queue::default(),
            tensor: TensorMemory::default(),
            printed: String::new(),
            barriers: vec![Barrier::default(); BARRIERS],
            warp_count: warps.len(),
            barrier_changed: false,
            progressed: false,
            random: 0,
            warp_instructions: 0,
            leapt: 0,
            followed: 0,
            lane_instructions: 0,
            products_issued: vec![0; warps.len()],
            free_registers: 0,
            shadow: BlockShadow::new(linear, (cluster, rank), warps.len(), cx),
        };
        let order = (0..warps.len()).collect();
        // The lowest bit is lost, in which neighbouring seeds must not be all that differs.
        let seed = cx.seed.wrapping_mul(0xd134_2543_de82_ef95);
        let random = seed ^ linear.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Block { state, warps, order, random }
    }

    /// Whether a warp's epochs are exhausted, so that its accesses are not followed any more.
    pub fn spent(&self) -> bool {
        let shadow = self.state.shadow.as_ref();
        shadow.is_some_and(|shadow| (0..self.warps.len()).any(|warp| shadow.clocks.spent(warp)))
    }

    fn shuffle(&mut self) {
        for last in (1..self.order.len()).rev() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.order.swap(last, (self.random % (last as u64 + 1)) as usize);
        }
    }

    /// Runs every ready warp for a time slice.
    pub fn turn(&mut self, cx: &Context<'_>, watch: &mut Watch) -> Result<Turn, Error> {
        self.shuffle();
        let (mut moved, mut ran) = (false, false);
        self.state.progressed = false;
        self.state.random = self.state.random.wrapping_add(self.random | 1);
        execute::advance(&mut self.state, &mut self.warps, cx, self.random)
            .map_err(|(warp, fault)| self.failed(warp, *fault, cx))?;
        for at in 0..self.order.len() {
            let warp = &mut self.warps[self.order[at]];
            if !warp.ready() {
                continue;
            }
            ran = true;
            let stop = match watch.on {
                true => run::<true>(warp, &mut self.state, cx, watch),
                false => run::<false>(warp, &mut self.state, cx, watch),
            };
            let stop = stop.map_err(|fault| self.failed(self.order[at], *fault, cx))?;
            moved |= stop != Stop::Polled;
            if self.state.barrier_changed {
                self.open_barriers(cx);
            }
        }
        if self.warps.iter().all(|warp| warp.live == 0) {
            let finished = execute::finish(&mut self.state, cx);
            let leaked = finished.map_err(|(warp, fault)| self.failed(warp, *fault, cx))?;
            watch.bulk_leaked(&self.state, cx, &leaked);
            return Ok(Turn::Done);
        }
        let for_cluster = |warp: &Warp| {
            warp.splits.iter().any(|split| split.wait == Wait::Barrier(Wait::CLUSTER))
        };
        if !ran && self.warps.iter().any(for_cluster) {
            return Ok(Turn::Waiting);
        }
        if !ran {
            return Err(self.stuck(cx, watch));
        }
        Ok(if moved || self.state.progressed { Turn::Moved } else { Turn::Idle })
    }

    fn failed(&self, warp: usize, fault: Fault, cx: &Context<'_>) -> Error {
        let place = self.place(warp, fault.lane, fault.pc, cx);
        Error::new(fault.kind, fault.message).with_place(place)
    }

    fn place(&self, warp: usize, lane: usize, pc: u32, cx: &Context<'_>) -> Place {
        let thread = (warp * LANES + lane) as u32;
        let [x, y, _] = cx.launch.block;
        let thread = [thread % x, thread / x % y, thread / x / y];
        cx.place(self.state.index, thread, pc)
    }

    /// Releases every barrier at which all expected threads have arrived.
    fn open_barriers(&mut self, cx: &Context<'_>) {
        self.state.barrier_changed = false;
        for id in 0..BARRIERS {
            let barrier = &self.state.barriers[id];
            if barrier.arrived.is_empty() {
                continue;
            }
            let complete = |warp: &&Warp| {
                let arrived = barrier.arrived[warp.index as usize];
                arrived & warp.live == warp.live
            };
            let full = self.warps.iter().filter(complete);
            let opens = match barrier.threads {
                0 => full.count() == self.warps.len(),
                threads => {
                    let came = full.filter(|w| barrier.arrived[w.index as usize] != 0).count();
                    (came * LANES) as u32 >= threads
                }
            };
            if opens {
                self.open(id, cx);
            }
        }
    }

    fn open(&mut self, id: usize, cx: &Context<'_>) {
        if let Some(shadow) = &mut self.state.shadow {
            let at = |warp: &&Warp| {
                warp.splits.iter().any(|split| split.wait == Wait::Barrier(id as u8))
            };
            let all = self.warps.iter().all(|warp| warp.live == 0 || at(&warp));
            shadow.open(id, self.warps.iter().filter(at).map(|warp| warp.index as usize), all);
        }
        let barrier = std::mem::take(&mut self.state.barriers[id]);
        for warp in &mut self.warps {
            for at in 0..warp.splits.len() {
                let split = warp.splits[at];
                if split.wait != Wait::Barrier(id as u8) {
                    continue;
                }
                warp.splits[at].wait = Wait::Ready;
                warp.splits[at].pc += 1;
                let op = &cx.program.ops[split.pc as usize];
                let Kind::Barrier(crate::op::Barrier { reduce: Some(reduce), .. }) = op.kind else {
                    continue;
                };
                let (class, value) = match reduce {
                    Vote::All => (Class::Pred, u32::from(barrier.set == barrier.total)),
                    Vote::Any => (Class::Pred, u32::from(barrier.set != 0)),
                    _ => (Class::Word, barrier.set),
                };
                if class == Class::Pred {
                    warp.registers.set_predicate(op.d, value.wrapping_neg(), split.mask);
                } else {
                    warp.registers.set_word(op.d, &[value; LANES], split.mask);
                }
            }
        }
    }

    /// Releases warps that wait at the cluster's barrier.
    pub fn pass_cluster_barrier(&mut self) {
        for warp in &mut self.warps {
            warp.cluster_arrived = 0;
            for split in &mut warp.splits {
                if split.wait != Wait::Barrier(Wait::CLUSTER) {
                    continue;
                }
                split.wait = Wait::Ready;
                split.pc += 1;
                warp.cluster_owed &= !split.mask;
                if let Some(shadow) = &mut self.state.shadow {
                    shadow.cluster_waited(warp.index as usize, split.mask, warp.live);
                }
            }
        }
    }

    /// All remaining splits with their location and wait, for messages.
    fn waiting(&self, cx: &Context<'_>) -> Vec<(usize, usize, u32, Wait)> {
        let mut out = Vec::new();
        for (index, warp) in self.warps.iter().enumerate() {
            for split in &warp.splits {
                let lane = split.mask.trailing_zeros() as usize;
                out.push((index, lane, split.pc, split.wait));
            }
        }
        out.sort_by_key(|&(_, _, pc, _)| cx.program.origins[pc as usize].line);
        out
    }

    /// Error for a block whose warps wait for each other at different places.
    pub fn stuck(&self, cx: &Context<'_>, watch: &mut Watch) -> Error {
        let mut places = self.waiting(cx);
        places.dedup_by_key(|&mut (_, _, pc, _)| pc);
        let places: Vec<_> = places.iter().map(|&(warp, lane, pc, _)| (warp, lane, pc)).collect();
        watch.divergent(&self.state, cx, &places);
        let what = "threads wait for each other";
        self.report(cx, ErrorKind::DivergentBarrier, what, &self.lines(cx))
    }

    /// Error for a launch in which all ready warps are polling.
    pub fn hung(&self, cx: &Context<'_>) -> Error {
        let at = |pc: u32| cx.program.ops[pc as usize].kind;
        let starved = self
            .waiting(cx)
            .into_iter()
            .find(|&(_, _, pc, _)| matches!(at(pc), Kind::Unit(Unit::Registers { .. })));
        let mut what = "every thread waits or polls and none makes progress".to_string();
        if let Some((warp, ..)) = starved {
            let (held, free) = (self.warps[warp].budget, self.state.free_registers);
            what += &format!("; setmaxnreg.inc of a warp of {held} registers, {free} are free");
        }
        self.report(cx, ErrorKind::Deadlock, &what, &self.lines(cx))
    }

    /// PTX lines of the block's threads, in order.
    pub fn lines(&self, cx: &Context<'_>) -> Vec<u32> {
        let waiting = self.waiting(cx).into_iter();
        let mut lines: Vec<u32> =
            waiting.map(|(_, _, pc, _)| cx.program.origins[pc as usize].line).collect();
        lines.dedup();
        lines
    }

    /// Error at these lines, located at the block's first thread.
    pub fn report(&self, cx: &Context<'_>, kind: ErrorKind, what: &str, lines: &[u32]) -> Error {
        let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
        let message = format!("{what}, at ptx lines {}", lines.join(", "));
        match self.waiting(cx).first() {
            Some(&(warp, lane, pc, _)) => {
                Error::new(kind, message).with_place(self.place(warp, lane, pc, cx))
            }
            None => Error::new(kind, message),
        }
    }
}
