//! Bulk copies: what they write into shared memory, and what they read from it until they are
//! waited for.
//!
//! They see memory through a proxy of their own. What a thread stored reaches it by a
//! `fence.proxy.async`, of the thread itself or of one that the store is ordered before.

use super::asynchronous::Group;
use super::clocks::Event;
use super::finding::FindingKind;
use super::lanes::Lanes;
use super::memory::{SHARED, Scene};
use super::report::Reporter;
use super::shadow::BlockShadow;
use super::shared::{Actor, Conflict};
use super::sync::Touch;
use super::traits::Order;
use super::{At, Watch};
use crate::block::BlockState;
use crate::bulk::{Bulk, Completion, End, Queue};
use crate::launch::Context;
use crate::op::Kind;
use crate::registers::LANES;
use crate::unit::Unit;
use crate::warp::Warp;
use std::ops::Range;

/// Bytes that a tile's swizzle keeps together.
const CHUNK: u64 = 16;

/// A copy that reads shared memory until its group is waited for.
#[derive(Debug, Clone)]
struct Reading {
    at: Range<u64>,
    by: Event,
    group: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BulkShadow {
    readings: Vec<Reading>,
    /// The last epoch of each warp that a fence followed: for each of its own lanes, and for all
    /// by a fence of whoever knew of it.
    own: Vec<[u32; LANES]>,
    known: Vec<u32>,
}

impl BulkShadow {
    pub fn new(warps: usize) -> BulkShadow {
        let (own, known) = (vec![[0; LANES]; warps], vec![0; warps]);
        BulkShadow { own, known, ..BulkShadow::default() }
    }

    /// Whether a fence between the proxies followed a store.
    fn fenced(&self, store: &Event) -> bool {
        let warp = store.warp as usize;
        self.own[warp][store.lane as usize].max(self.known[warp]) >= store.epoch
    }
}

/// One lane's bytes.
fn one(lane: usize, at: u64, bytes: u64) -> Lanes {
    let (offsets, active) = ([at; LANES], 1 << lane);
    Lanes { offsets, active, bytes: bytes as u32, run: false, uniform: false }
}

/// The parts of shared memory that a copy from there reads: of a tile those that its tensor has.
fn parts(bulk: &Bulk, at: u64) -> Vec<(u64, u64)> {
    let End::Tile(tile) = &bulk.to else { return vec![(at, bulk.bytes)] };
    let mut out = Vec::new();
    for row in tile.rows() {
        let mut next = row.at + row.before;
        let end = next + row.inside;
        while next < end {
            let bytes = (CHUNK - next % CHUNK).min(end - next);
            out.push((tile.swizzle.apply(at + next), bytes));
            next += bytes;
        }
    }
    out
}

impl Watch {
    /// Bulk copies were issued: the last of the block's queue.
    pub(super) fn bulk_issued(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let order = Order::default();
        let scene = Scene { warp, block, cx, at, touch: Touch::Write, order, element: 16 };
        let own = block.peers.rank as usize;
        let count = at.active.count_ones() as usize;
        for bulk in block.queue.pending.iter().rev().take(count) {
            let lane = bulk.thread as usize % LANES;
            if let (&End::Shared(rank, to), Completion::Barrier(_, barrier)) =
                (&bulk.to, bulk.completion)
                && rank == own
                && bulk.reduce.is_none()
            {
                self.issued(shadow, &scene, &one(lane, to, bulk.bytes), Group::Barrier(barrier));
            }
            if let End::Shared(rank, from) = bulk.from
                && rank == own
            {
                self.bulk_reads(shadow, &Scene { touch: Touch::Read, ..scene }, bulk, from);
            }
        }
    }

    /// A copy from shared memory was issued.
    fn bulk_reads(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        bulk: &Bulk,
        from: u64,
    ) {
        let (warp, lane) = (scene.warp.index as usize, bulk.thread as usize % LANES);
        for (at, bytes) in parts(bulk, from) {
            let lanes = one(lane, at, bytes);
            self.check(shadow, &Scene { element: bytes as u32, ..*scene }, SHARED, &lanes);
            if self.checks.shared_races {
                self.proxies(shadow, scene, &lanes, lane);
            }
        }
        if let Completion::Group(group) = bulk.completion {
            let by = Event {
                block: shadow.clocks.block,
                warp: warp as u32,
                lane: lane as u32,
                many: false,
                epoch: shadow.clocks.warps[warp].epoch,
                pc: bulk.pc,
            };
            let at = from..from + bulk.bytes;
            shadow.bulk.readings.push(Reading { at, by, group });
        }
    }

    /// Reports words that a copy reads and no fence followed.
    fn proxies(&mut self, shadow: &BlockShadow, scene: &Scene<'_, '_>, lanes: &Lanes, lane: usize) {
        let (words, _) = lanes.words(lane);
        for word in words {
            let Some(writer) = shadow.shared.writer(word, shadow.clocks.block) else { continue };
            let op = &scene.cx.program.ops[writer.pc as usize];
            let copied = matches!(op.kind, Kind::Unit(Unit::Bulk(_) | Unit::StoreAsync(_)));
            if copied || shadow.bulk.fenced(&writer) {
                continue;
            }
            let (reporter, pc) = (Reporter::new(scene.cx, scene.block), scene.at.pc);
            let me = (pc, scene.warp.index as usize, lane);
            let make = || reporter.unfenced(word as u64 * 4, &writer, me);
            self.findings.add((FindingKind::MissingProxyFence, writer.pc, pc), make);
        }
    }
}

impl BlockShadow {
    /// Lanes store; what that conflicts with goes to `out`.
    pub fn store(&mut self, lanes: &Lanes, by: Actor, out: &mut Vec<Conflict>) {
        self.shared.store(&self.clocks, lanes, by, out);
        for Reading { at, by: earlier, .. } in &self.bulk.readings {
            let bytes = u64::from(lanes.bytes);
            let hit = |lane: &usize| {
                let from = lanes.offsets[*lane];
                from < at.end && at.start < from + bytes
            };
            out.extend(lanes.each().filter(hit).map(|lane| Conflict {
                lane,
                at: lanes.offsets[lane].max(at.start),
                earlier: *earlier,
                copies: true,
            }));
        }
    }

    /// Lanes of a warp fence what they know of between the proxies.
    pub fn proxy_fenced(&mut self, warp: usize, lanes: u32) {
        let (row, epoch) = self.clocks.fenced(warp);
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            self.bulk.own[warp][lane] = epoch;
        }
        self.bulk.known.iter_mut().zip(row).for_each(|(known, epoch)| *known = (*known).max(epoch));
    }

    /// `cp.async.bulk.wait_group` of a thread: all but its newest groups have read.
    pub fn bulk_waited(&mut self, warp: usize, lane: usize, newest: u32, queue: &Queue) {
        let thread = (warp * LANES + lane) as u32;
        let committed = queue.groups.get(&thread).copied().unwrap_or_default();
        let over = |reading: &mut Reading| {
            let mine = (reading.by.warp as usize, reading.by.lane as usize) == (warp, lane);
            mine && committed - reading.group > newest
        };
        for Reading { at, by, .. } in self.bulk.readings.extract_if(.., over) {
            let (lanes, pc) = (one(lane, at.start, at.end - at.start), by.pc);
            let by = Actor { warp, pc, strong: false };
            // It was told of conflicts before; those to come see that it read until here.
            self.shared.load(&self.clocks, &lanes, by, &mut Vec::new());
        }
    }

    /// A bulk copy has landed; a barrier tells of it in a phase if it is this block's.
    pub fn landed(&mut self, at: u64, bytes: u64, barrier: Option<(u64, bool)>) {
        self.shared.set_written(&one(0, at, bytes), true);
        if let Some((barrier, odd)) = barrier {
            self.copy_completed(barrier, odd);
        }
    }
}
