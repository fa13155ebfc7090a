//! A warp: its registers, and the splits into which it diverges.
//!
//! Lanes with the same program counter and state form a split. One split runs at a time: of the
//! ready ones that with the smallest program counter, so that others can catch up and reconverge. A
//! split that polls yields to the others, so that a spinning lane does not starve the lane it waits
//! for.

use crate::access::Access;
use crate::copies::Copies;
use crate::registers::{LANES, RegisterCount, Registers};
use crate::warpgroup::Products;
use std::ops::Range;

/// Wait state of a split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Ready to run.
    Ready,
    /// Waits for lanes of its own warp at its program counter.
    Lanes,
    /// Waits at a barrier of the block or cluster.
    Barrier(u8),
}

impl Wait {
    /// Number that stands for the cluster's barrier.
    pub const CLUSTER: u8 = u8::MAX;
}

/// Lanes that run together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    pub pc: u32,
    pub mask: u32,
    pub wait: Wait,
    /// Whether it polled since the others last ran.
    pub yielded: bool,
}

/// An op being executed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub pc: u32,
    /// The lanes at this op, and those whose guard is true.
    pub mask: u32,
    pub active: u32,
}

/// Result of `settle`: the lanes to run, and up to where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub pc: u32,
    pub mask: u32,
    /// Next program counter at which another split is met.
    pub limit: u32,
}

/// The elements of a vector store that are yet to be stored.
#[derive(Debug)]
pub(crate) struct Late {
    pub pc: u32,
    pub active: u32,
    pub access: Access,
    pub elements: Range<u8>,
}

/// A warp of 32 lanes.
#[derive(Debug)]
pub(crate) struct Warp {
    pub index: u32,
    /// Lanes that have not exited.
    pub live: u32,
    pub registers: Registers,
    pub splits: Vec<Split>,
    /// Local memory, lane after lane.
    pub local: Vec<u32>,
    /// Lanes that have arrived at the cluster's barrier since it was last released, and those that
    /// have yet to wait for it.
    pub cluster_arrived: u32,
    pub cluster_owed: u32,
    pub copies: Copies,
    pub products: Products,
    /// A store of which other threads see some elements only.
    pub late: Option<Late>,
    /// Registers per thread that `setmaxnreg` has left it.
    pub budget: u32,
    /// Index of the most recently accessed allocation in the launch's table.
    pub last_hit: usize,
}

impl Warp {
    /// Creates a warp with `threads` lanes at the start of its kernel.
    pub fn new(index: u32, threads: u32, count: RegisterCount, local_bytes: u32) -> Warp {
        let live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        let start = Split { pc: 0, mask: live, wait: Wait::Ready, yielded: false };
        Warp {
            index,
            live,
            registers: Registers::new(count),
            splits: vec![start],
            local: vec![0; local_bytes as usize / 4 * LANES],
            cluster_arrived: 0,
            cluster_owed: 0,
            copies: Copies::default(),
            products: Products::default(),
            late: None,
            budget: 0,
            last_hit: 0,
        }
    }

    pub fn ready(&self) -> bool {
        self.splits.iter().any(|split| split.wait == Wait::Ready)
    }

    /// Removes and returns the split to run next.
    pub fn pick(&mut self) -> Option<Running> {
        let ready = |split: &&Split| split.wait == Wait::Ready;
        if self.splits.iter().filter(ready).all(|split| split.yielded) {
            self.splits.iter_mut().for_each(|split| split.yielded = false);
        }
        let candidates = self.splits.iter().enumerate();
        let able = candidates.filter(|(_, split)| split.wait == Wait::Ready && !split.yielded);
        let (index, _) = able.min_by_key(|(_, split)| split.pc)?;
        let split = self.splits.swap_remove(index);
        Some(self.settle(split.pc, split.mask))
    }

    /// Merges the running lanes with splits at the same program counter, lets a split that is
    /// behind go first, and determines where the next split is met.
    pub fn settle(&mut self, mut pc: u32, mut mask: u32) -> Running {
        loop {
            self.splits.retain(|split| {
                let merges = split.pc == pc && !matches!(split.wait, Wait::Barrier(_));
                if merges {
                    mask |= split.mask;
                }
                !merges
            });
            let behind =
                self.splits.iter().enumerate().filter(|(_, split)| {
                    split.pc < pc && split.wait == Wait::Ready && !split.yielded
                });
            let Some((index, _)) = behind.min_by_key(|(_, split)| split.pc) else { break };
            let split = self.splits.swap_remove(index);
            self.suspend(pc, mask, Wait::Ready);
            (pc, mask) = (split.pc, split.mask);
        }
        let ahead = self.splits.iter().filter(|split| split.pc > pc);
        let met = ahead.filter(|split| !matches!(split.wait, Wait::Barrier(_)));
        let limit = met.map(|split| split.pc).min().unwrap_or(u32::MAX);
        Running { pc, mask, limit }
    }

    /// Removes exiting lanes; lanes that wait for them are re-evaluated.
    pub fn leave(&mut self, lanes: u32) {
        self.live &= !lanes;
        for split in self.splits.iter_mut().filter(|split| split.wait == Wait::Lanes) {
            split.wait = Wait::Ready;
        }
    }

    /// Adds lanes to the list of splits.
    pub fn suspend(&mut self, pc: u32, mask: u32, wait: Wait) {
        self.splits.push(Split { pc, mask, wait, yielded: false });
    }
}
