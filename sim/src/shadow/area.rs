//! Numbers of what is not an allocation of the launch's table, which have its index.

/// Numbers of the windows where others number an allocation of the launch's table.
pub(crate) const SHARED: u64 = u64::MAX;
pub(crate) const LOCAL: u64 = u64::MAX - 1;
/// The same where no memory is meant, but a product under way.
pub(crate) const PRODUCT: u64 = u64::MAX - 2;

/// Ranks of the cluster have numbers from here.
const PEERS: u64 = u64::MAX - 32;

/// The number of the shared memory of a rank other than the block's own.
pub(crate) fn peer(rank: usize) -> u64 {
    PEERS + rank as u64
}

/// The rank of an area that is another block's shared memory.
pub(crate) fn peer_rank(area: u64) -> Option<usize> {
    (PEERS..PEERS + 16).contains(&area).then(|| (area - PEERS) as usize)
}
