//! Texts of findings.

use crate::block_state::BlockState;
use crate::context::Context;
use crate::finding::{Finding, FindingKind, Site};
use crate::op::Kind;
use crate::peers::place_of;
use crate::place::Place;
use crate::registers::LANES;
use crate::shadow::{Arrival, Event, GUARD, LOCAL, Missing, PENDING, Poison, SHARED, peer_rank};
use crate::unit::{BarrierAction, MemoryBarrier, Unit};

/// A warp and a lane.
type Who = (usize, usize);

/// Describes findings of a block.
pub(crate) struct Reporter<'a, 'b> {
    cx: &'a Context<'b>,
    block: &'a BlockState,
}

impl<'a, 'b> Reporter<'a, 'b> {
    pub fn new(cx: &'a Context<'b>, block: &'a BlockState) -> Reporter<'a, 'b> {
        Reporter { cx, block }
    }

    fn place(&self, block: [u32; 3], (warp, lane): Who, pc: u32) -> Place {
        let thread = (warp * LANES + lane) as u32;
        let [x, y, _] = self.cx.launch.block;
        self.cx.place(block, [thread % x, thread / x % y, thread / x / y], pc)
    }

    fn here(&self, who: Who, pc: u32) -> Site {
        Site { what: self.what(pc), place: self.place(self.block.index, who, pc) }
    }

    /// An earlier access, of any block.
    fn site(&self, event: &Event) -> Site {
        let mut index = self.block.index;
        if u64::from(event.block) != self.block.linear {
            index = self.cx.block_index(event.block.into());
        }
        let by = (event.warp as usize, event.lane as usize);
        Site { what: self.what(event.pc), place: self.place(index, by, event.pc) }
    }

    /// Description of an op.
    fn what(&self, pc: u32) -> String {
        match self.cx.program.ops[pc as usize].kind {
            Kind::Load(access) => {
                format!("load of {} bytes", u32::from(access.bytes) * u32::from(access.count))
            }
            Kind::Store(access) => {
                format!("store of {} bytes", u32::from(access.bytes) * u32::from(access.count))
            }
            Kind::Atomic(atomic) => format!("atomic of {} bytes", atomic.ty.bytes()),
            Kind::Barrier(_) => "arrival".to_string(),
            Kind::Branch | Kind::BranchIndexed => "branch".to_string(),
            Kind::Unit(Unit::Bulk(_)) => "bulk copy".to_string(),
            Kind::Unit(Unit::StoreAsync(_)) => "asynchronous store".to_string(),
            Kind::Unit(Unit::Copy(bytes)) => format!("copy of {bytes} bytes"),
            Kind::Unit(Unit::WarpgroupMultiply(_)) => "product".to_string(),
            Kind::Unit(Unit::Barrier(MemoryBarrier {
                action: BarrierAction::Initialise, ..
            })) => "initialisation".to_string(),
            Kind::Exit => "exit".to_string(),
            _ => "use".to_string(),
        }
    }

    /// Instruction that waits for an op with asynchronous reads of shared memory.
    fn wait(&self, pc: u32) -> Option<&'static str> {
        match self.cx.program.ops[pc as usize].kind {
            Kind::Unit(Unit::WarpgroupMultiply(_)) => Some("wgmma.wait_group"),
            Kind::Unit(Unit::Bulk(copy)) if !copy.barrier => Some("cp.async.bulk.wait_group.read"),
            _ => None,
        }
    }

    fn line(&self, pc: u32) -> u32 {
        self.cx.program.origins[pc as usize].line
    }

    /// Name and location of an op: `the red at ptx line 52`.
    fn named(&self, pc: u32) -> String {
        let line = self.line(pc);
        let text = self.cx.kernel.module.line(line);
        let after_guard = text.split_whitespace().find(|word| !word.starts_with(['@', '{']));
        let opcode = after_guard.unwrap_or_default().split('.').next().unwrap_or_default();
        format!("the {opcode} at ptx line {line}")
    }

    /// Description of a memory location.
    fn subject(&self, (area, at): (u64, u64)) -> String {
        if let Some(rank) = peer_rank(area) {
            let mine = self.block.peers.place;
            let theirs = place_of(rank as u32, self.cx.cluster);
            let axis = |axis: usize| self.block.index[axis] - mine[axis] + theirs[axis];
            let (x, y, z) = (axis(0), axis(1), axis(2));
            return format!("shared+{at:#x} of block ({x}, {y}, {z})");
        }
        match area {
            SHARED => format!("shared+{at:#x}"),
            LOCAL => {
                let per_thread = u64::from(self.cx.program.local_bytes).max(1);
                format!("local+{:#x}", at % per_thread)
            }
            _ => match self.cx.table.get(area as usize) {
                Some(found) => {
                    let (number, bytes) = (found.written.number, found.bytes);
                    format!("allocation #{number} + {at} of {bytes} bytes")
                }
                None => format!("{at:#x}"),
            },
        }
    }

    /// Two unordered, conflicting accesses.
    pub fn race(
        &self,
        kind: FindingKind,
        subject: (u64, u64),
        earlier: &Event,
        (pc, warp, lane): (u32, usize, usize),
        missing: Option<Missing>,
    ) -> Finding {
        let first = self.site(earlier);
        let second = self.here((warp, lane), pc);
        let remedy = match (kind, missing) {
            _ if earlier.clock == PENDING => {
                let op = self.named(earlier.pc);
                format!("{op} stores until a cp.async.bulk.wait_group: one would order them")
            }
            _ if earlier.clock != earlier.warp => {
                let op = self.named(earlier.pc);
                format!("a wait for the phase of the mbarrier that tells of {op} would order them")
            }
            (FindingKind::WarpgroupRelease, _) => {
                "another warp of the warpgroup released it: every warp must, after its own \
                 wgmma.wait_group"
                    .to_string()
            }
            (FindingKind::SharedRace, None) if self.wait(earlier.pc).is_some() => {
                self.lacks(Missing::Wait(earlier.pc))
            }
            (FindingKind::SharedRace, Some(Missing::Everything)) => {
                "nothing orders the two blocks: use barrier.cluster, or a barrier in memory with a \
                 release and an acquire at cluster scope"
                    .to_string()
            }
            (_, Some(missing)) => self.lacks(missing),
            (FindingKind::WarpRace, None) if earlier.epoch == 0 => {
                "lanes of one store write different values: let one lane store, or use an \
                 atomic"
                    .to_string()
            }
            (FindingKind::WarpRace, None) => self.between(true, earlier.pc, pc),
            (_, None) => self.between(false, earlier.pc, pc),
        };
        // The order of the accesses is unknown; sorting makes the text independent of the seed.
        let sites = if earlier.pc <= pc { vec![first, second] } else { vec![second, first] };
        Finding { kind, subject: self.subject(subject), sites, remedy, count: 1 }
    }

    /// Suggests where a barrier between two unordered ops could be placed.
    fn between(&self, warp: bool, first: u32, second: u32) -> String {
        let (low, high) = (first.min(second), first.max(second));
        let name = if warp { "bar.warp.sync" } else { "bar.sync" };
        let (a, b) = (self.line(low), self.line(high));
        let origins = &self.cx.program.origins;
        let source = origins[low as usize].loc;
        if low == high || source.line != 0 && source == origins[high as usize].loc {
            return "one statement races with itself: an atomic would make it whole".to_string();
        }
        let ops = &self.cx.program.ops;
        let barrier = |range: std::ops::Range<u32>| {
            ops[range.start as usize..range.end as usize].iter().any(|op| match op.kind {
                Kind::Barrier(barrier) => barrier.wait,
                Kind::WarpSync => warp,
                _ => false,
            })
        };
        // Innermost loop that contains both.
        let backward = |&pc: &u32| {
            let op = &ops[pc as usize];
            matches!(op.kind, Kind::Branch) && op.imm as u32 <= low
        };
        let end = (high..ops.len() as u32).find(backward);
        let around = end.is_some_and(|end| {
            let start = ops[end as usize].imm as u32;
            barrier(low..high) || first > second && !(barrier(start..low) || barrier(high..end))
        });
        match around {
            false => format!("a {name} between ptx line {a} and ptx line {b} would order them"),
            true => format!(
                "a {name} after ptx line {b}, before the loop comes back to ptx line {a}, would \
                 order them"
            ),
        }
    }

    fn lacks(&self, missing: Missing) -> String {
        match missing {
            Missing::Wait(pc) => {
                let (op, wait) = (self.named(pc), self.wait(pc).unwrap_or("wait"));
                format!("{op} reads until a {wait}: one would order them")
            }
            Missing::Release(pc) => {
                let op = self.named(pc);
                format!("a release on {op}, or a fence before it, would order them")
            }
            Missing::Acquire(pc) => {
                let op = self.named(pc);
                format!("an acquire on {op}, or a fence after it, would order them")
            }
            Missing::Everything => {
                "nothing orders the two blocks: use atomics, or a grid barrier (a release after \
                 the first access, an acquire before the second)"
                    .to_string()
            }
        }
    }

    /// A TMA copy or wgmma that reads a thread's store without a proxy fence.
    pub fn unfenced(
        &self,
        subject: (u64, u64),
        writer: &Event,
        (pc, warp, lane): (u32, usize, usize),
    ) -> Finding {
        let sites = vec![self.site(writer), self.here((warp, lane), pc)];
        let line = self.line(writer.pc);
        let remedy = format!(
            "TMA copies and wgmma see stores of threads only after a fence.proxy.async, \
             which is missing after ptx line {line}, before what orders the two"
        );
        let (kind, subject) = (FindingKind::MissingProxyFence, self.subject(subject));
        Finding { kind, subject, sites, remedy, count: 1 }
    }

    /// A copy with a tensor map that the launch wrote and that its thread has not acquired.
    pub fn unacquired_map(
        &self,
        subject: (u64, u64),
        writer: &Event,
        (pc, warp, lane): (u32, usize, usize),
    ) -> Finding {
        let sites = vec![self.site(writer), self.here((warp, lane), pc)];
        let remedy = "copies see a tensor map that the launch writes only after a \
                      fence.proxy.tensormap::generic, .release after the write and .acquire with \
                      the map's address before the copy";
        let (kind, subject) = (FindingKind::MissingProxyFence, self.subject(subject));
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// A load through the read-only path of what the launch wrote.
    pub fn non_coherent(
        &self,
        subject: (u64, u64),
        writer: &Event,
        (pc, warp, lane): (u32, usize, usize),
    ) -> Finding {
        let sites = vec![self.site(writer), self.here((warp, lane), pc)];
        let remedy = "ld.global.nc may return what was there before the launch, whatever orders \
                      the two: only what no thread of the launch writes can be loaded by it";
        let (kind, subject) = (FindingKind::NonCoherentLoad, self.subject(subject));
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// A copy that completes on an mbarrier whose initialisation it may not see.
    pub fn unfenced_barrier(
        &self,
        subject: (u64, u64),
        init: &Event,
        (pc, warp, lane): (u32, usize, usize),
    ) -> Finding {
        let sites = vec![self.site(init), self.here((warp, lane), pc)];
        let line = self.line(init.pc);
        let remedy = format!(
            "copies see an initialised mbarrier only after a fence.mbarrier_init or \
             fence.proxy.async of its thread, which is missing after ptx line {line}"
        );
        let (kind, subject) = (FindingKind::MissingBarrierFence, self.subject(subject));
        Finding { kind, subject, sites, remedy, count: 1 }
    }

    /// An access to the shared memory of a block that may not have started.
    pub fn unstarted(&self, rank: usize, (pc, warp, lane): (u32, usize, usize)) -> Finding {
        let remedy = "nothing tells that the block has started: a barrier.cluster before would";
        let (kind, subject) = (FindingKind::UnstartedPeer, format!("block of rank {rank}"));
        let sites = vec![self.here((warp, lane), pc)];
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// An access that no wait for the launches before comes before.
    pub fn early(&self, subject: (u64, u64), (pc, warp, lane): (u32, usize, usize)) -> Finding {
        let remedy = "the launch may begin before the one before it has ended: \
                      griddepcontrol.wait must come before the access";
        let (kind, subject) = (FindingKind::EarlyAccess, self.subject(subject));
        let sites = vec![self.here((warp, lane), pc)];
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// A copy whose thread exits without waiting for it.
    pub fn leaked(&self, at: u64, (pc, exit): (u32, u32), who: Who) -> Finding {
        let sites = vec![self.here(who, pc), self.here(who, exit)];
        let remedy = "the thread must wait for its copies: cp.async.wait_all before it exits";
        let (kind, subject) = (FindingKind::LeakedCopy, self.subject((SHARED, at)));
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// A bulk copy that may read shared memory of a block that has exited.
    pub fn bulk_leaked(&self, at: u64, pc: u32, who: Who) -> Finding {
        let remedy = "the block exits, and its shared memory may go to another, while the copy is \
                      under way: it must be waited for";
        let (kind, subject) = (FindingKind::LeakedCopy, self.subject((SHARED, at)));
        Finding {
            kind,
            subject,
            sites: vec![self.here(who, pc)],
            remedy: remedy.to_string(),
            count: 1,
        }
    }

    /// A load of uninitialised bytes, or of such that an op copied.
    pub fn unwritten(
        &self,
        kind: FindingKind,
        subject: (u64, u64),
        (pc, warp, lane): (u32, usize, usize),
        copied_by: Option<u32>,
    ) -> Finding {
        let sites = vec![self.here((warp, lane), pc)];
        let subject = self.subject(subject);
        let remedy = match copied_by {
            Some(copy) => {
                let op = self.named(copy);
                format!(
                    "copied there by {op}, from memory that neither the host nor a kernel wrote"
                )
            }
            None => never(kind).to_string(),
        };
        Finding { kind, subject, sites, remedy, count: 1 }
    }

    /// A use of an uninitialised element of a vector load.
    pub fn brought(&self, kind: FindingKind, pc: u32, who: Who, held: Poison) -> Finding {
        let sites = vec![self.here(who, held.from), self.here(who, pc)];
        let subject = self.subject((held.area, held.at));
        Finding { kind, subject, sites, remedy: never(kind).to_string(), count: 1 }
    }

    /// An effect, at this op, of an uninitialised register that was first used at another.
    pub fn register(&self, pc: u32, who: Who, position: u16, held: Poison) -> Finding {
        let (first, position) = match held.area {
            0 => (pc, position),
            first => (first as u32 - 1, held.at as u16),
        };
        let mut sites = vec![self.here(who, first)];
        let text = &sites[0].place.text;
        let subject = operand(text, self.cx.program.ops[first as usize].kind, position);
        if first != pc {
            sites.push(self.here(who, pc));
        }
        let kind = FindingKind::UninitialisedRegister;
        let remedy = "the thread took a path on which nothing writes it".to_string();
        Finding { kind, subject, sites, remedy, count: 1 }
    }

    /// A use of an accumulator with a pending wgmma.
    pub fn unfinished(
        &self,
        kind: FindingKind,
        (pending, pc): (u32, u32),
        who: Who,
        position: u16,
    ) -> Finding {
        let sites = vec![self.here(who, pending), self.here(who, pc)];
        let op = self.cx.program.ops[pc as usize].kind;
        let subject = operand(&sites[1].place.text, op, position);
        let remedy = match kind {
            FindingKind::UnfinishedTensorLoad => "a tcgen05.wait::ld must stand between the two",
            _ => "its group must be committed, and waited for by wgmma.wait_group, first",
        };
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// Tensor memory that an op reads and nobody wrote, or whose store was not waited for.
    pub fn tensor(
        &self,
        (lane, column): (usize, usize),
        store: Option<(usize, u32)>,
        who: Who,
        pc: u32,
    ) -> Finding {
        let subject = format!("lane {lane}, column {column} of tensor memory");
        let by = store.map(|(warp, pc)| self.here((warp, 0), pc));
        let (kind, remedy) = match store {
            Some(_) => (
                FindingKind::UnfinishedTensorStore,
                "the warp that stores must execute a tcgen05.wait::st before it tells of it",
            ),
            None => (
                FindingKind::UninitialisedTensor,
                "a tcgen05.st, tcgen05.cp or an MMA that does not accumulate must write it first",
            ),
        };
        let sites = by.into_iter().chain([self.here(who, pc)]).collect();
        Finding { kind, subject, sites, remedy: remedy.to_string(), count: 1 }
    }

    /// A wgmma that uses a register which was written after the last fence.
    pub fn unfenced_register(&self, written: u32, pc: u32, who: Who) -> Finding {
        let line = self.line(pc);
        Finding {
            kind: FindingKind::UnfencedRegister,
            subject: format!("an operand or accumulator of the wgmma at ptx line {line}"),
            sites: vec![self.here(who, written), self.here(who, pc)],
            remedy: "a wgmma.fence between the two would order them".to_string(),
            count: 1,
        }
    }

    /// A write to a register that a pending wgmma reads.
    pub fn overwritten(&self, reader: u32, pc: u32, who: Who) -> Finding {
        let line = self.line(reader);
        let remedy = "its group must be committed, and waited for by wgmma.wait_group, first";
        Finding {
            kind: FindingKind::OverwrittenOperand,
            subject: format!("an operand of the wgmma at ptx line {line}"),
            sites: vec![self.here(who, reader), self.here(who, pc)],
            remedy: remedy.to_string(),
            count: 1,
        }
    }

    /// Two warps of a warpgroup, with their ops, that do not execute the same wgmma; or the same
    /// with other descriptors.
    pub fn divergent_warpgroup(
        &self,
        first: (usize, u32),
        second: (usize, u32),
        descriptors: bool,
    ) -> Finding {
        let remedy = match descriptors {
            true => "all warps of a warpgroup must give a wgmma the same matrix descriptors",
            false => "all warps of a warpgroup must execute the same wgmma in the same order",
        };
        Finding {
            kind: FindingKind::DivergentWarpgroup,
            subject: format!("warps {} and {}", first.0, second.0),
            sites: [first, second].map(|(warp, pc)| self.here((warp, 0), pc)).into(),
            remedy: remedy.to_string(),
            count: 1,
        }
    }

    /// Two arrivals at one barrier with different thread counts.
    pub fn mismatch(&self, id: usize, first: Arrival, second: Arrival) -> Finding {
        let site = |(threads, warp, lane, pc): Arrival| {
            let what = match threads {
                0 => "arrival that waits for all threads".to_string(),
                threads => format!("arrival that waits for {threads} threads"),
            };
            Site { what, place: self.place(self.block.index, (warp, lane), pc) }
        };
        Finding {
            kind: FindingKind::BarrierMismatch,
            subject: format!("barrier {id}"),
            sites: vec![site(first), site(second)],
            remedy: "every arrival at a barrier must have the same thread count".to_string(),
            count: 1,
        }
    }

    /// Threads that wait for each other at different places: warp, lane and op of each.
    pub fn divergent(&self, waiting: &[(usize, usize, u32)]) -> Finding {
        let sites = waiting.iter().map(|&(warp, lane, pc)| {
            let place = self.place(self.block.index, (warp, lane), pc);
            Site { what: "wait".to_string(), place }
        });
        Finding {
            kind: FindingKind::DivergentBarrier,
            subject: format!("threads wait for each other at {} places", waiting.len()),
            sites: sites.collect(),
            remedy: "all threads of the block must reach the same barriers".to_string(),
            count: 1,
        }
    }
}

fn never(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::UninitialisedShared => "no thread of the block wrote it before",
        FindingKind::UninitialisedLocal => "the thread did not write it before",
        _ => "neither the host nor a kernel wrote it before",
    }
}

/// Name of an operand's register in the instruction text.
fn operand(text: &str, kind: Kind, position: u16) -> String {
    let text = text.trim_end_matches(';');
    let guard = text.strip_prefix('@').and_then(|rest| rest.split_whitespace().next());
    if position == GUARD {
        return format!("`{}`", guard.unwrap_or(text).trim_start_matches('!'));
    }
    let text =
        text.split_once(char::is_whitespace).filter(|_| guard.is_some()).map_or(text, |t| t.1);
    let operands = text.trim().split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
    let skipped = match kind {
        Kind::Store(_) | Kind::Barrier(_) | Kind::WarpSync => 0,
        Kind::Load(access) => usize::from(access.count),
        _ => 1,
    };
    let cut = |c: char| matches!(c, ',' | '{' | '}');
    let names = operands.split(cut).map(str::trim).filter(|name| !name.is_empty());
    let name = names.skip(skipped).nth(position.into()).unwrap_or("a register");
    let name = name.trim_matches(['[', ']', '!', ' ']);
    format!("`{}`", name.split('+').next().unwrap_or(name))
}
