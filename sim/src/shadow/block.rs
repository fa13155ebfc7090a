//! The shadow of one block: its clocks, its shared memory, and its warps' registers and locals.

use super::clocks::Clocks;
use super::cluster::ClusterShadow;
use super::copies::Copies;
use super::global::StampCache;
use super::lanes::one;
use super::poison::Poison;
use super::proxy::ProxyFences;
use super::shared::SharedShadow;
use super::sync::Fenced;
use crate::checks::Checks;
use crate::context::Context;
use crate::registers::LANES;

/// The shadow of a warp.
#[derive(Debug, Default)]
pub(crate) struct WarpShadow {
    /// Of every tracked register, the lanes whose value nobody wrote.
    pub poison: Vec<Poison>,
    /// Four bits for each word of local memory: the bytes written.
    pub local: Vec<u8>,
    pub fenced: Fenced,
    pub stamps: StampCache,
    /// Those of the cluster's shadow.
    pub cluster_stamps: StampCache,
    /// Groups of `wgmma` that it has committed.
    pub products_committed: u32,
    /// What it copies meanwhile.
    pub copies: Copies,
}

/// The first arrival at a barrier since it opened: threads, warp, lane, op.
pub(crate) type Arrival = (u32, usize, usize, u32);

/// See the module.
#[derive(Debug)]
pub(crate) struct BlockShadow {
    pub warps: Vec<WarpShadow>,
    pub clocks: Clocks,
    pub shared: SharedShadow,
    /// The block's rank in its cluster, and the cluster's blocks.
    pub rank: usize,
    pub blocks: u32,
    /// The cluster's shadow while the block runs; at other times an empty one.
    pub cluster: Box<ClusterShadow>,
    pub arrivals: Vec<Option<Arrival>>,
    pub proxy: ProxyFences,
}

impl BlockShadow {
    /// The shadow of a block, if the launch checks for anything or counts.
    pub fn new(linear: u64, rank: u32, warps: usize, cx: &Context<'_>) -> Option<Box<BlockShadow>> {
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
            ..WarpShadow::default()
        };
        let mut out = BlockShadow::empty(warps, shared);
        out.clocks.block = linear as u32;
        (out.rank, out.blocks) = (rank as usize, cx.cluster.iter().product());
        out.warps.extend((0..warps).map(|_| warp()));
        Some(Box::new(out))
    }

    /// The shadow of so many warps, which are to be added, and words of shared memory.
    pub fn empty(warps: usize, words: usize) -> BlockShadow {
        BlockShadow {
            warps: Vec::with_capacity(warps),
            clocks: Clocks::new(0, warps),
            shared: SharedShadow::new(words, warps),
            rank: 0,
            blocks: 1,
            cluster: Box::default(),
            arrivals: vec![None; 16],
            proxy: ProxyFences::new(warps),
        }
    }

    /// A barrier opens for the warps that wait at it; `all` if no live warp is elsewhere.
    pub fn open(&mut self, id: usize, waiting: impl Iterator<Item = usize>, all: bool) {
        self.arrivals[id] = None;
        self.clocks.open(id, waiting, all);
    }

    /// Bytes of the block's shared memory were written from outside its warps.
    pub fn landed(&mut self, at: u64, bytes: u64) {
        self.shared.set_written(&one(0, at, bytes), true);
    }
}
