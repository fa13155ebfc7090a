//! Checks of memory accesses: uninitialised reads and data races.

use super::Watch;
use super::mbarriers::Lane;
use super::report::Reporter;
use super::scene::Scene;
use crate::access::Window;
use crate::aim::{Aim, Attempt, Place, addresses, lanes_of, resolve, word_groups};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::finding::FindingKind;
use crate::op::{Kind, MicroOp};
use crate::registers::LANES;
use crate::shadow::{
    Actor, BlockShadow, Conflict, Global, LOCAL, Lanes, Missing, NEVER, PENDING, Poison, SHARED,
    SharedAccess, Strong, Touch, key, peer, peer_rank,
};
use crate::tracked::Role;
use crate::traits::Scope;
use crate::unit::Unit;
use crate::warp::{At, Warp};

/// Area number of a rank's shared memory.
pub(super) fn shared_area(shadow: &BlockShadow, rank: usize) -> u64 {
    if rank == shadow.rank { SHARED } else { peer(rank) }
}

fn shape(op: &MicroOp) -> Option<(Window, bool, u32, u32, Touch)> {
    Some(match op.kind {
        Kind::Load(access) | Kind::Store(access) => {
            let element = u32::from(access.bytes);
            let touch = if matches!(op.kind, Kind::Load(_)) { Touch::Read } else { Touch::Write };
            let bytes = element * u32::from(access.count);
            (access.window, access.wide_address, bytes, element, touch)
        }
        Kind::Atomic(atomic) => {
            let bytes = atomic.ty.bytes();
            (atomic.window, atomic.wide_address, bytes, bytes, Touch::Modify)
        }
        _ => return None,
    })
}

impl Watch {
    /// Checks an access before it is executed. One that is about to fail is skipped.
    #[inline(always)]
    pub(super) fn memory(
        &mut self,
        shadow: &mut BlockShadow,
        warp: &mut Warp,
        block: &BlockState,
        cx: &Context<'_>,
        at: At,
    ) {
        let op = &cx.program.ops[at.pc as usize];
        if at.active == u32::MAX && self.settled(shadow, warp, cx, (at.pc, op)) {
            return;
        }
        let Some((window, wide, bytes, element, touch)) = shape(op) else { return };
        if window == Window::Param {
            return;
        }
        let order = cx.program.origins[at.pc as usize].traits.order;
        let attempt = Attempt { verb: "", bytes: u64::from(bytes) };
        let addresses = addresses(warp, cx, op.a, wide, op.imm);
        let aim = Aim { window, addresses, active: at.active, attempt };
        if aim.check_alignment(u64::from(bytes)).is_err() {
            return;
        }
        if let Some(span) = aim.span(warp, block, cx) {
            let lanes = Lanes::new(&span.pattern, at.active, bytes);
            let area = area(&span.place, warp);
            let scene = Scene { warp, block, cx, at, touch, order, element };
            self.look(shadow, &scene, area, &lanes);
            return;
        }
        let (mut areas, mut offsets) = ([None; LANES], [0; LANES]);
        for lane in lanes_of(at.active) {
            let place = resolve(warp, block, cx, window, lane, aim.addresses[lane], attempt);
            let Ok(place) = place else { return };
            areas[lane] = area(&place, warp);
            offsets[lane] = place.offset();
        }
        let lanes = Lanes::apart(offsets, at.active, bytes);
        let scene = Scene { warp, block, cx, at, touch, order, element };
        let mut left = at.active;
        while left != 0 {
            let first = areas[left.trailing_zeros() as usize];
            let alike = (0..LANES).filter(|&lane| left >> lane & 1 != 0 && areas[lane] == first);
            let together = alike.fold(0, |mask, lane| mask | 1_u32 << lane);
            left &= !together;
            self.look(shadow, &scene, first, &lanes.only(together));
        }
    }

    /// Fast path for loads of shared memory that are certainly correct, as in most inner loops;
    /// returns false if the full check is needed.
    #[inline(always)]
    fn settled(
        &self,
        shadow: &mut BlockShadow,
        warp: &Warp,
        cx: &Context<'_>,
        (pc, op): (u32, &MicroOp),
    ) -> bool {
        let Kind::Load(access) = op.kind else { return false };
        let warp_index = warp.index as usize;
        if !access.is_shared_word()
            || access.strong
            || self.counting.is_some()
            || !self.checks.shared_races
            || shadow.blocks != 1
            || shadow.clocks.spent(warp_index)
        {
            return false;
        }
        let by = Actor::weak(warp_index, pc);
        let Some(groups) = word_groups(warp, cx, op, access) else { return false };
        shadow.shared.load_groups(&shadow.clocks, &groups, op.imm, by)
    }

    /// Checks the lanes that access one area.
    pub(super) fn look(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        area: Option<u64>,
        lanes: &Lanes,
    ) {
        let Some(area) = area else { return };
        if scene.touch != Touch::Read {
            self.save(scene.cx, area);
        }
        let rank = peer_rank(area);
        let elsewhere = rank.is_some();
        if let Some(rank) = rank {
            let &Scene { warp, block, cx, at, .. } = scene;
            let lane = lanes.active.trailing_zeros() as usize;
            self.started(shadow, Lane { warp, block, cx, at, lane }, rank);
        }
        if let Some(counting) = self.counting.as_mut().filter(|_| !elsewhere) {
            let part = (scene.at.pc, area, lanes);
            match area {
                SHARED => counting.shared(part, scene.touch != Touch::Read),
                LOCAL => {}
                _ if scene.may_be_in_l1() => counting.cached(part),
                _ => counting.global(part, scene.touch != Touch::Read),
            }
        }
        self.check(shadow, scene, area, lanes);
    }

    /// Checks the accesses of lanes to one area.
    pub(super) fn check(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        area: u64,
        lanes: &Lanes,
    ) {
        let elsewhere = peer_rank(area).is_some();
        if self.checks.uninitialised && !elsewhere && scene.touch != Touch::Write {
            self.unwritten(shadow, scene, area, lanes);
        }
        self.order(shadow, scene, area, lanes);
        // For races, every store counts as one of a value.
        if self.checks.uninitialised && !elsewhere && scene.touch != Touch::Read {
            written(shadow, scene, area, lanes);
        }
    }

    /// Synchronisation and ordering of an access.
    fn order(&mut self, shadow: &mut BlockShadow, scene: &Scene<'_, '_>, area: u64, lanes: &Lanes) {
        let wanted = match area {
            LOCAL => false,
            _ if area == SHARED || peer_rank(area).is_some() => self.checks.shared_races,
            _ => self.checks.global_races,
        };
        let warp = scene.warp.index as usize;
        if !self.checks.races() || area == LOCAL || shadow.clocks.spent(warp) {
            return;
        }
        if wanted {
            self.races(shadow, scene, area, lanes);
        }
        if scene.order.scope != Scope::Weak {
            self.strong(shadow, scene, area, lanes);
        }
    }

    pub(super) fn races(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        area: u64,
        lanes: &Lanes,
    ) {
        let warp = scene.warp.index as usize;
        let scope = scene.order.scope;
        let strong = scope != Scope::Weak;
        let by = Actor { strong, ..Actor::weak(warp, scene.at.pc) };
        let first;
        let mut lanes = lanes;
        if scene.touch == Touch::Write && !lanes.run && lanes.active.count_ones() > 1 {
            let repeated = lanes.repeated();
            self.collisions(shadow, scene, area, lanes, repeated);
            first = lanes.only(lanes.active & !repeated);
            lanes = &first;
        }
        let writes = scene.touch != Touch::Read;
        let rank = if area == SHARED { Some(shadow.rank) } else { peer_rank(area) };
        if let Some(rank) = rank {
            let access = SharedAccess { rank, lanes, by, scope };
            let mut conflicts = Vec::new();
            match writes {
                true => shadow.store(access, &mut conflicts),
                false => shadow.load(access, &mut conflicts),
            }
            self.conflicts(shadow, scene, area, lanes, conflicts);
        } else {
            self.global_races(shadow, scene, (by, scope), (area, lanes));
        }
    }

    /// Records an access to global memory and reports its conflicts.
    pub(super) fn global_races(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        (by, scope): (Actor, Scope),
        (area, lanes): (u64, &Lanes),
    ) {
        self.early(shadow, scene, by, (area, lanes));
        let allocation = area as usize;
        let words = scene.cx.table.get(allocation).map_or(0, |found| found.words.len());
        if scene.cx.program.origins[by.pc as usize].traits.non_coherent {
            let reporter = Reporter::new(scene.cx, scene.block);
            for (lane, at, writer) in self.global.written(allocation, lanes) {
                let me = (by.pc, by.warp, lane);
                let make = || reporter.non_coherent((area, at), &writer, me);
                self.findings.add((FindingKind::NonCoherentLoad, writer.pc, by.pc), make);
            }
        }
        let access = Global { lanes, by, scope, allocation, words };
        let (mut conflicts, writes) = (Vec::new(), scene.touch != Touch::Read);
        let stamps = &mut shadow.warps[by.warp].stamps;
        self.global.access(&shadow.clocks, &access, writes, stamps, &mut conflicts);
        // The wait for a bulk store records it again.
        let (block, clock) = (shadow.clocks.block, by.clock(&shadow.clocks).clock);
        conflicts.retain(|Conflict { earlier, .. }| {
            let own = (earlier.block, earlier.warp, earlier.pc) == (block, clock, by.pc);
            earlier.clock != PENDING || !own
        });
        self.conflicts(shadow, scene, area, lanes, conflicts);
    }

    /// Reports conflicts of an access with earlier ones.
    pub(super) fn conflicts(
        &mut self,
        shadow: &BlockShadow,
        scene: &Scene<'_, '_>,
        area: u64,
        lanes: &Lanes,
        conflicts: Vec<Conflict>,
    ) {
        let (clocks, warp) = (&shadow.clocks, scene.warp.index as usize);
        for Conflict { lane, at, earlier, open } in conflicts {
            let stored = matches!(scene.cx.program.ops[earlier.pc as usize].kind, Kind::Store(_));
            if stored && scene.touch == Touch::Write && holds(scene, area, lanes, lane) {
                continue;
            }
            let same_warp = earlier.block == clocks.block && earlier.clock as usize == warp;
            let product = matches!(
                scene.cx.program.ops[earlier.pc as usize].kind,
                Kind::Unit(Unit::WarpgroupMultiply(_))
            );
            let released = || shadow.released_by_warpgroup(&earlier, warp, lane as u32);
            let kind = match (same_warp, area) {
                (_, SHARED) if product && released() => FindingKind::WarpgroupRelease,
                (true, _) if !open => FindingKind::WarpRace,
                _ if area == SHARED || peer_rank(area).is_some() => FindingKind::SharedRace,
                _ => FindingKind::GlobalRace,
            };
            let missing = match earlier.block != clocks.block {
                _ if open => Some(Missing::Wait(earlier.pc)),
                true if kind == FindingKind::SharedRace => Some(Missing::Everything),
                true => {
                    let own = [&shadow.warps[warp].fenced];
                    let all = shadow.warps.iter().map(|warp| &warp.fenced);
                    Some(self.sync.missing(own.into_iter().chain(all), &earlier))
                }
                false => None,
            };
            let reporter = Reporter::new(scene.cx, scene.block);
            let me = (scene.at.pc, warp, lane);
            let make = || reporter.race(kind, (area, at), &earlier, me, missing);
            let pair = (earlier.pc.min(scene.at.pc), earlier.pc.max(scene.at.pc));
            self.findings.add((kind, pair.0, pair.1), make);
        }
    }

    /// Reports lanes of one store that write different values to one address.
    fn collisions(
        &mut self,
        shadow: &BlockShadow,
        scene: &Scene<'_, '_>,
        area: u64,
        lanes: &Lanes,
        repeated: u32,
    ) {
        let op = &scene.cx.program.ops[scene.at.pc as usize];
        for lane in lanes.only(repeated).each() {
            let first = lanes.first_alike(lane);
            if !differ(scene, op, first, lane) {
                continue;
            }
            let warp = scene.warp.index as usize;
            let earlier = crate::shadow::Event {
                block: shadow.clocks.block,
                clock: warp as u32,
                warp: warp as u32,
                lane: first as u32,
                many: false,
                epoch: 0,
                pc: scene.at.pc,
            };
            let reporter = Reporter::new(scene.cx, scene.block);
            let make = || {
                let subject = (area, lanes.offsets[lane]);
                let me = (scene.at.pc, warp, lane);
                reporter.race(FindingKind::WarpRace, subject, &earlier, me, None)
            };
            // The key differs from that of a race between two executions of the op.
            self.findings.add((FindingKind::WarpRace, NEVER, scene.at.pc), make);
        }
    }

    fn strong(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        area: u64,
        lanes: &Lanes,
    ) {
        let rank = if area == SHARED { Some(shadow.rank) } else { peer_rank(area) };
        let BlockShadow { clocks, warps, cluster, .. } = shadow;
        let warp = scene.warp.index as usize;
        let (touch, order, pc) = (scene.touch, scene.order, scene.at.pc);
        let (sync, base) = match rank {
            Some(rank) => (&mut cluster.sync, key(rank, 0)),
            None => {
                let allocation = scene.cx.table.get(area as usize);
                (&mut self.sync, allocation.map_or(0, |found| found.base))
            }
        };
        for lane in lanes.each() {
            let key = base + lanes.offsets[lane];
            let access = Strong { key, touch, order, warp, lane: lane as u32, pc };
            sync.strong(clocks, &mut warps[warp].fenced, access);
        }
    }

    /// Reports loads of uninitialised bytes; elements of a vector only when used.
    fn unwritten(
        &mut self,
        shadow: &mut BlockShadow,
        scene: &Scene<'_, '_>,
        area: u64,
        lanes: &Lanes,
    ) {
        let warp = scene.warp.index as usize;
        let (kind, bad) = match area {
            SHARED => (FindingKind::UninitialisedShared, shadow.shared.unwritten(lanes)),
            LOCAL => (FindingKind::UninitialisedLocal, {
                let local = &shadow.warps[warp].local;
                lanes_where(lanes, |lane| {
                    let (mut words, bytes) = lanes.words(lane);
                    words.any(|word| u64::from(local[word]) & bytes != bytes)
                })
            }),
            _ => (FindingKind::UninitialisedGlobal, self.unwritten_global(scene.cx, area, lanes)),
        };
        if bad == 0 {
            return;
        }
        let unset = |lane: usize| match area {
            SHARED => shadow.shared.first_unset(lanes, lane),
            LOCAL => first_unset_local(&shadow.warps[warp].local, lanes, lane),
            _ => {
                let at = lanes.offsets[lane];
                let table = scene.cx.table.get(area as usize);
                let first = table.and_then(|a| a.written.first_unset(at, lanes.bytes.into()));
                first.unwrap_or(at)
            }
        };
        if scene.touch == Touch::Read && scene.element < lanes.bytes {
            let found: Vec<(usize, u64)> =
                lanes.only(bad).each().map(|lane| (lane, unset(lane))).collect();
            brought(shadow, scene, area, lanes, &found);
            return;
        }
        let reporter = Reporter::new(scene.cx, scene.block);
        for lane in lanes.only(bad).each() {
            let at = unset(lane);
            let copied_by = shadow.unset_by.get(&at).copied().filter(|_| area == SHARED);
            let me = (scene.at.pc, warp, lane);
            let make = || reporter.unwritten(kind, (area, at), me, copied_by);
            self.findings.add((kind, NEVER, scene.at.pc), make);
        }
    }

    pub(super) fn unwritten_global(&self, cx: &Context<'_>, area: u64, lanes: &Lanes) -> u32 {
        let Some(allocation) = cx.table.get(area as usize) else { return 0 };
        let written = &allocation.written;
        let bytes = u64::from(lanes.bytes);
        if written.number < self.assumed {
            return 0;
        }
        let rows = |first: usize| (lanes.offsets[first], lanes.group_bytes(first));
        let all = match (lanes.run, lanes.step) {
            (true, _) => written.all(lanes.offsets[0], bytes * LANES as u64),
            (false, Some(_)) => lanes.groups().map(rows).all(|(at, bytes)| written.all(at, bytes)),
            (false, None) => false,
        };
        if all {
            return 0;
        }
        lanes_where(lanes, |lane| !written.all(lanes.offsets[lane], bytes))
    }
}

fn lanes_where(lanes: &Lanes, bad: impl Fn(usize) -> bool) -> u32 {
    lanes.each().fold(0, |mask, lane| mask | u32::from(bad(lane)) << lane)
}

fn first_unset_local(local: &[u8], lanes: &Lanes, lane: usize) -> u64 {
    let at = lanes.offsets[lane];
    let unset = |&at: &u64| local[at as usize / 4] >> (at % 4) & 1 == 0;
    (at..at + u64::from(lanes.bytes)).find(unset).unwrap_or(at)
}

/// Area of a location; `None` for parameters.
pub(super) fn area(place: &Place<'_>, warp: &Warp) -> Option<u64> {
    match place {
        Place::Global(..) => Some(warp.last_hit as u64),
        Place::Shared(_) => Some(SHARED),
        Place::Local(_) => Some(LOCAL),
        Place::Peer(rank, _) => Some(peer(*rank)),
        Place::Param(_) => None,
    }
}

/// Whether memory already holds the value that a lane stores: redundant stores of equal values are
/// a race formally, but common and harmless.
fn holds(scene: &Scene<'_, '_>, area: u64, lanes: &Lanes, lane: usize) -> bool {
    let (program, registers) = (scene.cx.program, &scene.warp.registers);
    let op = &program.ops[scene.at.pc as usize];
    let Kind::Store(access) = op.kind else { return false };
    let bytes = usize::from(access.bytes);
    let mut now = vec![0; lanes.bytes as usize];
    let at = lanes.offsets[lane];
    let shared = match peer_rank(area) {
        Some(rank) => &scene.block.peers.shared[rank],
        None => &scene.block.shared,
    };
    match (area, scene.cx.table.get(area as usize)) {
        _ if area == SHARED || peer_rank(area).is_some() => {
            for (byte, at) in now.iter_mut().zip(at as usize..) {
                *byte = shared[at / 4].to_le_bytes()[at % 4];
            }
        }
        (_, Some(allocation)) => allocation.read(at, &mut now),
        (_, None) => return false,
    }
    let sources = &program.lists[op.list as usize..][..usize::from(access.count)];
    now.chunks(bytes).zip(sources).all(|(now, &source)| {
        let value = match access.bytes {
            8 => registers.wide(&program.constants, source)[lane],
            _ => registers.word(&program.constants, source)[lane].into(),
        };
        *now == value.to_le_bytes()[..bytes]
    })
}

/// Whether two lanes of a store have different values.
fn differ(scene: &Scene<'_, '_>, op: &MicroOp, a: usize, b: usize) -> bool {
    let Kind::Store(access) = op.kind else { return false };
    let (program, registers) = (scene.cx.program, &scene.warp.registers);
    let sources = &program.lists[op.list as usize..][..usize::from(access.count)];
    sources.iter().any(|&source| {
        if access.bytes == 8 {
            let row = registers.wide(&program.constants, source);
            return row[a] != row[b];
        }
        let row = registers.word(&program.constants, source);
        let kept = u32::MAX >> (32 - 8 * u32::from(access.bytes));
        row[a] & kept != row[b] & kept
    })
}

/// Marks registers into which a vector load loads uninitialised bytes.
fn brought(
    shadow: &mut BlockShadow,
    scene: &Scene<'_, '_>,
    area: u64,
    lanes: &Lanes,
    found: &[(usize, u64)],
) {
    let BlockShadow { warps, shared, .. } = shadow;
    let WarpParts { poison, local } = {
        let warp = &mut warps[scene.warp.index as usize];
        WarpParts { poison: &mut warp.poison, local: &warp.local }
    };
    let allocation = scene.cx.table.get(area as usize);
    for &(register, role) in scene.cx.program.tracked.uses(scene.at.pc) {
        let Role::Write(element) = role else { continue };
        for &(lane, at) in found {
            let start = lanes.offsets[lane] + u64::from(element) * u64::from(scene.element);
            let part = Lanes::apart([start; LANES], 1 << lane, scene.element);
            let missing = match area {
                SHARED => shared.unwritten(&part) != 0,
                LOCAL => {
                    let (mut words, bytes) = part.words(lane);
                    words.any(|word| u64::from(local[word]) & bytes != bytes)
                }
                _ => allocation.is_some_and(|a| !a.written.all(start, scene.element.into())),
            };
            if missing {
                let held = &mut poison[register as usize];
                if held.lanes & scene.at.active == 0 {
                    (held.from, held.area, held.at) = (scene.at.pc, area, at.max(start));
                }
                held.lanes |= 1 << lane;
            }
        }
    }
}

/// Parts of a warp's shadow that [`brought`] uses.
struct WarpParts<'a> {
    poison: &'a mut Vec<Poison>,
    local: &'a [u8],
}

/// Marks the bytes of a store or atomic as initialised; those of an uninitialised value as
/// uninitialised.
fn written(shadow: &mut BlockShadow, scene: &Scene<'_, '_>, area: u64, lanes: &Lanes) {
    let warp = scene.warp.index as usize;
    set(shadow, scene, area, lanes, true);
    for &(register, role) in scene.cx.program.tracked.uses(scene.at.pc) {
        let Role::Read(position @ 1..) = role else { continue };
        let held = shadow.warps[warp].poison[register as usize];
        let bad = held.lanes & lanes.active;
        if bad == 0 || scene.touch != Touch::Write {
            continue;
        }
        let skip = u64::from(position - 1) * u64::from(scene.element);
        let part = Lanes::apart(lanes.offsets.map(|offset| offset + skip), bad, scene.element);
        set(shadow, scene, area, &part, false);
    }
}

fn set(shadow: &mut BlockShadow, scene: &Scene<'_, '_>, area: u64, lanes: &Lanes, written: bool) {
    match area {
        SHARED => shadow.shared.set_written(lanes, written),
        LOCAL => {
            let local = &mut shadow.warps[scene.warp.index as usize].local;
            for lane in lanes.each() {
                let (words, bytes) = lanes.words(lane);
                for word in &mut local[words] {
                    *word = if written { *word | bytes as u8 } else { *word & !(bytes as u8) };
                }
            }
        }
        _ => {
            let Some(allocation) = scene.cx.table.get(area as usize) else { return };
            let bytes = u64::from(lanes.bytes);
            if lanes.run {
                let all = bytes * LANES as u64;
                return allocation.written.set(lanes.offsets[0], all, written);
            }
            for lane in lanes.each() {
                allocation.written.set(lanes.offsets[lane], bytes, written);
            }
        }
    }
}
