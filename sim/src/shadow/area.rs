//! Numbers of memory areas; allocations have their index in the launch's table.

/// Numbers of the shared and local window.
pub(crate) const SHARED: u64 = u64::MAX;
pub(crate) const LOCAL: u64 = u64::MAX - 1;
/// Number of a pending wgmma or tcgen05.ld, which is not a memory area.
pub(crate) const PRODUCT: u64 = u64::MAX - 2;

/// First number of the shared memories of other ranks.
const PEERS: u64 = u64::MAX - 32;

/// Number of the shared memory of another rank.
pub(crate) fn peer(rank: usize) -> u64 {
    PEERS + rank as u64
}

/// Rank of an area that is another block's shared memory.
pub(crate) fn peer_rank(area: u64) -> Option<usize> {
    (PEERS..PEERS + 16).contains(&area).then(|| (area - PEERS) as usize)
}
