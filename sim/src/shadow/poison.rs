//! The values that nobody wrote, by register.

use crate::tracked::Tracked;

/// The op of a register that was never written.
pub(crate) const NEVER: u32 = u32::MAX;

/// The place of a guard among the operands.
pub(crate) const GUARD: u16 = u16::MAX;

/// The lanes of a register whose value nobody wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Poison {
    pub lanes: u32,
    /// The vector load that it came from, or [`NEVER`].
    pub from: u32,
    /// The window or allocation, and the byte, that it came from. Of a register that was never
    /// written: 0 or one more than the op that first used it, and which operand it was there.
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
