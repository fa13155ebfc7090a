//! Bulk copies that are under way: between global memory and the shared memories of a cluster,
//! rows of bytes or tiles of tensors.

use crate::access::Modify;
use crate::tensor_map::Tile;
use crate::types::Type;
use std::collections::HashMap;

/// One end of a copy.
#[derive(Debug)]
pub(crate) enum End {
    Global(u64),
    /// A rank of the cluster and an offset.
    Shared(usize, u64),
    Tile(Box<Tile>),
    /// Bytes of a register.
    Bytes(Vec<u8>),
}

/// What a copy does when it has landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Takes its bytes off the barrier at a rank and offset.
    Barrier(usize, u64),
    /// Belongs to a group of its thread.
    Group(u32),
}

/// A copy under way.
#[derive(Debug)]
pub(crate) struct Bulk {
    pub from: End,
    pub to: End,
    pub bytes: u64,
    /// Ranks that it goes to, instead of the one that `to` and the barrier name; 0 for none.
    pub ranks: u32,
    pub reduce: Option<(Modify, Type)>,
    pub completion: Completion,
    /// The bytes, once read.
    pub data: Option<Vec<u8>>,
    /// The thread that issued it, in its block, and where.
    pub thread: u32,
    pub pc: u32,
}

/// A block's copies under way, oldest first, and the groups that its threads have committed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub pending: Vec<Bulk>,
    pub groups: HashMap<u32, u32>,
}
