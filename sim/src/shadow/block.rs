//! Shadow state of a block: clocks, shared memory, and the registers and local memory of its warps.

use super::chunks::ChunkCache;
use super::clocks::{Clocks, Event};
use super::cluster::ClusterShadow;
use super::copies::Copies;
use super::global::StampCache;
use super::lanes::one;
use super::poison::Poison;
use super::shared::SharedShadow;
use super::sync::Fenced;
use super::tensor::TensorShadow;
use super::warpgroups::{ProductRegister, ProductRegisters, Warpgroup};
use crate::checks::Checks;
use crate::context::Context;
use crate::registers::LANES;
use crate::warpgroup::WARPS;
use std::collections::HashMap;

/// Shadow state of a warp.
#[derive(Debug, Default)]
pub(crate) struct WarpShadow {
    /// Lanes with an uninitialised value, for every tracked register.
    pub poison: Vec<Poison>,
    /// Four bits per word of local memory: the bytes written.
    pub local: Vec<u8>,
    pub fenced: Fenced,
    /// Lanes that a wait for the launches before comes before.
    pub grid_waited: u32,
    pub stamps: StampCache,
    /// Stamp cache for the cluster's shadow.
    pub cluster_stamps: StampCache,
    pub product_registers: ProductRegisters,
    /// Number of `wgmma` groups committed.
    pub products_committed: u32,
    /// Epochs in which wgmma were issued, with their groups.
    pub products_issued: Vec<(u32, usize)>,
    /// Epoch in which each group was waited for.
    pub products_ended: Vec<u32>,
    /// Pending asynchronous copies.
    pub copies: Copies,
}

/// First arrival at a barrier since its release: threads, warp, lane, op.
pub(crate) type Arrival = (u32, usize, usize, u32);

/// Shadow state of a block.
#[derive(Debug)]
pub(crate) struct BlockShadow {
    pub warps: Vec<WarpShadow>,
    pub clocks: Clocks,
    pub shared: SharedShadow,
    /// Rank of the block in its cluster, and number of blocks of the cluster.
    pub rank: usize,
    pub blocks: u32,
    /// The cluster's shadow while the block runs, otherwise an empty one.
    pub cluster: Box<ClusterShadow>,
    pub arrivals: Vec<Option<Arrival>>,
    pub warpgroups: Vec<Warpgroup>,
    pub tensor: TensorShadow,
    pub chunks: ChunkCache,
    /// Where warps have waited for the launches before.
    grid_waits: Vec<Event>,
    /// Number of completions of copies that mbarriers signal.
    pub completions: u64,
    /// Bytes of shared memory to which an op copied what nobody wrote.
    pub unset_by: HashMap<u64, u32>,
}

impl BlockShadow {
    /// Creates the shadow of a block, if the launch has checks or counters.
    pub fn new(
        linear: u64,
        (cluster, rank): (u64, u32),
        warps: usize,
        cx: &Context<'_>,
    ) -> Option<Box<BlockShadow>> {
        let Checks { uninitialised, .. } = cx.launch.checks;
        if cx.launch.checks == Checks::NONE && !cx.launch.counters {
            return None;
        }
        let program = cx.program;
        let shared = (program.shared_bytes + cx.launch.shared_bytes).div_ceil(4) as usize;
        let warp = || WarpShadow {
            poison: if uninitialised { Poison::start(&program.tracked) } else { Vec::new() },
            local: match uninitialised {
                true => vec![0; program.local_bytes as usize / 4 * LANES],
                false => Vec::new(),
            },
            product_registers: ProductRegisters {
                list: vec![ProductRegister::default(); program.product_registers],
                fences: 0,
            },
            ..WarpShadow::default()
        };
        let mut out = BlockShadow::empty(warps, shared);
        (out.clocks.block, out.clocks.cluster) = (linear as u32, cluster as u32);
        (out.rank, out.blocks) = (rank as usize, cx.cluster.iter().product());
        out.warps.extend((0..warps).map(|_| warp()));
        Some(Box::new(out))
    }

    /// Creates a shadow for a number of warps, to be added later, and words of shared memory.
    pub fn empty(warps: usize, words: usize) -> BlockShadow {
        BlockShadow {
            warps: Vec::with_capacity(warps),
            clocks: Clocks::new(0, warps),
            shared: SharedShadow::new(words, warps),
            rank: 0,
            blocks: 1,
            cluster: Box::default(),
            arrivals: vec![None; 16],
            warpgroups: (0..warps.div_ceil(WARPS)).map(|_| Warpgroup::default()).collect(),
            tensor: TensorShadow::default(),
            chunks: ChunkCache::default(),
            grid_waits: Vec::new(),
            completions: 0,
            unset_by: HashMap::new(),
        }
    }

    /// Releases a barrier for the waiting warps; `all` if no live warp is elsewhere.
    pub fn open(&mut self, id: usize, waiting: impl Iterator<Item = usize>, all: bool) {
        self.arrivals[id] = None;
        self.clocks.open(id, waiting, all);
    }

    /// Lanes of a warp wait for the launches before.
    pub fn grid_wait(&mut self, warp: usize, lanes: u32, pc: u32) {
        self.warps[warp].grid_waited |= lanes;
        let (block, epoch) = (self.clocks.block, self.clocks.warps[warp].epoch);
        let (clock, lane) = (warp as u32, lanes.trailing_zeros());
        self.grid_waits.push(Event { block, clock, warp: clock, lane, many: false, epoch, pc });
    }

    /// Of these lanes of a warp those that no such wait comes before, whichever thread of the block
    /// waited.
    pub fn early(&mut self, warp: usize, lanes: u32) -> u32 {
        let unknown = lanes & !self.warps[warp].grid_waited;
        let unknown = (0..LANES as u32).filter(|lane| unknown >> lane & 1 != 0);
        let behind =
            |lane: &u32| self.grid_waits.iter().any(|wait| self.clocks.ordered(wait, warp, *lane));
        let waited = unknown.filter(behind).fold(0, |mask, lane| mask | 1 << lane);
        self.warps[warp].grid_waited |= waited;
        lanes & !self.warps[warp].grid_waited
    }

    /// Records a write to the block's shared memory from outside its warps.
    pub fn landed(&mut self, at: u64, bytes: u64) {
        self.shared.set_written(&one(0, at, bytes), true);
    }
}
