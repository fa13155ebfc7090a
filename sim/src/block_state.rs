//! What the warps of a block share: its memory and its barriers.

use crate::bulk::Queue;
use crate::mbarrier::Mbarrier;
use crate::peers::Peers;
use crate::shadow::BlockShadow;

/// Barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// Who has arrived at a barrier since it last opened.
#[derive(Debug, Default, Clone)]
pub(crate) struct Barrier {
    /// Lanes arrived, by warp; empty while the barrier is not used.
    pub arrived: Vec<u32>,
    /// Threads it waits for; 0 for all.
    pub threads: u32,
    /// Lanes whose predicate is set, and lanes in all.
    pub set: u32,
    pub total: u32,
}

/// What the warps of a block share.
#[derive(Debug)]
pub(crate) struct BlockState {
    pub index: [u32; 3],
    pub linear: u64,
    pub shared: Vec<u32>,
    pub shared_bytes: u32,
    pub peers: Peers,
    pub queue: Queue,
    /// What the block printed.
    pub printed: String,
    pub barriers: Vec<Barrier>,
    pub warp_count: usize,
    /// Whether a barrier may have become complete.
    pub barrier_changed: bool,
    /// Whether a warp wrote memory that others may wait for.
    pub progressed: bool,
    pub warp_instructions: u64,
    pub lane_instructions: u64,
    /// What clocks are ahead of the instructions.
    pub leapt: u64,
    /// What checks and counters remember of it.
    pub shadow: Option<Box<BlockShadow>>,
}

impl BlockState {
    /// The shared memory of a rank of the cluster.
    pub fn shared_of(&mut self, rank: usize) -> &mut [u32] {
        match rank == self.peers.rank as usize {
            true => &mut self.shared,
            false => &mut self.peers.shared[rank],
        }
    }

    /// Tells the shadows that shared memory was written from outside, and a barrier beside it told.
    pub fn landed(&mut self, rank: usize, at: u64, bytes: u64, barrier: Option<u64>) {
        let odd = barrier.is_some_and(|barrier| self.parity((rank, barrier)));
        let Some(shadow) = &mut self.shadow else { return };
        match rank == self.peers.rank as usize {
            true => shadow.landed(at, bytes),
            false => self.peers.wrote.push((rank, at, bytes)),
        }
        if let Some(barrier) = barrier {
            shadow.copy_completed((rank, barrier), odd);
        }
    }

    /// The parity of the phase of a barrier, by its rank and offset.
    pub fn parity(&self, (rank, at): (usize, u64)) -> bool {
        let shared = match rank == self.peers.rank as usize {
            true => Some(&self.shared),
            false => self.peers.shared.get(rank),
        };
        shared.is_some_and(|shared| Mbarrier::parity(shared, at))
    }

    /// Notes lanes that arrive at a barrier.
    pub fn arrive(&mut self, warp: u32, id: usize, threads: u32, lanes: u32, predicate: u32) {
        let barrier = &mut self.barriers[id];
        barrier.arrived.resize(self.warp_count, 0);
        barrier.arrived[warp as usize] |= lanes;
        barrier.threads = threads;
        barrier.set += predicate.count_ones();
        barrier.total += lanes.count_ones();
        self.barrier_changed = true;
    }
}
