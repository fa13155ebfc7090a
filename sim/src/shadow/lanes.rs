//! The lanes of an access to one allocation or window.

use crate::groups::{GROUP, Pattern};
use crate::registers::LANES;

/// The lanes of an access to one allocation or window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    /// Byte offset of each lane; undefined for inactive lanes.
    pub offsets: [u64; LANES],
    pub active: u32,
    /// Bytes per lane; offsets are multiples of it.
    pub bytes: u32,
    /// Whether all lanes are active and access consecutive whole words.
    pub run: bool,
    /// Whether all lanes have the same address.
    pub uniform: bool,
    /// Distance between neighbouring lanes in groups of eight that are active as a whole and access
    /// consecutive whole words, or one address.
    pub step: Option<u64>,
}

impl Lanes {
    /// Lanes without a common pattern.
    pub fn apart(offsets: [u64; LANES], active: u32, bytes: u32) -> Lanes {
        Lanes { offsets, active, bytes, run: false, uniform: false, step: None }
    }

    /// The active lanes of a pattern, with a number of bytes each.
    #[inline(always)]
    pub fn new(pattern: &Pattern, active: u32, bytes: u32) -> Lanes {
        let offsets = pattern.offsets();
        let mut firsts = offsets.iter().step_by(GROUP).zip(0..);
        let row = u64::from(bytes) * GROUP as u64;
        let (mut run, mut uniform) = (false, false);
        match pattern.step() {
            Some(0) => uniform = firsts.all(|(&first, _)| first == offsets[0]),
            Some(_) => {
                let whole = active == u32::MAX && bytes.is_multiple_of(4);
                run = whole && firsts.all(|(&first, group)| first == offsets[0] + group * row);
            }
            None => uniform = offsets.iter().all(|&offset| offset == offsets[0]),
        }
        let step = pattern.step().filter(|_| bytes.is_multiple_of(4));
        Lanes { offsets, active, bytes, run, uniform, step }
    }

    /// First lanes of the active groups, for lanes with a step.
    #[inline(always)]
    pub fn groups(&self) -> impl Iterator<Item = usize> + use<> {
        let active = self.active;
        (0..LANES).step_by(GROUP).filter(move |lane| active >> lane & 1 != 0)
    }

    /// Words of a group with a step.
    #[inline(always)]
    pub fn group_words(&self, lane: usize) -> std::ops::Range<usize> {
        let first = self.offsets[lane] as usize / 4;
        first..self.offsets[lane + GROUP - 1] as usize / 4 + self.lane_words()
    }

    /// Bytes spanned by a group with a step.
    #[inline(always)]
    pub fn group_bytes(&self, lane: usize) -> u64 {
        self.offsets[lane + GROUP - 1] + u64::from(self.bytes) - self.offsets[lane]
    }

    /// Active lanes.
    #[inline(always)]
    pub fn each(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.active;
        std::iter::from_fn(move || {
            let lane = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (lane < LANES).then_some(lane)
        })
    }

    /// Lane and word pairs if every lane accesses one whole word, as in most accesses.
    #[inline(always)]
    pub fn single_words(&self) -> Option<impl Iterator<Item = (usize, usize)> + '_> {
        let word = |lane: usize| (lane, self.offsets[lane] as usize / 4);
        (self.bytes == 4).then(|| self.each().map(word))
    }

    /// Words per lane, at least one.
    pub fn lane_words(&self) -> usize {
        (self.bytes as usize).div_ceil(4)
    }

    /// A lane's words, and the mask of accessed bytes in each.
    pub fn words(&self, lane: usize) -> (std::ops::Range<usize>, u64) {
        let at = self.offsets[lane];
        let first = at as usize / 4;
        let mask = if self.bytes >= 4 { 0xf } else { ((1 << self.bytes) - 1) << (at % 4) };
        (first..first + self.lane_words(), mask)
    }

    /// Lanes whose address equals that of an earlier lane.
    pub fn repeated(&self) -> u32 {
        let mut last = None;
        let rising = self.each().all(|lane| {
            let before = last.replace(self.offsets[lane]);
            before.is_none_or(|before| before < self.offsets[lane])
        });
        if rising {
            return 0;
        }
        let (mut sorted, count) = (self.offsets, self.active.count_ones() as usize);
        self.each().zip(&mut sorted).for_each(|(lane, offset)| *offset = self.offsets[lane]);
        sorted[..count].sort_unstable();
        if sorted[..count].windows(2).all(|pair| pair[0] != pair[1]) {
            return 0;
        }
        let repeats = self.each().filter(|&lane| self.first_alike(lane) != lane);
        repeats.fold(0, |mask, lane| mask | 1 << lane)
    }

    /// First lane with the address of `lane`.
    pub fn first_alike(&self, lane: usize) -> usize {
        self.each().find(|&other| self.offsets[other] == self.offsets[lane]).unwrap_or(lane)
    }

    /// Restricts to some lanes.
    pub fn only(&self, active: u32) -> Lanes {
        let step = self.step.filter(|_| active == self.active);
        Lanes { active, run: self.run && active == u32::MAX, step, ..*self }
    }
}

/// The bytes of one lane.
pub(crate) fn one(lane: usize, at: u64, bytes: u64) -> Lanes {
    let (offsets, active) = ([at; LANES], 1 << lane);
    Lanes::apart(offsets, active, bytes as u32)
}

/// Any bytes of one lane, in parts that begin and end at words or are single bytes.
pub(crate) fn whole(lane: usize, at: u64, bytes: u64) -> Vec<Lanes> {
    let end = at + bytes;
    let (first, last) = (at.next_multiple_of(4).min(end), end - end % 4);
    let single = |at: u64| one(lane, at, 1);
    let mut out: Vec<Lanes> = (at..first).map(single).collect();
    if first < last {
        out.push(one(lane, first, last - first));
    }
    out.extend((last.max(first)..end).map(single));
    out
}

/// 16-byte chunks, one per lane.
pub(crate) fn pieces(starts: &[u64]) -> Vec<Lanes> {
    let chunks = starts.chunks(LANES).map(|chunk| {
        let mut offsets = [0; LANES];
        offsets[..chunk.len()].copy_from_slice(chunk);
        let active = u32::MAX >> (LANES - chunk.len());
        Lanes::apart(offsets, active, 16)
    });
    chunks.collect()
}
