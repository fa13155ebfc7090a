//! Micro-ops: fixed-size instructions with operands resolved to slots.

use crate::access::{Access, Atomic, Modify};
use crate::ast::Loc;
use crate::registers::{Constants, Registers, Slot};
use crate::traits::Traits;
use crate::unit::Unit;

/// Executes a lane-wise operation for the lanes of a mask.
///
/// Unsafe to call only because it may use instructions that the processor lacks;
/// [`handler`](crate::lanes::handler) never returns such a function.
pub(crate) type Handler = unsafe fn(&mut Registers, &Constants, &MicroOp, u32);

/// Mode of `shfl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// Mode of `vote` and `bar.red`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
    Population,
}

/// A block barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Barrier {
    /// Whether all threads of the warp must execute it together.
    pub aligned: bool,
    /// Whether to wait.
    pub wait: bool,
    pub reduce: Option<Vote>,
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// Index of the thread in its block, along an axis.
    Thread(u8),
    BlockSize(u8),
    Block(u8),
    GridSize(u8),
    Lane,
    Warp,
    WarpCount,
    Multiprocessor,
    MultiprocessorCount,
    Grid,
    MaskEqual,
    MaskLessEqual,
    MaskLess,
    MaskGreaterEqual,
    MaskGreater,
    Clock,
    ClockHigh,
    DynamicShared,
    TotalShared,
    /// Index of the cluster in the grid, along an axis.
    Cluster(u8),
    ClusterCount(u8),
    /// Index of the block in its cluster, along an axis.
    ClusterBlock(u8),
    ClusterSize(u8),
    ClusterRank,
    ClusterBlocks,
    /// What the block's own shared addresses have above their offset.
    SharedWindow,
    /// 1 if clusters were specified explicitly.
    ExplicitCluster,
    /// Halves of the address of the grid's workspace; 0 unless the launch is cooperative.
    WorkspaceHigh,
    WorkspaceLow,
}

/// Operation of a micro-op.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Lane-wise: `d` from `a`, `b`, `c` and the immediate.
    Lane(Handler),
    /// Jumps to the op of the immediate.
    Branch,
    /// Jumps to the target list's entry `a`; the immediate is the number of targets.
    BranchIndexed,
    Exit,
    /// Fails; an immediate of 1 says that an indirect call found no function.
    Trap,
    /// Loads the list from address `a` plus the immediate.
    Load(Access),
    /// Stores the list to address `a` plus the immediate.
    Store(Access),
    /// `d` is the old value at address `a` plus the immediate; operands `b` and `c`.
    Atomic(Atomic),
    Special(Special),
    SpecialWide(Special),
    /// Address of the module variable whose index is the immediate.
    VariableAddress,
    /// `d` and the in-range predicate `e` from `a`, lane `b`, clamp `c`; the list ends with the
    /// member mask.
    Shuffle(Shuffle),
    /// `d` from the predicate `a` with member mask `b`.
    Vote(Vote),
    /// `d`, and `e` for `.all`, from `a` with member mask `b`.
    MatchWord {
        all: bool,
    },
    MatchWide {
        all: bool,
    },
    /// `d` from `a` with member mask `b`.
    Reduce {
        modify: Modify,
        signed: bool,
    },
    /// The same of single-precision values.
    ReduceFloat {
        max: bool,
        magnitude: bool,
        nan: bool,
    },
    ActiveMask,
    /// Waits for the lanes of member mask `a`.
    WarpSync,
    /// Barrier `a` of `b` threads, 0 for all; reduces the predicate `c` into `d`.
    Barrier(Barrier),
    /// Yields to other warps.
    Sleep,
    Fence,
    /// Waits for the launches before.
    GridWait,
    /// Operands are in the list: destinations, then sources.
    Unit(Unit),
}

/// A micro-op.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MicroOp {
    pub kind: Kind,
    pub guard: Slot,
    pub d: Slot,
    pub e: Slot,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    /// Index of the first operand in [`Program::lists`](crate::program::Program::lists).
    pub list: u32,
    pub imm: i64,
}

/// Origin of an op in the PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    pub line: u32,
    pub loc: Loc,
    pub traits: Traits,
}
