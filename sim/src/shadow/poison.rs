//! Uninitialised values of registers.

use crate::tracked::Tracked;

/// Op number of a register that was never written.
pub(crate) const NEVER: u32 = u32::MAX;

/// Operand position that stands for the guard.
pub(crate) const GUARD: u16 = u16::MAX;

/// Lanes of a register with an uninitialised value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Poison {
    pub lanes: u32,
    /// The vector load that loaded the value, or [`NEVER`].
    pub from: u32,
    /// Area and byte from which the value was loaded. For a register that was never written: 0, or
    /// one more than the op that first used it; and the operand position.
    pub area: u64,
    pub at: u64,
}

impl Poison {
    pub const NONE: Poison = Poison { lanes: 0, from: NEVER, area: 0, at: 0 };

    /// The tracked registers at the start of a kernel.
    pub fn start(tracked: &Tracked) -> Vec<Poison> {
        let lanes = |unwritten: &bool| if *unwritten { u32::MAX } else { 0 };
        tracked
            .unwritten
            .iter()
            .map(|unwritten| Poison { lanes: lanes(unwritten), ..Poison::NONE })
            .collect()
    }
}
