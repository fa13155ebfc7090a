//! The machine's instructions: fixed-size, operands resolved to slots.

use crate::access::{Access, Atomic, Modify};
use crate::ast::Loc;
use crate::registers::{Constants, Registers, Slot};
use crate::traits::Traits;
use crate::unit::Unit;

/// Runs one lane-wise operation for the lanes of a mask.
///
/// Unsafe to call only because it may use instructions that the processor lacks;
/// [`handler`](crate::lanes::handler) gives no such function.
pub(crate) type Handler = unsafe fn(&mut Registers, &Constants, &MicroOp, u32);

/// How `shfl` picks the lane it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What `vote` and `bar.red` say about a predicate.
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
    /// Whether every thread of the warp must take part at once.
    pub aligned: bool,
    /// Whether to wait.
    pub wait: bool,
    pub reduce: Option<Vote>,
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// The thread's index in its block, along an axis.
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
    /// The cluster's index in the grid, along an axis.
    Cluster(u8),
    ClusterCount(u8),
    /// The block's index in its cluster, along an axis.
    ClusterBlock(u8),
    ClusterSize(u8),
    ClusterRank,
    ClusterBlocks,
    /// 1 if clusters were asked for.
    ExplicitCluster,
}

/// What a micro-op does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// `d` from `a`, `b`, `c` and the immediate, lane by lane.
    Lane(Handler),
    /// To the op of the immediate.
    Branch,
    /// To the op that the list gives for the word `a`; the immediate counts the targets.
    BranchIndexed,
    Exit,
    Trap,
    /// The list from address `a` plus the immediate.
    Load(Access),
    /// The list to address `a` plus the immediate.
    Store(Access),
    /// `d` was at address `a` plus the immediate; operands `b` and `c`.
    Atomic(Atomic),
    Special(Special),
    SpecialWide(Special),
    /// The address of the module variable that the immediate numbers.
    VariableAddress,
    /// `d` and whether it was in range, `e`, from `a`, lane `b`, clamp `c`; the list ends with the
    /// member mask.
    Shuffle(Shuffle),
    /// `d` from the predicate `a`; members `b`.
    Vote(Vote),
    /// `d`, and `e` for `.all`, from `a`; members `b`.
    MatchWord {
        all: bool,
    },
    MatchWide {
        all: bool,
    },
    /// `d` from `a`; members `b`.
    Reduce {
        modify: Modify,
        signed: bool,
    },
    ActiveMask,
    /// Waits for the members `a`.
    WarpSync,
    /// Barrier `a`, of `b` threads or 0 for all; reduces the predicate `c` into `d`.
    Barrier(Barrier),
    /// Lets others run.
    Sleep,
    Fence,
    /// The list: what it writes, then what it reads.
    Unit(Unit),
}

/// One instruction of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MicroOp {
    pub kind: Kind,
    pub guard: Slot,
    pub d: Slot,
    pub e: Slot,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    /// First of the operands in [`Program::lists`](crate::program::Program::lists).
    pub list: u32,
    pub imm: i64,
}

/// Where an op comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Origin {
    pub line: u32,
    pub loc: Loc,
    pub traits: Traits,
}
