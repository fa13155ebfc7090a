//! What a launch overwrites in global memory, so that it can be started over.

use crate::memory::Table;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// An allocation before the launch wrote to it.
#[derive(Debug)]
struct Saved {
    words: Vec<u32>,
    written: Vec<u32>,
}

/// Allocations of a table, saved before the first write to each.
#[derive(Debug)]
pub(crate) struct Undo(Vec<OnceLock<Saved>>);

impl Undo {
    pub fn new(table: &Table) -> Undo {
        Undo((0..table.count()).map(|_| OnceLock::new()).collect())
    }

    /// Saves an allocation that is about to be written to.
    pub fn save(&self, table: &Table, index: usize) {
        let (Some(place), Some(allocation)) = (self.0.get(index), table.get(index)) else { return };
        place.get_or_init(|| Saved {
            words: allocation.words.iter().map(|word| word.load(Relaxed)).collect(),
            written: allocation.written.bits(),
        });
    }

    /// Restores the words, by allocation and index, that the launch `wrote`: others may belong to
    /// launches under way elsewhere.
    pub fn restore(&self, table: &Table, wrote: impl Fn(usize, usize) -> bool) {
        for (index, saved) in self.0.iter().enumerate() {
            let (Some(Saved { words, written }), Some(allocation)) =
                (saved.get(), table.get(index))
            else {
                continue;
            };
            for (at, (word, &value)) in allocation.words.iter().zip(words).enumerate() {
                if wrote(index, at) {
                    word.store(value, Relaxed);
                    allocation.written.restore(at, written);
                }
            }
        }
    }
}
