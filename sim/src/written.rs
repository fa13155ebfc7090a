//! Initialisation of an allocation, as one bit per byte.

use crate::words::Words;
use std::sync::atomic::Ordering::Relaxed;

/// Initialisation bits of an allocation.
#[derive(Debug)]
pub(crate) struct Written {
    bits: Words,
    /// Number of the allocation on its device, from 1.
    pub number: u64,
}

/// Calls `f` for each word of bits that a range touches, with its mask.
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
    /// Creates the state of an uninitialised allocation; `bits` holds a zeroed bit per byte.
    pub fn new(number: u64, bits: Words) -> Written {
        Written { bits, number }
    }

    /// All bits.
    pub fn bits(&self) -> Vec<u32> {
        self.bits.iter().map(|word| word.load(Relaxed)).collect()
    }

    /// Restores the bits of a word of the allocation, given all bits as they were.
    pub fn restore(&self, word: usize, bits: &[u32]) {
        let mask = 0xf << (word % 8 * 4);
        let set = bits[word / 8] & mask;
        self.bits[word / 8].fetch_and(set | !mask, Relaxed);
        self.bits[word / 8].fetch_or(set, Relaxed);
    }

    /// Marks a range as initialised or not.
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

    /// Whether a range is fully initialised.
    pub fn all(&self, offset: u64, bytes: u64) -> bool {
        words_of(offset, bytes, |word, mask| self.bits[word].load(Relaxed) & mask == mask)
    }

    /// First uninitialised byte of a range.
    pub fn first_unset(&self, offset: u64, bytes: u64) -> Option<u64> {
        (offset..offset + bytes).find(|&at| !self.all(at, 1))
    }
}
