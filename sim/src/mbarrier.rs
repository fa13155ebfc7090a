//! A barrier object in shared memory: 64 bits that count arrivals and bytes.
//!
//! The phase completes when no arrivals and no bytes are pending; the next begins at once with the
//! expected arrivals. The object is its own state, so copying shared memory copies it, and the
//! state that an arrival gives is the object as it was before.

use std::fmt;

/// A barrier's place: the rank of its block in the cluster, and the offset in its shared memory.
pub(crate) type BarrierAddress = (usize, u64);

/// The most arrivals, and the most bytes that may be pending either way.
pub(crate) const COUNT_MAX: u32 = (1 << 20) - 1;

/// A decoded barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mbarrier {
    /// Arrivals that the phase waits for.
    pub pending: u32,
    /// Arrivals of the next phase.
    expected: u32,
    /// Bytes that the phase waits for.
    bytes: i32,
    /// The phase's parity.
    pub odd: bool,
}

/// Why a barrier refuses an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotInitialised,
    Count(u32),
    Arrivals { count: u32, pending: u32 },
    Completes,
    Bytes(i64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotInitialised => f.write_str("it is not initialised"),
            Refusal::Count(count) => write!(f, "count {count} is not within 1 and {COUNT_MAX}"),
            Refusal::Arrivals { count, pending } => {
                write!(f, "{count} arrivals where {pending} are pending")
            }
            Refusal::Completes => f.write_str("an arrival with .noComplete completes the phase"),
            Refusal::Bytes(bytes) => {
                write!(f, "a tx-count of {bytes} bytes is not within {COUNT_MAX} either way")
            }
        }
    }
}

/// What tells a barrier from other bits.
const MARK: u64 = 0b10 << 62;

impl Mbarrier {
    pub fn new(count: u32) -> Result<Mbarrier, Refusal> {
        if count == 0 || count > COUNT_MAX {
            return Err(Refusal::Count(count));
        }
        Ok(Mbarrier { pending: count, expected: count, bytes: 0, odd: false })
    }

    pub fn decode(bits: u64) -> Result<Mbarrier, Refusal> {
        if bits >> 62 != MARK >> 62 {
            return Err(Refusal::NotInitialised);
        }
        Ok(Mbarrier {
            pending: bits as u32 & COUNT_MAX,
            expected: (bits >> 20) as u32 & COUNT_MAX,
            // Shifted up to the sign and back.
            bytes: ((bits << 3) as i64 >> 43) as i32,
            odd: bits >> 61 & 1 != 0,
        })
    }

    /// The parity of the phase of the object at an offset of shared memory, if there is one.
    pub fn parity(shared: &[u32], at: u64) -> bool {
        shared.get(at as usize / 4 + 1).is_some_and(|high| high >> 29 & 1 != 0)
    }

    pub fn encode(self) -> u64 {
        let bytes = (self.bytes as u64 & ((1 << 21) - 1)) << 40;
        let counts = u64::from(self.pending) | u64::from(self.expected) << 20;
        MARK | u64::from(self.odd) << 61 | bytes | counts
    }

    /// Notes arrivals, which leave the barrier for good if they drop out.
    pub fn arrive(&mut self, count: u32, drops: bool) -> Result<(), Refusal> {
        if count == 0 {
            return Err(Refusal::Count(count));
        }
        if count > self.pending || drops && count > self.expected {
            return Err(Refusal::Arrivals { count, pending: self.pending });
        }
        self.pending -= count;
        if drops {
            self.expected -= count;
        }
        self.settle();
        Ok(())
    }

    /// Whether so many arrivals would complete the phase.
    pub fn completes(self, count: u32) -> bool {
        self.pending == count && self.bytes == 0
    }

    /// One more arrival is pending, in this phase only.
    pub fn join(&mut self) -> Result<(), Refusal> {
        if self.pending == COUNT_MAX {
            return Err(Refusal::Count(self.pending + 1));
        }
        self.pending += 1;
        Ok(())
    }

    /// Adds bytes that are to come, or takes off those that came.
    pub fn transfer(&mut self, bytes: i64) -> Result<(), Refusal> {
        let sum = i64::from(self.bytes) + bytes;
        if sum.unsigned_abs() > COUNT_MAX.into() {
            return Err(Refusal::Bytes(sum));
        }
        self.bytes = sum as i32;
        self.settle();
        Ok(())
    }

    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.expected;
            self.odd = !self.odd;
        }
    }
}
