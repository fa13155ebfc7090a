//! An mbarrier object in shared memory: 64 bits that count arrivals and bytes.
//!
//! A phase completes when no arrivals and no bytes are pending; the next one starts immediately
//! with the expected arrivals. The object holds its entire state, so copying shared memory copies
//! it, and the state token of an arrival is the object's previous value.

use std::fmt;

/// Location of an mbarrier: rank of its block in the cluster, and offset in its shared memory.
pub(crate) type BarrierAddress = (usize, u64);

/// Maximum number of arrivals, and of pending bytes in either direction.
pub(crate) const COUNT_MAX: u32 = (1 << 20) - 1;

/// A decoded mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mbarrier {
    /// Pending arrivals of the phase.
    pub pending: u32,
    /// Expected arrivals of the next phase.
    expected: u32,
    /// Pending bytes of the phase.
    bytes: i32,
    /// Parity of the phase.
    pub odd: bool,
}

/// Why an mbarrier rejects an operation.
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

/// Tag that distinguishes an mbarrier from other data.
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
            // Sign extension.
            bytes: ((bits << 3) as i64 >> 43) as i32,
            odd: bits >> 61 & 1 != 0,
        })
    }

    /// Phase parity of the object at an offset of shared memory, if there is one.
    pub fn parity(shared: &[u32], at: u64) -> bool {
        shared.get(at as usize / 4 + 1).is_some_and(|high| high >> 29 & 1 != 0)
    }

    pub fn encode(self) -> u64 {
        let bytes = (self.bytes as u64 & ((1 << 21) - 1)) << 40;
        let counts = u64::from(self.pending) | u64::from(self.expected) << 20;
        MARK | u64::from(self.odd) << 61 | bytes | counts
    }

    /// Counts arrivals; `drops` removes them from later phases as well.
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

    /// Whether `count` arrivals would complete the phase.
    pub fn completes(self, count: u32) -> bool {
        self.pending == count && self.bytes == 0
    }

    /// Adds a pending arrival to this phase only.
    pub fn join(&mut self) -> Result<(), Refusal> {
        if self.pending == COUNT_MAX {
            return Err(Refusal::Count(self.pending + 1));
        }
        self.pending += 1;
        Ok(())
    }

    /// Adds pending bytes, or subtracts arrived ones.
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
