//! Checks of TMA copies: their writes to shared memory, and their reads until they are waited for.

use super::Watch;
use super::copies::global_parts;
use super::mbarriers::Lane;
use super::scene::Scene;
use crate::block_state::BlockState;
use crate::bulk::{Bulk, Completion, End};
use crate::context::Context;
use crate::counters::PeerCopy;
use crate::registers::LANES;
use crate::shadow::{
    Actor, BlockShadow, Ending, GlobalRange, Group, Issue, SHARED, Touch, joined, one, whole,
};
use crate::tensor_map::Swizzle;
use crate::traits::Order;
use crate::warp::{At, Warp};
use std::rc::Rc;

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
        let mut to_peers = Vec::new();
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
                if let End::Shared(rank, to) = bulk.to {
                    counting.copied_to_shared(at.pc, bulk.bytes, bulk.ranks.count_ones().max(1));
                    if reads.is_empty() && rank != own {
                        to_peers.push(PeerCopy { lane, rank, at: to, bytes: bulk.bytes });
                    }
                }
            }
            let part = |range: &GlobalRange| (range.area, whole(lane, range.at, range.bytes));
            let read = reads.iter().map(|(range, _)| part(range));
            self.copy_reads(shadow, &Scene { touch: Touch::Read, ..scene }, read);
            if matches!((&bulk.from, &bulk.to), (End::Tile(_), _) | (_, End::Tile(_))) {
                let slot = cx.list(&cx.program.ops[at.pc as usize])[1];
                let address = warp.registers.wide(&cx.program.constants, slot)[lane];
                self.map_used(shadow, &scene, lane, address);
            }
            for (range, _) in reads.iter().chain(&writes) {
                self.global_proxy(shadow, &scene, lane, *range);
            }
            if !writes.is_empty() {
                self.bulk_stores(shadow, &scene, bulk, ranges(&writes));
            }
            if let (&End::Shared(rank, to), Completion::Barrier(_, barrier)) =
                (&bulk.to, bulk.completion)
                && bulk.reduce.is_none()
            {
                let lanes = one(lane, to, bulk.bytes);
                let swizzle = match &bulk.from {
                    End::Tile(tile) => tile.swizzle,
                    _ => Swizzle::None,
                };
                let unset = self.unset(cx, &reads, |at| swizzle.apply(to + at));
                let ranks = if bulk.ranks == 0 { 1 << rank } else { bulk.ranks };
                for rank in (0..LANES).filter(|rank| ranks >> rank & 1 != 0) {
                    let (group, number) = (Group::Barrier((rank, barrier)), bulk.number);
                    let (unset, sources) = (unset.clone(), Rc::default());
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
        if let Some(counting) = &mut self.counting {
            counting.copied_to_peers(at.pc, &to_peers);
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
                self.shared_proxy(shadow, scene, &lanes, lane);
            }
        }
        if let Completion::Group(number) = bulk.completion
            && self.checks.shared_races
        {
            let ranges = parts(bulk, from).into_iter().map(|(at, bytes)| at..at + bytes);
            let by = Actor::weak(warp, bulk.pc);
            let ranges = vec![joined(ranges.collect()).into()];
            shadow.read_begun(by, lane as u32, ranges, Ending::Bulk(number));
        }
    }
}
