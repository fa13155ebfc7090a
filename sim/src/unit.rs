//! The ops of the units beside the lanes: matrices, asynchronous copies, barriers in memory,
//! clusters. Their operands are all in the list: what they write, then what they read.

use crate::access::{Modify, Window};
use crate::format::Format;
use crate::types::Type;

/// What a unit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Writes a word for each matrix; reads the address.
    LoadMatrix(MatrixMove),
    /// Reads the address, then a word for each matrix.
    StoreMatrix(MatrixMove),
    /// Writes the transpose of the 8x8 matrix of 16-bit elements that it reads.
    TransposeMatrix,
    /// Writes D; reads A, B and C.
    Multiply(Multiply),
    /// Writes D; reads A (four registers or a descriptor), B's descriptor, whether to add to D, D.
    WarpgroupMultiply(WarpgroupMultiply),
    WarpgroupFence,
    WarpgroupCommit,
    /// Finishes the products of all groups but the newest; the immediate counts those.
    WarpgroupWait,
    /// `cp.async` of so many bytes; reads where to, where from, how many bytes, and whether to
    /// ignore the source.
    Copy(u8),
    CopyCommit,
    /// Lands the copies of all groups but the newest; the immediate counts those.
    CopyWait,
    /// Lands every copy.
    CopyWaitAll,
    /// Arrives at the barrier that it reads once the copies before have landed.
    CopyArrive {
        window: Window,
        joins: bool,
    },
    Barrier(MemoryBarrier),
    /// Writes the pending arrivals of a barrier's state.
    PendingCount,
    Bulk(BulkCopy),
    /// A store, or a reduction, of elements into the cluster that takes its bytes off a barrier;
    /// reads where to, the barrier, the elements.
    StoreAsync(StoreAsync),
    BulkCommit,
    /// Lands the bulk copies of all groups but the newest, or only reads them.
    BulkWait {
        reads: bool,
    },
    /// `mapa`: writes the address of what the first word names in the block of the second's rank.
    MapAddress,
    /// Writes the rank of the block that an address names.
    AddressRank,
    ClusterArrive {
        aligned: bool,
        releases: bool,
    },
    ClusterWait {
        aligned: bool,
    },
    /// Writes the elected lane and whether it is this one; reads the members.
    Elect,
    /// `vprintf`: writes a count; reads the format's and the arguments' addresses.
    Print,
}

/// A product of 64 x k and k x n matrices by a warpgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WarpgroupMultiply {
    pub n: u16,
    pub k: u8,
    pub a: Format,
    pub b: Format,
    pub sum: Format,
    pub saturate: bool,
    /// Whether A is in registers.
    pub a_registers: bool,
    /// Whether A and B are negated.
    pub negated: [bool; 2],
    /// Whether the rows of A and the columns of B are contiguous, not k.
    pub transposed: [bool; 2],
}

impl WarpgroupMultiply {
    /// Registers of D.
    pub fn registers(self) -> usize {
        usize::from(self.n) * self.sum.bits() / 64
    }
}

/// An operation on a barrier in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryBarrier {
    pub window: Window,
    pub action: BarrierAction,
}

/// Each reads the barrier's address first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierAction {
    /// Reads a count.
    Initialise,
    Invalidate,
    /// Writes the state before; reads a count of arrivals and the bytes to expect.
    Arrive {
        drops: bool,
        no_complete: bool,
    },
    /// Reads bytes.
    Expect,
    Complete,
    /// Writes whether the phase is over; reads a state.
    TestState,
    /// Reads a parity.
    TestParity,
}

/// A bulk copy by each lane that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkCopy {
    pub kind: BulkKind,
    /// Whether it ends at a barrier, not in a group.
    pub barrier: bool,
    pub multicast: bool,
    pub reduce: Option<(Modify, Type)>,
}

/// The ends of a bulk copy and what it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkKind {
    /// Where to, where from, bytes; then the barrier, the ranks.
    GlobalToShared,
    SharedToShared,
    SharedToGlobal,
    /// Where to, the tensor map, the coordinates of `rank`; then the barrier, the ranks.
    TileToShared {
        rank: u8,
    },
    /// Where from, the tensor map, the coordinates.
    SharedToTile {
        rank: u8,
    },
}

/// An asynchronous store of `count` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreAsync {
    pub ty: Type,
    pub count: u8,
    pub reduce: Option<Modify>,
}

/// 8x8 matrices of 16-bit elements, between shared memory and registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatrixMove {
    pub count: u8,
    pub transposed: bool,
    pub window: Window,
    pub wide_address: bool,
}

/// A product of an m x k and a k x 8 matrix, added to an m x 8 matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Multiply {
    pub m: u8,
    pub k: u8,
    pub a: Format,
    pub b: Format,
    /// The format of C and D.
    pub sum: Format,
    /// Whether an integer sum stops at its bounds.
    pub saturate: bool,
}

impl Multiply {
    /// Registers of A, B and C, 64 bits wide for f64.
    pub fn registers(self) -> [usize; 3] {
        let lane_bits = if self.a == Format::F64 { 64 * 32 } else { 32 * 32 };
        let (m, k) = (usize::from(self.m), usize::from(self.k));
        let count = |elements: usize, format: Format| elements * format.bits() / lane_bits;
        [count(m * k, self.a), count(k * 8, self.b), count(m * 8, self.sum)]
    }
}
