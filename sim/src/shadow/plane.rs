//! Entries of an allocation's words. A line of eight words that neighbouring lanes of one access
//! cover, as most do, has a single entry, from which those of its words follow.

use crate::groups::GROUP;
use std::ops::Range;

/// Words of a line: those of a group of lanes, or of some of its lanes.
pub(super) const LINE: usize = GROUP;

/// An entry for each word of an allocation; 0 for none.
#[derive(Debug)]
pub(super) struct Plane {
    /// Entry of each line: 0 if no word has one, or [`APART`]. Empty before the first entry.
    lines: Vec<u64>,
    /// Entries of the words of lines apart. Empty before the first line is.
    words: Vec<u64>,
    count: usize,
}

/// A line whose words have entries of their own.
pub(super) const APART: u64 = 1 << 4;
/// Bits of a line's entry beside the entry of its first word: one more than the logarithm of the
/// words of a lane.
const SHIFT: u64 = 7;

impl Plane {
    /// Creates the entries of so many words.
    pub fn new(count: usize) -> Plane {
        Plane { lines: Vec::new(), words: Vec::new(), count }
    }

    /// The entry of a line of which each lane has so many words, a power of two; `first` is that of
    /// its first word.
    pub fn line_of(first: u64, lane_words: usize) -> u64 {
        first | u64::from(lane_words.trailing_zeros() + 1)
    }

    /// Entry of a word of a line; `next` is the difference between two lanes.
    fn derived(line: u64, at: usize, next: u64) -> u64 {
        match line & SHIFT {
            0 => 0,
            shift => (line & !SHIFT) + next * (at as u64 >> (shift - 1)),
        }
    }

    /// A line's entry, 0 or [`APART`].
    #[inline(always)]
    pub fn line(&self, line: usize) -> u64 {
        if self.lines.is_empty() { 0 } else { self.lines[line] }
    }

    /// Sets a line's entry, or clears it with 0.
    pub fn set_line(&mut self, line: usize, entry: u64) {
        if self.line(line) != entry {
            self.lines_mut()[line] = entry;
        }
    }

    /// Lines that may have entries.
    pub fn lines(&self) -> Range<usize> {
        0..self.lines.len()
    }

    fn lines_mut(&mut self) -> &mut [u64] {
        if self.lines.is_empty() {
            self.lines = vec![0; self.count.div_ceil(LINE)];
        }
        &mut self.lines
    }

    /// Whether a word has an entry.
    pub fn has(&self, word: usize) -> bool {
        self.word(word, 0) != 0
    }

    pub fn word(&self, word: usize, next: u64) -> u64 {
        match self.line(word / LINE) {
            APART => self.words[word],
            line => Plane::derived(line, word % LINE, next),
        }
    }

    /// Sets a word's entry.
    pub fn set(&mut self, word: usize, next: u64, entry: u64) {
        let line = self.line(word / LINE);
        if line != APART {
            if self.words.is_empty() {
                self.words = vec![0; self.count];
            }
            let first = word / LINE * LINE;
            let words = self.words[first..].iter_mut().take(LINE).enumerate();
            words.for_each(|(at, word)| *word = Plane::derived(line, at, next));
            self.lines_mut()[word / LINE] = APART;
        }
        self.words[word] = entry;
    }

    /// Clears a word's entry, and returns it.
    pub fn take(&mut self, word: usize, next: u64) -> u64 {
        let entry = self.word(word, next);
        if entry != 0 {
            self.set(word, next, 0);
        }
        entry
    }
}
