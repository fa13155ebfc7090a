//! Ops beyond lane-wise ones: matrices, asynchronous copies, mbarriers, clusters. All operands are
//! in the list: destinations, then sources.

use crate::access::{Modify, Window};
use crate::format::Format;
use crate::types::Type;

/// Operation of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Writes a word per matrix; reads the address.
    LoadMatrix(MatrixMove),
    /// Reads the address, then a word per matrix.
    StoreMatrix(MatrixMove),
    /// Writes the transpose of an 8x8 matrix of 16-bit elements.
    TransposeMatrix,
    /// Writes D; reads A, B and C.
    Multiply(Multiply),
    /// Writes D; reads A (four registers or a descriptor), B's descriptor, whether to accumulate,
    /// D.
    WarpgroupMultiply(WarpgroupMultiply),
    WarpgroupFence,
    WarpgroupCommit,
    /// Completes all groups but the newest ones, whose number is the immediate.
    WarpgroupWait,
    /// `cp.async` of this many bytes; reads destination, source, source size, and whether to ignore
    /// the source.
    Copy(u8),
    CopyCommit,
    /// Completes the copies of all groups but the newest ones, whose number is the immediate.
    CopyWait,
    /// Completes all copies.
    CopyWaitAll,
    /// Arrives at the given mbarrier once all prior copies have completed.
    CopyArrive {
        window: Window,
        joins: bool,
    },
    Barrier(MemoryBarrier),
    /// Writes the pending count of an mbarrier state.
    PendingCount,
    Bulk(BulkCopy),
    /// An asynchronous store or reduction to the cluster's shared memory that signals an mbarrier
    /// by bytes; reads destination, mbarrier, elements.
    StoreAsync(StoreAsync),
    BulkCommit,
    /// Completes the bulk groups but the newest ones, or only their reads.
    BulkWait {
        reads: bool,
    },
    /// `tensormap.replace`: reads the address of a tensor map in shared or global memory and the
    /// new value; the immediate is the ordinal of the dimension.
    ReplaceMap {
        field: MapField,
        window: Window,
    },
    /// `tensormap.cp_fenceproxy`: reads the addresses in global and shared memory.
    CopyMap,
    /// `fence.proxy.tensormap::generic.acquire`: reads the address of a tensor map.
    AcquireMap,
    /// `wmma.mma`: writes D; reads A, B, C.
    Fragments(FragmentMultiply),
    /// An operation on tensor memory.
    Tensor(TensorOp),
    /// `mapa`: maps the address in the first word to the block whose rank is the second.
    MapAddress,
    /// Writes the rank of the block to which an address belongs.
    AddressRank,
    ClusterArrive {
        aligned: bool,
        releases: bool,
    },
    ClusterWait {
        aligned: bool,
    },
    /// Writes the elected lane and whether it is this one; reads the member mask.
    Elect,
    /// `setmaxnreg`: the warp's registers per thread become the immediate.
    Registers {
        raises: bool,
    },
    /// `vprintf`: writes a count; reads the addresses of format and arguments.
    Print,
    /// `malloc`: writes the address of a block of the heap, or 0; reads its size.
    Allocate,
    /// `free`: reads the address.
    Free,
}

impl Unit {
    /// Whether the op writes registers that may be used only after a wait.
    pub fn is_pending(self) -> bool {
        matches!(self, Unit::WarpgroupMultiply(_) | Unit::Tensor(TensorOp::Load(_)))
    }
}

/// A warpgroup MMA of 64 x K and K x N matrices.
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
    /// Whether A and B are MN-major instead of K-major.
    pub transposed: [bool; 2],
}

impl WarpgroupMultiply {
    /// Number of registers of D.
    pub fn registers(self) -> usize {
        usize::from(self.n) * self.sum.bits() / 64
    }
}

/// An operation on an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryBarrier {
    pub window: Window,
    pub action: BarrierAction,
}

/// Action on an mbarrier; all read its address first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierAction {
    /// Reads a count.
    Initialise,
    Invalidate,
    /// Writes the previous state; reads the number of arrivals and expected bytes.
    Arrive {
        drops: bool,
        no_complete: bool,
    },
    /// Reads a number of bytes.
    Expect,
    Complete,
    /// Writes whether the phase has completed; reads a state.
    TestState,
    /// Reads a parity.
    TestParity,
}

/// A TMA copy per active lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BulkCopy {
    pub kind: BulkKind,
    /// Whether it signals an mbarrier instead of belonging to a bulk group.
    pub barrier: bool,
    pub multicast: bool,
    pub reduce: Option<(Modify, Type)>,
}

/// Source and destination of a TMA copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkKind {
    /// Reads destination, source, size; then mbarrier and multicast mask.
    GlobalToShared,
    SharedToShared,
    SharedToGlobal,
    /// Reads destination, tensor map, coordinates, offsets; then mbarrier and multicast mask.
    TileToShared(TileMode),
    /// Reads source, tensor map, coordinates.
    SharedToTile(TileMode),
}

/// What a tensor copy moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TileMode {
    /// A box of a tensor of this rank.
    Box { rank: u8 },
    /// Four rows of a matrix.
    Rows,
    /// Pixels of images, with offsets if there are any.
    Pixels { rank: u8, offsets: bool },
}

impl TileMode {
    /// The rank of the tensor.
    pub fn rank(self) -> usize {
        match self {
            TileMode::Box { rank } | TileMode::Pixels { rank, .. } => rank.into(),
            TileMode::Rows => 2,
        }
    }

    /// Coordinates; those of rows are a column and the rows.
    pub fn coordinates(self) -> usize {
        match self {
            TileMode::Rows => 5,
            mode => mode.rank(),
        }
    }

    /// Offsets, one for each spatial dimension.
    pub fn offsets(self) -> usize {
        match self {
            TileMode::Pixels { rank, offsets: true } => usize::from(rank) - 2,
            _ => 0,
        }
    }
}

/// A matrix of `wmma` in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub rows: u8,
    pub columns: u8,
    pub format: Format,
    pub registers: u8,
}

impl Fragment {
    /// The fragment of an operand or an accumulator.
    pub fn new([rows, columns]: [u8; 2], format: Format, operand: bool) -> Fragment {
        let size = usize::from(rows) * usize::from(columns);
        let registers = match format {
            Format::F16 if operand => 8,
            Format::F64 => size / 32,
            _ => size * format.bits() / 1024,
        };
        Fragment { rows, columns, format, registers: registers as u8 }
    }

    /// Elements per register.
    pub fn per_register(self) -> usize {
        (32 / self.format.bits()).max(1)
    }

    /// Elements per lane.
    pub fn lane_elements(self) -> u32 {
        u32::from(self.registers) * self.per_register() as u32
    }
}

/// A `wmma.mma`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FragmentMultiply {
    pub shape: [u8; 3],
    /// Format of A and B.
    pub operands: Format,
    pub c: Format,
    pub d: Format,
    /// Whether integer accumulation saturates.
    pub saturate: bool,
}

impl FragmentMultiply {
    /// A, B, C and D.
    pub fn fragments(self) -> [Fragment; 4] {
        let [m, n, k] = self.shape;
        [
            Fragment::new([m, k], self.operands, true),
            Fragment::new([k, n], self.operands, true),
            Fragment::new([m, n], self.c, false),
            Fragment::new([m, n], self.d, false),
        ]
    }
}

/// A `tcgen05` instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorOp {
    /// Reads the address in shared memory to write the allocation's address to, and a number of
    /// columns.
    Allocate { window: Window },
    /// Reads the allocation's address and number of columns.
    Free,
    /// Gives up the right to allocate.
    Relinquish,
    /// Waits for the warp's loads, or for its stores; both are executed at once.
    Wait { loads: bool },
    /// Writes words; reads the address in tensor memory.
    Load(TensorMove),
    /// Reads the address and words.
    Store(TensorMove),
    /// Reads the address and a descriptor.
    Copy(TensorCopy),
    /// Reads the address of D, A (an address or a descriptor), B's descriptor, the instruction
    /// descriptor, whether to accumulate; with scales, the addresses of those of A and B.
    Multiply(TensorMultiply),
    /// Reads the address of an mbarrier, and for multicast the mask of blocks.
    Commit { window: Window, multicast: bool },
}

/// Shape of an access of a warp to its lanes of tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorShape {
    L32x32,
    L16x64,
    L16x128,
    L16x256,
    /// Threads from 16 on access the same lanes as the others, this many columns on.
    L16x32x2(u16),
}

/// A transfer between tensor memory and registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorMove {
    pub shape: TensorShape,
    pub words: u8,
    /// Whether a register holds the low halves of two columns.
    pub packed: bool,
}

/// A copy from shared to tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorCopy {
    pub rows: u8,
    /// Chunks of 16 bytes per row.
    pub chunks: u8,
    /// First lanes of the copies of each 32 rows, as multiples of 32.
    pub places: [u8; 4],
}

/// Kind of operands of an MMA on tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorKind {
    F16,
    Tf32,
    F8f6f4,
    I8,
    Mxf8f6f4,
    Mxf4,
    Mxf4nvf4,
}

/// An MMA on tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorMultiply {
    pub kind: TensorKind,
    /// Whether A is in tensor memory.
    pub a_tensor: bool,
    /// Number of scales along K, if there are any.
    pub scales: u8,
    /// D is multiplied by 2 to the minus this power first.
    pub shift: u8,
}

/// A field of a tensor map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapField {
    Address,
    Rank,
    BoxDim,
    Dim,
    Stride,
    ElementStride,
    ElementType,
    Interleave,
    Swizzle,
    Fill,
}

/// An asynchronous store of `count` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreAsync {
    pub ty: Type,
    pub count: u8,
    pub reduce: Option<Modify>,
}

/// A transfer of 8x8 matrices of 16-bit elements between shared memory and registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatrixMove {
    pub count: u8,
    pub transposed: bool,
    pub window: Window,
    pub wide_address: bool,
}

/// An MMA of M x K and K x 8 matrices with an M x 8 accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Multiply {
    pub m: u8,
    pub k: u8,
    pub a: Format,
    pub b: Format,
    /// Format of C and D.
    pub sum: Format,
    /// Whether integer accumulation saturates.
    pub saturate: bool,
    /// With scales, their words follow C.
    pub scale: Option<Scale>,
    /// With half of A's elements left out, the word that says which ones follows C.
    pub sparsity: Option<Sparsity>,
}

/// Which elements of a sparse A are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sparsity {
    /// Which thread or pair of threads of four holds the metadata.
    pub selector: u8,
    /// Whether the indices of a chunk ascend.
    pub ordered: bool,
}

/// Scales of an MMA: a byte per row or column and part of K, in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Number of scales along K.
    pub vector: u8,
    /// Whether they are ue4m3 instead of ue8m0.
    pub fraction: bool,
    /// First byte of the word, and which threads of four hold it.
    pub a: [u8; 2],
    pub b: [u8; 2],
}

impl Multiply {
    /// Number of registers of A, B and C; 64-bit ones for f64.
    pub fn registers(self) -> [usize; 3] {
        let lane_bits = if self.a == Format::F64 { 64 * 32 } else { 32 * 32 };
        let (m, k) = (usize::from(self.m), usize::from(self.k));
        let stored = if self.sparsity.is_some() { k / 2 } else { k };
        let count = |elements: usize, format: Format| elements * format.bits() / lane_bits;
        [count(m * stored, self.a), count(k * 8, self.b), count(m * 8, self.sum)]
    }
}
