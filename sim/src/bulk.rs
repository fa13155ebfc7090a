//! Pending TMA copies between global memory and the shared memories of a cluster: byte ranges or
//! tensor boxes.

use crate::access::Modify;
use crate::tile::Tile;
use crate::types::Type;
use std::collections::HashMap;

/// Source or destination of a copy.
#[derive(Debug)]
pub(crate) enum End {
    Global(u64),
    /// Rank in the cluster and offset.
    Shared(usize, u64),
    Tile(Box<Tile>),
    /// Bytes of registers.
    Bytes(Vec<u8>),
}

/// Completion mechanism of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Subtracts the copy's bytes from the mbarrier at a rank and offset.
    Barrier(usize, u64),
    /// Completes as part of a bulk group of its thread.
    Group(u32),
}

/// A pending copy.
#[derive(Debug)]
pub(crate) struct Bulk {
    pub from: End,
    pub to: End,
    pub bytes: u64,
    /// Destination ranks of a multicast, in place of the rank in `to` and the mbarrier; 0 if not
    /// multicast.
    pub ranks: u32,
    pub reduce: Option<(Modify, Type)>,
    pub completion: Completion,
    /// The data, once read.
    pub data: Option<Vec<u8>>,
    /// Number in its block, from 1.
    pub number: u64,
    /// The issuing thread within its block, and the instruction.
    pub thread: u32,
    pub pc: u32,
}

/// A copy that was under way in the shared memory of a block when the block exited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leak {
    pub thread: u32,
    pub pc: u32,
    /// Offset in shared memory.
    pub at: u64,
}

/// Pending copies of a block, oldest first, and the groups committed by its threads.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub pending: Vec<Bulk>,
    /// Number of copies issued.
    pub issued: u64,
    pub groups: HashMap<u32, u32>,
}

impl Queue {
    /// Appends a copy, and numbers it.
    pub fn push(&mut self, bulk: Bulk) {
        self.issued += 1;
        self.pending.push(Bulk { number: self.issued, ..bulk });
    }
}
