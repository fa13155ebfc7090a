//! Continuation of a warp after an op.

/// Poll weight of a strong load, exchange, compare-and-swap or sleep.
pub(super) const POLL_STRONG: u32 = 8;
/// Poll weight of other atomics, which rarely spin.
pub(super) const POLL_ATOMIC: u32 = 1;

/// Total poll weight that ends a slice.
pub(super) const POLL_MAX: u32 = 24;

/// Outcome of an op. The tag is a word because it is read as one: after a byte store that read
/// would stall.
#[repr(u32)]
pub(super) enum Next {
    Go,
    /// The lanes continue after the op, with this poll weight.
    Poll(u32),
    /// These lanes stay at the op, to try again on a later turn.
    Retry(u32),
    /// These lanes stay at the op, waiting for others of the warp.
    WaitLanes(u32),
    /// These lanes wait at a barrier.
    WaitBarrier(u32, u8),
}
