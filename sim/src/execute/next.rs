//! How a warp goes on after an op.

/// What a strong load, an exchange, a compare-and-swap or a sleep weighs.
pub(super) const POLL_STRONG: u32 = 8;
/// What another atomic weighs: few of them spin.
pub(super) const POLL_ATOMIC: u32 = 1;

/// What an op did, besides going on. The tag is a word, as it is read: a byte written just before
/// would stall that.
#[repr(u32)]
pub(super) enum Next {
    Go,
    /// The lanes go on after it, having weighed so many polls.
    Poll(u32),
    /// These lanes stay where they are, for others of the warp.
    WaitLanes(u32),
    /// These lanes wait at a barrier.
    WaitBarrier(u32, u8),
}
