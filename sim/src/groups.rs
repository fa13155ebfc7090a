//! Lanes in groups of eight that go to one address, or one after the other.

use crate::failure::first_lane;
use crate::registers::LANES;
use std::hint::black_box;

/// Lanes of a group: as many words as a vector holds.
pub(crate) const GROUP: usize = 8;
pub(crate) const GROUPS: usize = LANES / GROUP;
/// How many places from the first lane of a group each is: none, or one more each time.
static RAMPS: [[u64; GROUP]; 2] = [[0; GROUP], [0, 1, 2, 3, 4, 5, 6, 7]];

/// Lanes in groups of eight that go to one address, or one after the other.
pub(crate) struct Groups {
    /// Where the first lane of each group goes; a group that takes no part has another's.
    pub firsts: [u64; GROUPS],
    /// From a lane to the next one of its group: the bytes of a lane, or 0.
    pub step: u64,
}

impl Groups {
    /// The groups that lanes of `bytes` bytes form, if they do and whole groups take part.
    #[inline(always)]
    pub fn new<T: Copy + Into<u64>>(at: &[T; LANES], bytes: u64, active: u32) -> Option<Groups> {
        let leaders = active & 0x0101_0101;
        if leaders * 0xff != active {
            return None;
        }
        // Read apart from the vectors, which the compiler would build around the scalars.
        let scalars = black_box(at);
        let leader = first_lane(leaders);
        let firsts = std::array::from_fn(|group| {
            let takes_part = leaders >> (group * GROUP) & 1 != 0;
            scalars[if takes_part { group * GROUP } else { leader }].into()
        });
        let apart = usize::from(scalars[leader].into() != scalars[leader + 1].into());
        let ramp = RAMPS[apart].map(|place| place * bytes);
        let mut odd = [0; GROUP];
        for (group, lanes) in at.chunks_exact(GROUP).enumerate() {
            let kept = if leaders >> (group * GROUP) & 1 != 0 { u64::MAX } else { 0 };
            for lane in 0..GROUP {
                odd[lane] |= (lanes[lane].into() ^ firsts[group].wrapping_add(ramp[lane])) & kept;
            }
        }
        (odd == [0; GROUP]).then_some(Groups { firsts, step: apart as u64 * bytes })
    }
}

/// How lanes lie in an allocation or window, in byte offsets.
#[expect(clippy::large_enum_variant, reason = "an access has one, on the stack")]
pub(crate) enum Pattern {
    Grouped(Groups),
    /// Each lane's offset; inactive lanes have some active one's.
    Scattered([u64; LANES]),
}

impl Pattern {
    /// Each lane's offset; inactive lanes have some active one's.
    #[inline(always)]
    pub fn offsets(&self) -> [u64; LANES] {
        match self {
            Pattern::Grouped(Groups { firsts, step }) => {
                std::array::from_fn(|lane| firsts[lane / GROUP] + step * (lane % GROUP) as u64)
            }
            Pattern::Scattered(offsets) => *offsets,
        }
    }

    /// The step of the groups that the lanes form, if they do.
    pub fn step(&self) -> Option<u64> {
        match *self {
            Pattern::Grouped(Groups { step, .. }) => Some(step),
            Pattern::Scattered(_) => None,
        }
    }
}
