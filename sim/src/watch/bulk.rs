//! Checks of TMA copies: their writes to shared memory, and their reads until they are waited for.
//!
//! TMA copies and wgmma access memory through the async proxy. A thread's stores are visible to it
//! after a `fence.proxy.async`, by the thread itself or by one that the store is ordered before.

use super::Watch;
use super::copies::{Moved, global_parts};
use super::mbarriers::Lane;
use super::memory::Scene;
use super::report::Reporter;
use crate::block_state::BlockState;
use crate::bulk::{Bulk, Completion, End};
use crate::context::Context;
use crate::finding::FindingKind;
use crate::op::Kind;
use crate::registers::LANES;
use crate::shadow::{
    Actor, BlockShadow, Ending, GlobalRange, Group, Issue, Lanes, SHARED, Touch, one,
};
use crate::tensor_map::Swizzle;
use crate::traits::Order;
use crate::unit::Unit;
use crate::warp::{At, Warp};

/// Bytes that a swizzle keeps contiguous.
const CHUNK: u64 = 16;

/// Ranges of shared memory that a copy reads; for a tile, those inside the tensor.
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
    /// Checks newly issued TMA copies, the last of the block's queue.
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
            let by = Lane { warp, block, cx, at, lane };
            if let Completion::Barrier(rank, barrier) = bulk.completion {
                let ranks = if bulk.ranks == 0 { 1 << rank } else { bulk.ranks };
                // Asynchronous stores of registers are not of the async proxy.
                let proxy = !matches!(bulk.from, End::Bytes(_));
                for rank in (0..LANES).filter(|rank| ranks >> rank & 1 != 0) {
                    self.barrier_used(shadow, by, (rank, barrier), proxy);
                }
            }
            let [reads, writes] =
                [&bulk.from, &bulk.to].map(|end| global_parts(cx, end, bulk.bytes));
            let ranges = |parts: &[(GlobalRange, u64)]| -> Vec<GlobalRange> {
                parts.iter().map(|(range, _)| *range).collect()
            };
            if let Some(counting) = &mut self.counting {
                for (parts, writes) in [(&reads, false), (&writes, true)] {
                    if !parts.is_empty() {
                        counting.bulk(at.pc, &ranges(parts), writes);
                    }
                }
            }
            let read = ranges(&reads).into_iter().map(|range| (lane, range));
            self.copy_reads(shadow, &Scene { touch: Touch::Read, ..scene }, read);
            if !writes.is_empty() {
                self.bulk_stores(shadow, &scene, bulk, ranges(&writes));
            }
            if let (&End::Shared(rank, to), Completion::Barrier(_, barrier)) =
                (&bulk.to, bulk.completion)
                && bulk.reduce.is_none()
            {
                let lanes = one(lane, to, bulk.bytes);
                let moved: Vec<Moved> =
                    reads.iter().map(|&(from, to)| Moved { lane, from, to }).collect();
                let swizzle = match &bulk.from {
                    End::Tile(tile) => tile.swizzle,
                    _ => Swizzle::None,
                };
                let unset = self.unset(cx, &moved, |at| swizzle.apply(to + at));
                let ranks = if bulk.ranks == 0 { 1 << rank } else { bulk.ranks };
                for rank in (0..LANES).filter(|rank| ranks >> rank & 1 != 0) {
                    let (group, number) = (Group::Barrier((rank, barrier)), bulk.number);
                    let (unset, sources) = (unset.clone(), Vec::new());
                    let issue = Issue { rank, target: &lanes, group, number, unset, sources };
                    self.issued(shadow, &scene, &issue);
                }
            }
            if let End::Shared(rank, from) = bulk.from
                && rank == own
            {
                self.bulk_reads(shadow, &Scene { touch: Touch::Read, ..scene }, bulk, from);
            }
        }
    }

    /// Checks a newly issued copy from shared memory.
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
        if let Completion::Group(number) = bulk.completion
            && self.checks.shared_races
        {
            let ranges = parts(bulk, from).into_iter().map(|(at, bytes)| at..at + bytes);
            let by = Actor::weak(warp, bulk.pc);
            shadow.read_begun(by, lane as u32, ranges.collect(), Ending::Bulk(number));
        }
    }

    /// Reports words that a copy or wgmma reads without a proxy fence.
    pub(super) fn proxies(
        &mut self,
        shadow: &BlockShadow,
        scene: &Scene<'_, '_>,
        lanes: &Lanes,
        lane: usize,
    ) {
        let (words, _) = lanes.words(lane);
        for word in words {
            for writer in shadow.shared.writers(word, shadow.clocks.block) {
                let op = &scene.cx.program.ops[writer.pc as usize];
                let copied = matches!(op.kind, Kind::Unit(Unit::Bulk(_) | Unit::StoreAsync(_)));
                if copied || shadow.proxy.follow(&writer) {
                    continue;
                }
                let (reporter, pc) = (Reporter::new(scene.cx, scene.block), scene.at.pc);
                let me = (pc, scene.warp.index as usize, lane);
                let make = || reporter.unfenced(word as u64 * 4, &writer, me);
                self.findings.add((FindingKind::MissingProxyFence, writer.pc, pc), make);
            }
        }
    }
}
