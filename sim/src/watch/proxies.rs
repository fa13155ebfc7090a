//! Checks of proxies: TMA copies and MMAs access memory through the async proxy, which sees what
//! threads stored after a proxy fence.

use super::Watch;
use super::report::Reporter;
use super::scene::Scene;
use crate::context::Context;
use crate::finding::FindingKind;
use crate::op::Kind;
use crate::shadow::{BlockShadow, Event, GlobalRange, Lanes, SHARED, whole};
use crate::traits::Proxy;
use crate::unit::Unit;

/// Whether an op itself writes through the async proxy.
pub(super) fn of_async_proxy(cx: &Context<'_>, pc: u32) -> bool {
    matches!(cx.program.ops[pc as usize].kind, Kind::Unit(Unit::Bulk(_) | Unit::StoreAsync(_)))
}

impl Watch {
    /// Reports words of shared memory that a copy or MMA reads without a proxy fence.
    pub(super) fn shared_proxy(
        &mut self,
        shadow: &BlockShadow,
        scene: &Scene<'_, '_>,
        lanes: &Lanes,
        lane: usize,
    ) {
        let (words, _) = lanes.words(lane);
        for word in words {
            for writer in shadow.shared.writers(word, shadow.clocks.block) {
                let subject = (SHARED, word as u64 * 4);
                self.proxy(shadow, scene, (Proxy::Shared, lane), subject, &writer);
            }
        }
    }

    /// Reports bytes of global memory that a newly issued copy accesses without a proxy fence.
    pub(super) fn global_proxy(
        &mut self,
        shadow: &BlockShadow,
        scene: &Scene<'_, '_>,
        lane: usize,
        GlobalRange { area, at, bytes }: GlobalRange,
    ) {
        if !self.checks.global_races {
            return;
        }
        let warp = scene.warp.index as usize;
        let mut found = Vec::new();
        for lanes in whole(lane, at, bytes) {
            let written = self.global.written(area as usize, &lanes);
            // Without an order it is a race.
            let ordered =
                written.filter(|(_, _, writer)| shadow.clocks.ordered(writer, warp, lane as u32));
            found.extend(ordered.map(|(_, at, writer)| (at, writer)));
        }
        for (at, writer) in found {
            self.proxy(shadow, scene, (Proxy::Global, lane), (area, at), &writer);
        }
    }

    /// Reports a write that a lane accesses through a proxy, unless a fence covers it.
    fn proxy(
        &mut self,
        shadow: &BlockShadow,
        scene: &Scene<'_, '_>,
        (proxy, lane): (Proxy, usize),
        subject: (u64, u64),
        writer: &Event,
    ) {
        let (warp, pc) = (scene.warp.index as usize, scene.at.pc);
        if of_async_proxy(scene.cx, writer.pc)
            || self.lane_fences.cover(&shadow.clocks, warp, proxy, writer)
        {
            return;
        }
        let reporter = Reporter::new(scene.cx, scene.block);
        let make = || reporter.unfenced(subject, writer, (pc, warp, lane));
        self.findings.add((FindingKind::MissingProxyFence, writer.pc, pc), make);
    }
}
