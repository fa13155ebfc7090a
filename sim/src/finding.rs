//! What the checks report.

use crate::place::Place;
use std::collections::HashMap;
use std::fmt;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// A register is used that its thread never wrote.
    UninitialisedRegister,
    /// A register is used to which a product of its warpgroup, that was not waited for, adds.
    UnfinishedProduct,
    /// Bytes of shared memory are used that nobody wrote.
    UninitialisedShared,
    /// Bytes of global memory are used that neither host nor kernels wrote.
    UninitialisedGlobal,
    /// Bytes of local memory are used that their thread never wrote.
    UninitialisedLocal,
    /// Threads of different warps touch shared memory, one of them writes, nothing orders them; or
    /// one writes what a product or bulk copy has yet to read.
    SharedRace,
    /// Threads of different warps touch global memory, one of them writes, nothing orders them.
    GlobalRace,
    /// Threads of one warp touch memory, one of them writes, nothing orders them.
    WarpRace,
    /// A bulk copy or a product reads what threads stored, without a `fence.proxy.async` between.
    MissingProxyFence,
    /// Threads wait for each other at different places.
    DivergentBarrier,
    /// Threads arrive at one barrier with different counts.
    BarrierMismatch,
    /// A thread exits before a copy that it issued was waited for.
    LeakedCopy,
}

impl FindingKind {
    /// What a report begins with.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::UninitialisedRegister => "uninitialised register",
            FindingKind::UnfinishedProduct => "unfinished product",
            FindingKind::UninitialisedShared => "uninitialised shared memory",
            FindingKind::UninitialisedGlobal => "uninitialised global memory",
            FindingKind::UninitialisedLocal => "uninitialised local memory",
            FindingKind::SharedRace => "race in shared memory",
            FindingKind::GlobalRace => "race in global memory",
            FindingKind::WarpRace => "race within a warp",
            FindingKind::MissingProxyFence => "missing proxy fence",
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

/// One thread's part in a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// What it does: `store of 4 bytes`.
    pub what: String,
    /// Where.
    pub place: Place,
}

/// A mistake of a kernel: what, which threads and instructions, and what would have been right.
///
/// Findings of the same kind and instructions are one; the text is that of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Which memory, register or barrier: `shared+0x40`, `allocation #3 + 128 of 4096 bytes`.
    pub subject: String,
    /// The instructions that take part, in the order of the program.
    pub sites: Vec<Site>,
    /// What would have been right.
    pub remedy: String,
    /// How often it was found: once for each lane and word.
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

/// A finding's kind and the ops that take part.
pub(crate) type Key = (FindingKind, u32, u32);

/// Findings in the order in which they were met, each kept once.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_key: HashMap<Key, usize>,
    list: Vec<Finding>,
}

impl Findings {
    /// Counts a finding; `make` describes the first of its key.
    pub fn add(&mut self, key: Key, make: impl FnOnce() -> Finding) {
        match self.by_key.get(&key) {
            Some(&at) => self.list[at].count += 1,
            None => {
                self.by_key.insert(key, self.list.len());
                self.list.push(make());
            }
        }
    }

    pub fn take(&mut self) -> Vec<Finding> {
        self.by_key.clear();
        std::mem::take(&mut self.list)
    }
}
