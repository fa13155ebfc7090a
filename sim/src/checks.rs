//! Selection of sanitizer checks.

use crate::finding::{FindingKind, FindingSet};
use std::str::FromStr;

/// Classes of errors that a launch checks for. Bounds and alignment are always checked.
///
/// Findings do not depend on the number of workers. Several run a launch where its blocks share
/// nothing that they write, and nothing is found; a launch without checks has no overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Checks {
    /// Reads of uninitialised registers, shared, global and local memory, and of wgmma accumulators
    /// that have not been waited for.
    pub uninitialised: bool,
    /// Data races on shared memory, between threads and with asynchronous copies.
    pub shared_races: bool,
    /// Data races on global memory.
    pub global_races: bool,
    /// Barriers with mismatched arrivals or divergent threads.
    pub barriers: bool,
    /// Kinds of findings that are not reported.
    pub left_out: FindingSet,
}

impl Checks {
    /// No checks.
    pub const NONE: Checks = Checks {
        uninitialised: false,
        shared_races: false,
        global_races: false,
        barriers: false,
        left_out: FindingSet::EMPTY,
    };
    /// All checks.
    pub const ALL: Checks = Checks {
        uninitialised: true,
        shared_races: true,
        global_races: true,
        barriers: true,
        ..Checks::NONE
    };

    /// The same checks without the findings of a kind, such as one that is stricter than what
    /// hardware in practice does.
    pub const fn without(self, kind: FindingKind) -> Checks {
        Checks { left_out: self.left_out.with(kind), ..self }
    }

    /// Whether races are checked for, which requires tracking the order of accesses.
    pub(crate) fn races(self) -> bool {
        self.shared_races || self.global_races
    }
}

impl FromStr for Checks {
    type Err = String;

    /// Parses `all`, `none`, or a list of `uninitialised,shared,global,barriers`; and kinds of
    /// findings to leave out, such as `all,-leaked-asynchronous-copy`.
    fn from_str(text: &str) -> Result<Checks, String> {
        let (mut checks, mut left_out) = (Checks::NONE, Vec::new());
        for name in text.split(',') {
            match name {
                "all" => checks = Checks::ALL,
                "none" => {}
                "uninitialised" => checks.uninitialised = true,
                "shared" => checks.shared_races = true,
                "global" => checks.global_races = true,
                "barriers" => checks.barriers = true,
                other => {
                    let kind = other.strip_prefix('-').and_then(FindingKind::named);
                    left_out.push(kind.ok_or_else(|| format!("unknown check `{other}`"))?);
                }
            }
        }
        Ok(left_out.into_iter().fold(checks, Checks::without))
    }
}
