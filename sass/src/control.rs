//! What an instruction says of time: the control word in its bits 105 to 125.

/// When an instruction issues, and what may issue after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Clocks until the warp's next instruction may issue.
    pub stall: u8,
    /// Whether the scheduler prefers to go on with another warp.
    pub yields: bool,
    /// Scoreboard that is released when the result has been written.
    pub write: Option<u8>,
    /// Scoreboard that is released when the operands have been read.
    pub read: Option<u8>,
    /// Scoreboards that the instruction waits for, a bit each.
    pub wait: u8,
    /// Operands kept for the next instruction, a bit each.
    pub reuse: u8,
}

/// Number of scoreboards of a warp.
pub(crate) const SCOREBOARDS: usize = 6;

impl Control {
    pub(crate) fn of(word: u128) -> Control {
        let field = |at: u32, bits: u32| (word >> at) as u8 & ((1 << bits) - 1);
        let scoreboard = |at: u32| Some(field(at, 3)).filter(|&of| usize::from(of) < SCOREBOARDS);
        Control {
            stall: field(105, 4),
            // The bit is set where the scheduler stays with the warp.
            yields: field(109, 1) == 0,
            write: scoreboard(110),
            read: scoreboard(113),
            wait: field(116, 6),
            reuse: field(122, 4),
        }
    }
}
