//! The lanes of one access in one allocation or window, as the shadows go through them.

use crate::registers::LANES;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lanes {
    /// Each lane's byte offset; only those of active lanes mean anything.
    pub offsets: [u64; LANES],
    pub active: u32,
    /// Bytes of each lane, at a multiple of which its offset is.
    pub bytes: u32,
    /// Whether all lanes take part, one after the other, with whole words.
    pub run: bool,
    /// Whether the lanes have one address.
    pub uniform: bool,
}

impl Lanes {
    /// Lanes in one range; inactive ones have some active one's offset.
    pub fn place(&mut self, offsets: [u64; LANES]) {
        let (first, bytes) = (offsets[0], u64::from(self.bytes));
        let whole = self.active == u32::MAX && self.bytes.is_multiple_of(4);
        let mut lanes = offsets.iter().zip(0..);
        self.run = whole && lanes.all(|(&offset, lane)| offset == first + lane * bytes);
        self.uniform = offsets.iter().all(|&offset| offset == first);
        self.offsets = offsets;
    }

    /// Whole lanes of a mask.
    #[inline(always)]
    pub fn each(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.active;
        std::iter::from_fn(move || {
            let lane = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (lane < LANES).then_some(lane)
        })
    }

    /// Words that lanes touch one of each, in whole: what most accesses are.
    #[inline(always)]
    pub fn single_words(&self) -> Option<impl Iterator<Item = (usize, usize)> + '_> {
        let word = |lane: usize| (lane, self.offsets[lane] as usize / 4);
        (self.bytes == 4).then(|| self.each().map(word))
    }

    /// The first word of the first lane, and how many words a run has.
    pub fn run_words(&self) -> std::ops::Range<usize> {
        let first = self.offsets[0] as usize / 4;
        first..first + LANES * self.lane_words()
    }

    /// Words of a lane, at least one.
    pub fn lane_words(&self) -> usize {
        (self.bytes as usize).div_ceil(4)
    }

    /// A lane's first word, and the bytes it touches in each of its words.
    pub fn words(&self, lane: usize) -> (std::ops::Range<usize>, u64) {
        let at = self.offsets[lane];
        let first = at as usize / 4;
        let mask = if self.bytes >= 4 { 0xf } else { ((1 << self.bytes) - 1) << (at % 4) };
        (first..first + self.lane_words(), mask)
    }

    /// Lanes that go where an earlier lane goes.
    pub fn repeated(&self) -> u32 {
        let mut last = None;
        let rising = self.each().all(|lane| {
            let before = last.replace(self.offsets[lane]);
            before.is_none_or(|before| before < self.offsets[lane])
        });
        if rising {
            return 0;
        }
        let repeats = self.each().filter(|&lane| self.first_alike(lane) != lane);
        repeats.fold(0, |mask, lane| mask | 1 << lane)
    }

    /// The first lane with the address of `lane`.
    pub fn first_alike(&self, lane: usize) -> usize {
        self.each().find(|&other| self.offsets[other] == self.offsets[lane]).unwrap_or(lane)
    }

    /// Only some lanes.
    pub fn only(&self, active: u32) -> Lanes {
        Lanes { active, run: self.run && active == u32::MAX, ..*self }
    }
}
