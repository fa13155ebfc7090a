//! Asynchronous reads of shared memory: operands of `wgmma` and sources of TMA copies. They start
//! like other reads. Until they are waited for, any write to their source is a conflict, whatever
//! its order relative to the start. Waiting reads again, in the epoch of the waiting thread.

use super::clocks::Event;
use std::ops::Range;

/// Completion mechanism of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A `wgmma` of the warp, with its group once committed.
    Product(Option<u32>),
    /// A TMA copy of the thread, with its group.
    Bulk(u32),
}

/// A pending asynchronous read.
#[derive(Debug)]
pub(crate) struct OpenRead {
    /// Rank whose shared memory is read.
    pub rank: usize,
    /// Start of the read.
    pub event: Event,
    pub ending: Ending,
    /// Sorted, disjoint ranges.
    pub ranges: Vec<Range<u64>>,
}

impl OpenRead {
    /// First byte of a range that is being read.
    pub fn meets(&self, range: Range<u64>) -> Option<u64> {
        let next = self.ranges.partition_point(|mine| mine.end <= range.start);
        let mine = self.ranges.get(next).filter(|mine| mine.start < range.end)?;
        Some(mine.start.max(range.start))
    }
}

/// Sorts ranges and merges adjacent ones.
pub(super) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_join_and_meet() {
        let event = Event { block: 0, clock: 0, warp: 0, lane: 0, many: false, epoch: 1, pc: 0 };
        let ranges = joined(vec![64..80, 0..16, 16..32, 64..80, 128..144]);
        assert_eq!(ranges, [0..32, 64..80, 128..144]);
        let read = OpenRead { rank: 0, event, ending: Ending::Bulk(0), ranges };
        assert_eq!(read.meets(32..64), None);
        assert_eq!(read.meets(40..65), Some(64));
        assert_eq!(read.meets(8..12), Some(8));
        assert_eq!(read.meets(140..200), Some(140));
        assert_eq!(read.meets(144..200), None);
    }
}
