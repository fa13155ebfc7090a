//! What a launch looks for.

/// Classes of mistakes that a launch looks for. Bounds and alignment are always checked.
///
/// A launch that looks for anything runs on one worker, so that what it finds does not depend on
/// the host; one that looks for nothing pays nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Checks {
    /// Reads of registers, shared, global and local memory that nobody wrote, and of products of
    /// warpgroups that were not waited for.
    pub uninitialised: bool,
    /// Unordered accesses to shared memory, of which one writes, by threads and by asynchronous
    /// copies.
    pub shared_races: bool,
    /// Unordered accesses to global memory, of which one writes.
    pub global_races: bool,
    /// Barriers whose arrivals disagree, or that threads reach divided.
    pub barriers: bool,
}

impl Checks {
    /// Every class.
    pub const ALL: Checks =
        Checks { uninitialised: true, shared_races: true, global_races: true, barriers: true };
    /// No class.
    pub const NONE: Checks =
        Checks { uninitialised: false, shared_races: false, global_races: false, barriers: false };

    /// Whether a class of races is looked for, so that the order of accesses must be known.
    pub(crate) fn races(self) -> bool {
        self.shared_races || self.global_races
    }
}
