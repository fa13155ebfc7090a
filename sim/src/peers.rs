//! The other blocks of a cluster, as one of them sees them.

use crate::memory::RANK_BYTES;

/// What a block that runs sees of its cluster.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Blocks of the cluster.
    pub size: u32,
    /// The block's own rank and place in the cluster.
    pub rank: u32,
    pub place: [u32; 3],
    /// The shared memory of each rank; the running block's own is empty here.
    pub shared: Vec<Vec<u32>>,
    /// Ranks whose threads have all exited.
    pub exited: Vec<bool>,
    /// What this block wrote into others, for their shadows: rank, offset and bytes.
    pub wrote: Vec<(usize, u64, u64)>,
}

/// The place in a cluster of a block by its rank.
pub(crate) fn place_of(rank: u32, size: [u32; 3]) -> [u32; 3] {
    [rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]]
}

impl Peers {
    /// The rank and offset of an address in the shared window: the top byte holds the rank, from
    /// 1, and is 0 in a block's own addresses.
    #[inline(always)]
    pub fn locate(&self, at: u64) -> (u64, u64) {
        match at / RANK_BYTES {
            0 => (self.rank.into(), at),
            field => (field - 1, at % RANK_BYTES),
        }
    }
}
