//! A block's view of the other blocks of its cluster.

use crate::memory::RANK_BYTES;

/// A running block's view of its cluster.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Number of blocks of the cluster.
    pub size: u32,
    /// The block's own rank and index in the cluster.
    pub rank: u32,
    pub place: [u32; 3],
    /// Shared memory of each rank; empty for the running block itself.
    pub shared: Vec<Vec<u32>>,
    /// Ranks whose threads have all exited.
    pub exited: Vec<bool>,
    /// Writes of this block to others, for their shadows: rank, offset and bytes.
    pub wrote: Vec<(usize, u64, u64)>,
}

/// Index in the cluster of a block with a given rank.
pub(crate) fn place_of(rank: u32, size: [u32; 3]) -> [u32; 3] {
    [rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]]
}

/// What an address in the shared memory of a block of the cluster has above the offset.
pub(crate) fn window_of(rank: u32) -> u64 {
    (u64::from(rank) + 1) * RANK_BYTES
}

impl Peers {
    /// What a GPU's addresses of shared variables have above the offset, but for the lowest rank:
    /// that of the block in the cluster. A program that makes something of an address, such as a
    /// matrix descriptor, masks it.
    pub fn window(&self) -> u64 {
        match self.rank {
            0 => 0,
            rank => window_of(rank),
        }
    }

    /// Rank and offset of an address in the shared window: the top byte is the rank plus 1, or 0 in
    /// a block's own memory.
    #[inline(always)]
    pub fn locate(&self, at: u64) -> (u64, u64) {
        match at / RANK_BYTES {
            0 => (self.rank.into(), at),
            field => (field - 1, at % RANK_BYTES),
        }
    }
}
