//! Sanitizer findings.

use crate::place::Place;
use std::collections::HashMap;
use std::fmt;

/// Kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// Use of a register that its thread never wrote.
    UninitialisedRegister,
    /// Use of an accumulator with a pending wgmma that was not waited for.
    UnfinishedProduct,
    /// A wgmma uses registers that its threads wrote after the last `wgmma.fence`.
    UnfencedRegister,
    /// Use of what a `tcgen05.ld` loads before a `tcgen05.wait::ld`, for which the assembler makes
    /// up where it can.
    UnfinishedTensorLoad,
    /// Use of what a `tcgen05.st` stores before its warp's `tcgen05.wait::st`.
    UnfinishedTensorStore,
    /// A write to a register that a pending wgmma reads.
    OverwrittenOperand,
    /// What a wgmma of one warp reads is overwritten after another warp of its warpgroup said that
    /// it is done; PTX orders each warp after its own `wgmma.wait_group` only.
    WarpgroupRelease,
    /// Warps of a warpgroup execute different wgmma, or some none.
    DivergentWarpgroup,
    /// Use of uninitialised shared memory.
    UninitialisedShared,
    /// Use of global memory that neither the host nor a kernel wrote.
    UninitialisedGlobal,
    /// Use of local memory that its thread never wrote.
    UninitialisedLocal,
    /// Use of tensor memory that nobody wrote since it was allocated.
    UninitialisedTensor,
    /// Unordered accesses to shared memory by different warps, one of them a write; or a write to
    /// the source of a pending MMA or bulk copy.
    SharedRace,
    /// Unordered accesses to global memory by different warps, one of them a write.
    GlobalRace,
    /// Unordered accesses by threads of one warp, one of them a write.
    WarpRace,
    /// A TMA copy or wgmma reads generic-proxy writes without an intervening `fence.proxy.async`.
    MissingProxyFence,
    /// `ld.global.nc` of bytes that the launch writes.
    NonCoherentLoad,
    /// An access to global memory by a thread that no `griddepcontrol.wait` comes before, in a
    /// launch that may begin before the launch before it has ended.
    EarlyAccess,
    /// A copy completes on an mbarrier without a fence after its initialisation.
    MissingBarrierFence,
    /// An access to the shared memory of another block, which may not have started.
    UnstartedPeer,
    /// Threads wait for each other at different places.
    DivergentBarrier,
    /// Threads arrive at one barrier with different thread counts.
    BarrierMismatch,
    /// A thread exits before waiting for an asynchronous copy that it issued, or a block while one
    /// reads its shared memory.
    LeakedCopy,
}

impl FindingKind {
    /// All kinds.
    pub const ALL: [FindingKind; 23] = [
        FindingKind::UninitialisedRegister,
        FindingKind::UnfinishedProduct,
        FindingKind::UnfencedRegister,
        FindingKind::UnfinishedTensorLoad,
        FindingKind::UnfinishedTensorStore,
        FindingKind::OverwrittenOperand,
        FindingKind::WarpgroupRelease,
        FindingKind::DivergentWarpgroup,
        FindingKind::UninitialisedShared,
        FindingKind::UninitialisedGlobal,
        FindingKind::UninitialisedLocal,
        FindingKind::UninitialisedTensor,
        FindingKind::SharedRace,
        FindingKind::GlobalRace,
        FindingKind::WarpRace,
        FindingKind::MissingProxyFence,
        FindingKind::NonCoherentLoad,
        FindingKind::EarlyAccess,
        FindingKind::MissingBarrierFence,
        FindingKind::UnstartedPeer,
        FindingKind::DivergentBarrier,
        FindingKind::BarrierMismatch,
        FindingKind::LeakedCopy,
    ];

    /// The kind of a name, with hyphens for spaces: `leaked-asynchronous-copy`.
    pub fn named(name: &str) -> Option<FindingKind> {
        let alike = |kind: &FindingKind| kind.name().replace(' ', "-") == name;
        FindingKind::ALL.into_iter().find(alike)
    }

    /// Heading of the report.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::UninitialisedRegister => "uninitialised register",
            FindingKind::UnfinishedProduct => "unfinished product",
            FindingKind::UnfencedRegister => "unfenced register",
            FindingKind::UnfinishedTensorLoad => "unfinished tensor load",
            FindingKind::UnfinishedTensorStore => "unfinished tensor store",
            FindingKind::OverwrittenOperand => "overwritten operand",
            FindingKind::WarpgroupRelease => "release for a warpgroup",
            FindingKind::DivergentWarpgroup => "divergent warpgroup",
            FindingKind::UninitialisedShared => "uninitialised shared memory",
            FindingKind::UninitialisedGlobal => "uninitialised global memory",
            FindingKind::UninitialisedLocal => "uninitialised local memory",
            FindingKind::UninitialisedTensor => "uninitialised tensor memory",
            FindingKind::SharedRace => "race in shared memory",
            FindingKind::GlobalRace => "race in global memory",
            FindingKind::WarpRace => "race within a warp",
            FindingKind::MissingProxyFence => "missing proxy fence",
            FindingKind::NonCoherentLoad => "non-coherent load",
            FindingKind::EarlyAccess => "access before its grid waits",
            FindingKind::MissingBarrierFence => "missing mbarrier fence",
            FindingKind::UnstartedPeer => "peer not started",
            FindingKind::DivergentBarrier => "divergent barrier",
            FindingKind::BarrierMismatch => "mismatched barrier",
            FindingKind::LeakedCopy => "leaked asynchronous copy",
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A set of kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FindingSet(u32);

impl FindingSet {
    /// No kind.
    pub const EMPTY: FindingSet = FindingSet(0);

    /// The set with another kind.
    pub const fn with(self, kind: FindingKind) -> FindingSet {
        FindingSet(self.0 | 1 << kind as u32)
    }

    /// Whether a kind is in the set.
    pub const fn has(self, kind: FindingKind) -> bool {
        self.0 >> kind as u32 & 1 != 0
    }
}

/// A thread's access in a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Description of the access: `store of 4 bytes`.
    pub what: String,
    /// Location of the access.
    pub place: Place,
}

/// An error of a kernel: what happened, the threads and instructions involved, and the remedy.
///
/// Findings of the same kind and instructions are merged; the text is that of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the finding.
    pub kind: FindingKind,
    /// Memory, register or barrier concerned: `shared+0x40`, `allocation #3 + 128 of 4096 bytes`.
    pub subject: String,
    /// Instructions involved, in program order.
    pub sites: Vec<Site>,
    /// How to fix it.
    pub remedy: String,
    /// Number of occurrences: one per lane and word.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.subject)?;
        if let Some(site) = self.sites.first() {
            write!(f, ", in kernel `{}`", site.place.kernel)?;
        }
        for Site { what, place } in &self.sites {
            let ([bx, by, bz], [tx, ty, tz]) = (place.block, place.thread);
            write!(f, "\n    {what} by block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")?;
            write!(f, "\n        at ptx line {}: `{}`", place.line, place.text)?;
            if let Some((file, line)) = &place.source {
                write!(f, " ({file}:{line})")?;
            }
        }
        let times = if self.count == 1 { "once".into() } else { format!("{} times", self.count) };
        write!(f, "\n    {}\n    found {times}", self.remedy)
    }
}

/// Kind of a finding and the ops involved.
pub(crate) type Key = (FindingKind, u32, u32);

/// Findings in order of occurrence, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    left_out: FindingSet,
    by_key: HashMap<Key, usize>,
    list: Vec<Finding>,
}

impl Findings {
    pub fn new(left_out: FindingSet) -> Findings {
        Findings { left_out, ..Findings::default() }
    }

    /// Counts a finding, unless its kind is left out; `make` creates the first of its key.
    pub fn add(&mut self, key: Key, make: impl FnOnce() -> Finding) {
        if self.left_out.has(key.0) {
            return;
        }
        match self.by_key.get(&key) {
            Some(&at) => self.list[at].count += 1,
            None => {
                self.by_key.insert(key, self.list.len());
                self.list.push(make());
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn take(&mut self) -> Vec<Finding> {
        self.by_key.clear();
        std::mem::take(&mut self.list)
    }
}
