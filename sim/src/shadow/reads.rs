//! Asynchronous reads of shared memory: operands of `wgmma` and `tcgen05`, and sources of TMA
//! copies. They start like other reads. Until they are waited for, any write to their source is a
//! conflict, whatever its order relative to the start. Waiting reads again, in the epoch of the
//! waiting thread; reads of `tcgen05` end with a commit, for whoever waits for its mbarrier.

use super::clocks::Event;
use super::tensor::TensorRead;
use std::ops::Range;
use std::rc::Rc;

/// Completion mechanism of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A `wgmma` of the warp, with its group once committed.
    Product(Option<u32>),
    /// A TMA copy of the thread, with its group.
    Bulk(u32),
    /// An MMA or copy on tensor memory.
    Tensor(TensorRead),
}

/// Sorted, disjoint ranges.
pub(crate) type Sorted = Rc<[Range<u64>]>;

/// A pending asynchronous read.
#[derive(Debug)]
pub(crate) struct OpenRead {
    /// Rank whose shared memory is read.
    pub rank: usize,
    /// Start of the read.
    pub event: Event,
    pub ending: Ending,
    pub ranges: Vec<Sorted>,
}

impl OpenRead {
    /// First byte of a range that is being read.
    pub fn meets(&self, range: Range<u64>) -> Option<u64> {
        self.ranges.iter().find_map(|list| {
            let next = list.partition_point(|mine| mine.end <= range.start);
            let mine = list.get(next).filter(|mine| mine.start < range.end)?;
            Some(mine.start.max(range.start))
        })
    }
}

/// Sorts ranges and merges adjacent ones.
pub(crate) fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Sorted ranges of chunks of 16 bytes, from where they start; adjacent ones are merged.
pub(crate) fn joined_chunks(starts: &[u64]) -> Vec<Range<u64>> {
    const CHUNK: u64 = 16;
    // A bit per chunk.
    let mut bits: Vec<u64> = Vec::new();
    for chunk in starts.iter().map(|start| start / CHUNK) {
        let word = chunk as usize / 64;
        if word >= bits.len() {
            bits.resize(word + 1, 0);
        }
        bits[word] |= 1 << (chunk % 64);
    }
    let mut out: Vec<Range<u64>> = Vec::with_capacity(starts.len());
    for (word, mut left) in (0..).zip(bits) {
        while left != 0 {
            let low = left.trailing_zeros();
            let run = (left >> low).trailing_ones();
            left &= !(u64::MAX >> (64 - run) << low);
            let start = (word * 64 + u64::from(low)) * CHUNK;
            let end = start + u64::from(run) * CHUNK;
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
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
        assert_eq!(joined_chunks(&[64, 0, 16, 128]), ranges);
        assert_eq!(joined_chunks(&[1024, 1008, 4096, 992]), [992..1040, 4096..4112]);
        let ranges = vec![ranges[..1].into(), ranges[1..].into()];
        let read = OpenRead { rank: 0, event, ending: Ending::Bulk(0), ranges };
        assert_eq!(read.meets(32..64), None);
        assert_eq!(read.meets(40..65), Some(64));
        assert_eq!(read.meets(8..12), Some(8));
        assert_eq!(read.meets(140..200), Some(140));
        assert_eq!(read.meets(144..200), None);
    }
}
