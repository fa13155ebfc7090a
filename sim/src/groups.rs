//! Groups of eight lanes with equal or consecutive addresses.

use crate::failure::first_lane;
use crate::registers::LANES;
use std::hint::black_box;

/// Lanes per group: the width of a host vector of words.
pub(crate) const GROUP: usize = 8;
pub(crate) const GROUPS: usize = LANES / GROUP;
/// Position of each lane relative to the group's first: all equal, or consecutive.
static RAMPS: [[u64; GROUP]; 2] = [[0; GROUP], [0, 1, 2, 3, 4, 5, 6, 7]];

/// Groups of eight lanes with equal or consecutive addresses.
pub(crate) struct Groups {
    /// Address of each group's first lane; inactive groups have another group's address.
    pub firsts: [u64; GROUPS],
    /// Distance between neighbouring lanes of a group: the bytes per lane, or 0.
    pub step: u64,
}

impl Groups {
    /// Groups lanes of `bytes` bytes, if their addresses allow it and groups are active as a whole.
    #[inline(always)]
    pub fn new<T: Copy + Into<u64>>(at: &[T; LANES], bytes: u64, active: u32) -> Option<Groups> {
        let leaders = active & 0x0101_0101;
        if leaders * 0xff != active {
            return None;
        }
        // Loaded separately from the vectors, which the compiler would otherwise build from the
        // scalars.
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

/// Byte offsets of the lanes in an allocation or window.
#[expect(clippy::large_enum_variant, reason = "an access has one, on the stack")]
pub(crate) enum Pattern {
    Grouped(Groups),
    /// Offset of each lane; inactive lanes have that of some active one.
    Scattered([u64; LANES]),
}

impl Pattern {
    /// Offset of each lane; inactive lanes have that of some active one.
    #[inline(always)]
    pub fn offsets(&self) -> [u64; LANES] {
        match self {
            Pattern::Grouped(Groups { firsts, step }) => {
                std::array::from_fn(|lane| firsts[lane / GROUP] + step * (lane % GROUP) as u64)
            }
            Pattern::Scattered(offsets) => *offsets,
        }
    }

    /// Distance between neighbouring lanes, if the lanes form groups.
    pub fn step(&self) -> Option<u64> {
        match *self {
            Pattern::Grouped(Groups { step, .. }) => Some(step),
            Pattern::Scattered(_) => None,
        }
    }
}
