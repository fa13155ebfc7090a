//! Selection of sanitizer checks.

use std::str::FromStr;

/// Classes of errors that a launch checks for. Bounds and alignment are always checked.
///
/// A launch with any check runs on one worker, so that findings do not depend on the host; one
/// without checks has no overhead.
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
}

impl Checks {
    /// All checks.
    pub const ALL: Checks =
        Checks { uninitialised: true, shared_races: true, global_races: true, barriers: true };
    /// No checks.
    pub const NONE: Checks =
        Checks { uninitialised: false, shared_races: false, global_races: false, barriers: false };

    /// Whether races are checked for, which requires tracking the order of accesses.
    pub(crate) fn races(self) -> bool {
        self.shared_races || self.global_races
    }
}

impl FromStr for Checks {
    type Err = String;

    /// Parses `all`, `none`, or a list of `uninitialised,shared,global,barriers`.
    fn from_str(text: &str) -> Result<Checks, String> {
        let mut checks = Checks::NONE;
        for name in text.split(',') {
            match name {
                "all" => checks = Checks::ALL,
                "none" => {}
                "uninitialised" => checks.uninitialised = true,
                "shared" => checks.shared_races = true,
                "global" => checks.global_races = true,
                "barriers" => checks.barriers = true,
                other => return Err(format!("unknown check `{other}`")),
            }
        }
        Ok(checks)
    }
}
