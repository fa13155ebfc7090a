//! Checks of tensor maps that the launch itself writes. Copies read them through a proxy of their
//! own: who writes one releases it and who copies with it acquires it, by
//! `fence.proxy.tensormap::generic`.

use super::Watch;
use super::memory::area;
use super::report::Reporter;
use super::scene::Scene;
use crate::access::Window;
use crate::aim::{Attempt, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::finding::FindingKind;
use crate::op::Kind;
use crate::registers::Slot;
use crate::shadow::{AcquiredMap, BlockShadow, Clocks, Event, GlobalRange, Touch, one, whole};
use crate::traits::{Order, Proxy, Scope};
use crate::unit::Unit;
use crate::warp::{At, Warp};

const BYTES: u64 = 128;

impl Watch {
    /// Called before an op that writes a tensor map: `tensormap.replace`, or `cp_fenceproxy`, which
    /// reads it in shared memory and releases it.
    pub(super) fn map_written(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'_>,
        (at, unit): (At, Unit),
    ) {
        let slots = cx.list(&cx.program.ops[at.pc as usize]);
        match unit {
            Unit::ReplaceMap { window, .. } => {
                let part = (slots[0], window, Touch::Write, at.active);
                self.map_accessed(shadow, warp, block, cx, at, part);
            }
            _ if at.active == warp.live => {
                let first = at.active & at.active.wrapping_neg();
                for (slot, window, touch) in [
                    (slots[1], Window::Shared, Touch::Read),
                    (slots[0], Window::Global, Touch::Write),
                ] {
                    self.map_accessed(shadow, warp, block, cx, at, (slot, window, touch, first));
                }
                let (index, lanes) = (warp.index as usize, (at.active, warp.live));
                self.lane_fences.fence(&mut shadow.clocks, index, lanes, &[Proxy::TensorMap]);
                let fenced = &mut shadow.warps[index].fenced;
                fenced.fence(&mut shadow.clocks, index, at.active, Scope::Device);
            }
            // It waits for the other lanes.
            _ => {}
        }
    }

    fn map_accessed(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
        (slot, window, touch, lanes): (Slot, Window, Touch, u32),
    ) {
        let addresses = *warp.registers.wide(&cx.program.constants, slot);
        for lane in lanes_of(lanes) {
            let attempt = Attempt { verb: "", bytes: BYTES };
            let place = resolve(warp, block, cx, window, lane, addresses[lane], attempt);
            // An op that is about to fail accesses nothing.
            let Ok(place) = place else { return };
            let Some(area) = area(&place, warp) else { return };
            let (order, element) = (Order::default(), BYTES as u32);
            let scene = Scene { warp, block, cx, at, touch, order, element };
            self.check(shadow, &scene, area, &one(lane, place.offset(), BYTES));
        }
    }

    /// Called before an acquire of tensor maps, after what the fence acquires otherwise.
    pub(super) fn map_acquired(
        &mut self,
        shadow: &BlockShadow,
        warp: &Warp,
        cx: &Context<'_>,
        at: At,
    ) {
        let slot = cx.list(&cx.program.ops[at.pc as usize])[0];
        let addresses = warp.registers.wide(&cx.program.constants, slot);
        let (clocks, index) = (&shadow.clocks, warp.index as usize);
        for lane in lanes_of(at.active) {
            let Some(range) = global_range(cx, addresses[lane]) else { continue };
            let released = |writer: &Event| {
                let kind = cx.program.ops[writer.pc as usize].kind;
                let copied = matches!(kind, Kind::Unit(Unit::CopyMap));
                let covered = || self.lane_fences.cover(clocks, index, Proxy::TensorMap, writer);
                clocks.ordered(writer, index, lane as u32) && (copied || covered())
            };
            let writers: Vec<Event> =
                self.map_writers(range).into_iter().filter(|writer| released(writer)).collect();
            if writers.is_empty() {
                continue;
            }
            let by = Event {
                block: clocks.block,
                clock: index as u32,
                warp: index as u32,
                lane: lane as u32,
                many: false,
                epoch: clocks.warps[index].epoch,
                pc: at.pc,
            };
            let held = self.maps.entry((range.area, range.at)).or_default();
            let other = |held: &AcquiredMap| {
                (held.by.block, held.by.warp, held.by.lane) != (by.block, by.warp, by.lane)
            };
            held.retain(other);
            held.push(AcquiredMap { by, writers });
        }
    }

    /// Checks the tensor map of a newly issued copy.
    pub(super) fn map_used(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        lane: usize,
        address: u64,
    ) {
        let Some(range) = global_range(scene.cx, address) else { return };
        let reading = Scene { touch: Touch::Read, ..*scene };
        let parts = (range.area, whole(lane, range.at, range.bytes));
        self.copy_reads(shadow, &reading, [parts].into_iter());
        let writers = self.map_writers(range);
        let (clocks, warp): (&Clocks, usize) = (&shadow.clocks, scene.warp.index as usize);
        let acquired = self.maps.get(&(range.area, range.at)).into_iter().flatten();
        let seen = |acquired: &AcquiredMap| {
            clocks.ordered(&acquired.by, warp, lane as u32)
                && writers.iter().all(|writer| acquired.writers.contains(writer))
        };
        let ordered = |writer: &&Event| clocks.ordered(writer, warp, lane as u32);
        // Without an order it is a race.
        let Some(writer) = writers.iter().find(ordered) else { return };
        if acquired.into_iter().any(seen) {
            return;
        }
        let reporter = Reporter::new(scene.cx, scene.block);
        let subject = (range.area, range.at);
        let make = || reporter.unacquired_map(subject, writer, (scene.at.pc, warp, lane));
        let kind = FindingKind::MissingProxyFence;
        self.findings.add((kind, writer.pc, scene.at.pc), make);
    }

    /// Writes of the launch to a tensor map.
    fn map_writers(&self, GlobalRange { area, at, bytes }: GlobalRange) -> Vec<Event> {
        if !self.checks.global_races {
            return Vec::new();
        }
        let lanes = one(0, at, bytes);
        let written = self.global.written(area as usize, &lanes);
        let mut out: Vec<Event> = written.map(|(_, _, writer)| writer).collect();
        out.dedup();
        out
    }
}

/// The bytes of a tensor map in global memory.
fn global_range(cx: &Context<'_>, address: u64) -> Option<GlobalRange> {
    let index = cx.table.find(address, BYTES)?;
    let at = address - cx.table.get(index)?.base;
    Some(GlobalRange { area: index as u64, at, bytes: BYTES })
}
