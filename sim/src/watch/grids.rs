//! Checks of launches that may begin before those before them have ended: their accesses to global
//! memory come behind a wait.

use super::Watch;
use super::report::Reporter;
use super::scene::Scene;
use crate::finding::FindingKind;
use crate::registers::LANES;
use crate::shadow::{Actor, BlockShadow, Lanes, NEVER};

impl Watch {
    /// Reports accesses that the wait for the launches before does not come before.
    pub(super) fn early(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        by: Actor,
        (area, lanes): (u64, &Lanes),
    ) {
        if !scene.cx.launch.programmatic {
            return;
        }
        let early = shadow.early(by.warp, lanes.active);
        let reporter = Reporter::new(scene.cx, scene.block);
        for lane in (0..LANES).filter(|lane| early >> lane & 1 != 0) {
            let make = || reporter.early((area, lanes.offsets[lane]), (by.pc, by.warp, lane));
            self.findings.add((FindingKind::EarlyAccess, NEVER, by.pc), make);
        }
    }
}
