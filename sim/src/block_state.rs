//! State shared by the warps of a block: memory and barriers.

use crate::bulk::Queue;
use crate::mbarrier::Mbarrier;
use crate::peers::Peers;
use crate::shadow::BlockShadow;
use crate::tensor_memory::TensorMemory;

/// Number of barriers per block.
pub(crate) const BARRIERS: usize = 16;

/// Arrivals at a barrier since it was last released.
#[derive(Debug, Default, Clone)]
pub(crate) struct Barrier {
    /// Lanes arrived, by warp; empty while the barrier is unused.
    pub arrived: Vec<u32>,
    /// Expected number of threads; 0 for all.
    pub threads: u32,
    /// Number of lanes whose predicate is set, and of all lanes arrived.
    pub set: u32,
    pub total: u32,
}

/// State shared by the warps of a block.
#[derive(Debug)]
pub(crate) struct BlockState {
    pub index: [u32; 3],
    pub linear: u64,
    pub shared: Vec<u32>,
    pub shared_bytes: u32,
    pub peers: Peers,
    pub queue: Queue,
    pub tensor: TensorMemory,
    /// Output of `printf`.
    pub printed: String,
    pub barriers: Vec<Barrier>,
    pub warp_count: usize,
    /// Whether a barrier may have become complete.
    pub barrier_changed: bool,
    /// Whether a warp wrote memory for which others may be polling.
    pub progressed: bool,
    /// Drawn for the turn.
    pub random: u64,
    pub warp_instructions: u64,
    pub lane_instructions: u64,
    /// Offset of clocks from the number of instructions.
    pub leapt: u64,
    /// Instructions when its clock last followed the host's.
    pub followed: u64,
    /// Number of wgmma that each warp has issued; all ones once it has exited.
    pub products_issued: Vec<u32>,
    /// Registers that its warps have given back, per thread of a warp.
    pub free_registers: u32,
    /// State of checks and counters.
    pub shadow: Option<Box<BlockShadow>>,
}

impl BlockState {
    /// Shared memory of a rank of the cluster.
    pub fn shared_of(&mut self, rank: usize) -> &mut [u32] {
        match rank == self.peers.rank as usize {
            true => &mut self.shared,
            false => &mut self.peers.shared[rank],
        }
    }

    /// Reports a write to shared memory from outside its block, or by a copy, to the shadow: with
    /// the mbarrier that signals it and the number of the copy, if any.
    pub fn landed(&mut self, rank: usize, at: u64, bytes: u64, signal: Option<(u64, u64)>) {
        let odd = signal.is_some_and(|(barrier, _)| self.parity((rank, barrier)));
        let Some(shadow) = &mut self.shadow else { return };
        match rank == self.peers.rank as usize {
            true => shadow.landed(at, bytes),
            false => self.peers.wrote.push((rank, at, bytes)),
        }
        if let Some((barrier, number)) = signal {
            shadow.bulk_completed(number, (rank, barrier), odd);
        }
    }

    /// Phase parity of an mbarrier, given by rank and offset.
    pub fn parity(&self, (rank, at): (usize, u64)) -> bool {
        let shared = match rank == self.peers.rank as usize {
            true => Some(&self.shared),
            false => self.peers.shared.get(rank),
        };
        shared.is_some_and(|shared| Mbarrier::parity(shared, at))
    }

    /// Records lanes that arrive at a barrier.
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
