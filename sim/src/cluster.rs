//! A cluster: blocks that run together, access each other's shared memory and synchronise at a
//! barrier. A launch without clusters has clusters of one block.
//!
//! While one block of a cluster runs, it borrows the shared memories of the others.

use crate::block::{Block, Turn};
use crate::context::Context;
use crate::error::Error;
use crate::shadow::ClusterShadow;
use crate::watch::Watch;

/// A cluster of blocks.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Linear index in the launch.
    pub linear: u64,
    pub blocks: Vec<Block>,
    done: Vec<bool>,
    /// State of checks; lent to the block that runs.
    shadow: Box<ClusterShadow>,
}

impl Cluster {
    pub fn new(linear: u64, cx: &Context<'_>) -> Cluster {
        let size: u32 = cx.cluster.iter().product();
        let blocks: Vec<Block> = (0..size).map(|rank| Block::new(linear, rank, cx)).collect();
        let ranks = blocks.iter().map(|block| block.state.linear as u32).collect();
        let shadow = Box::new(ClusterShadow::new(ranks));
        Cluster { linear, done: vec![false; blocks.len()], blocks, shadow }
    }

    /// Runs a turn of every ready block.
    pub fn turn(&mut self, cx: &Context<'_>, watch: &mut Watch) -> Result<Turn, Error> {
        let (mut moved, mut waiting, mut live) = (false, 0, 0);
        for rank in 0..self.blocks.len() {
            if self.done[rank] {
                continue;
            }
            live += 1;
            self.lend(rank);
            let turn = self.blocks[rank].turn(cx, watch);
            self.take_back(rank);
            match turn? {
                Turn::Done => {
                    self.done[rank] = true;
                    moved = true;
                }
                Turn::Moved => moved = true,
                Turn::Waiting => waiting += 1,
                Turn::Idle => {}
            }
        }
        moved |= self.open_barrier();
        match self.done.iter().all(|&done| done) {
            true => Ok(Turn::Done),
            false if moved => Ok(Turn::Moved),
            false if waiting == live => Err(self.first_unfinished().stuck(cx, watch)),
            false => Ok(Turn::Idle),
        }
    }

    /// Blocks with remaining threads.
    pub fn unfinished(&self) -> impl Iterator<Item = &Block> + Clone {
        self.blocks.iter().zip(&self.done).filter(|&(_, &done)| !done).map(|(block, _)| block)
    }

    fn first_unfinished(&self) -> &Block {
        self.unfinished().next().expect("a cluster that is not done has a block that is not")
    }

    /// Advances the clocks of every block.
    pub fn leap(&mut self, clocks: u64) {
        for block in &mut self.blocks {
            block.state.leapt += clocks;
        }
    }

    /// Advances the clocks of every block by what the host's has, of which instructions that the
    /// block has executed since this was last called are a part.
    pub fn follow(&mut self, nanoseconds: u64) {
        for block in &mut self.blocks {
            let state = &mut block.state;
            let own = state.warp_instructions - state.followed;
            state.followed = state.warp_instructions;
            state.leapt += nanoseconds.saturating_sub(own);
        }
    }

    pub fn hung(&self, cx: &Context<'_>) -> Error {
        self.first_unfinished().hung(cx)
    }

    /// Swaps the cluster's shadow with that of a block.
    fn swap_shadow(&mut self, rank: usize) {
        if let Some(shadow) = &mut self.blocks[rank].state.shadow {
            std::mem::swap(&mut shadow.cluster, &mut self.shadow);
        }
    }

    fn lend(&mut self, rank: usize) {
        self.swap_shadow(rank);
        if self.blocks.len() == 1 {
            return;
        }
        let take = |block: &mut Block| std::mem::take(&mut block.state.shared);
        let mut shared: Vec<Vec<u32>> = self.blocks.iter_mut().map(take).collect();
        let state = &mut self.blocks[rank].state;
        state.shared = std::mem::take(&mut shared[rank]);
        state.peers.shared = shared;
        state.peers.exited.clone_from(&self.done);
    }

    fn take_back(&mut self, rank: usize) {
        self.swap_shadow(rank);
        if self.blocks.len() == 1 {
            return;
        }
        let shared = std::mem::take(&mut self.blocks[rank].state.peers.shared);
        for (other, words) in shared.into_iter().enumerate().filter(|&(other, _)| other != rank) {
            self.blocks[other].state.shared = words;
        }
        for (other, at, bytes) in std::mem::take(&mut self.blocks[rank].state.peers.wrote) {
            if let Some(shadow) = &mut self.blocks[other].state.shadow {
                shadow.landed(at, bytes);
            }
        }
    }

    /// Releases the cluster's barrier once every remaining thread has arrived.
    fn open_barrier(&mut self) -> bool {
        let warps = || self.blocks.iter().flat_map(|block| &block.warps);
        let none = warps().all(|warp| warp.cluster_arrived & warp.live == 0);
        if none || warps().any(|warp| warp.live & !warp.cluster_arrived != 0) {
            return false;
        }
        self.shadow.open_barrier();
        for rank in 0..self.blocks.len() {
            self.swap_shadow(rank);
            self.blocks[rank].pass_cluster_barrier();
            self.swap_shadow(rank);
        }
        true
    }
}
