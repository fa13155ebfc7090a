//! Which bytes of an allocation were ever written: a bit for each.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The bits of one allocation.
#[derive(Debug)]
pub(crate) struct Written {
    bits: Box<[AtomicU32]>,
    /// The allocation's number on its device, from 1.
    pub number: u64,
}

/// Runs `f` on each word of bits that a range touches, with the bits in it.
fn words_of(offset: u64, bytes: u64, mut f: impl FnMut(usize, u32) -> bool) -> bool {
    let (mut at, end) = (offset, offset + bytes);
    while at < end {
        let next = (at / 32 + 1) * 32;
        let count = next.min(end) - at;
        let mask = if count == 32 { u32::MAX } else { ((1_u32 << count) - 1) << (at % 32) };
        if !f((at / 32) as usize, mask) {
            return false;
        }
        at = next;
    }
    true
}

impl Written {
    /// No byte is written; `bits` holds a zeroed bit for each.
    pub fn new(number: u64, bits: Box<[AtomicU32]>) -> Written {
        Written { bits, number }
    }

    /// Sets whether a range was written.
    pub fn set(&self, offset: u64, bytes: u64, written: bool) {
        words_of(offset, bytes, |word, mask| {
            match (written, mask) {
                (true, u32::MAX) => self.bits[word].store(mask, Relaxed),
                (true, _) => _ = self.bits[word].fetch_or(mask, Relaxed),
                (false, _) => _ = self.bits[word].fetch_and(!mask, Relaxed),
            }
            true
        });
    }

    /// Whether all of a range was written.
    pub fn all(&self, offset: u64, bytes: u64) -> bool {
        words_of(offset, bytes, |word, mask| self.bits[word].load(Relaxed) & mask == mask)
    }

    /// The first byte of a range that was not written.
    pub fn first_unset(&self, offset: u64, bytes: u64) -> Option<u64> {
        (offset..offset + bytes).find(|&at| !self.all(at, 1))
    }
}
