//! Executable form of a kernel.

use crate::access::Window;
use crate::accuracy::{Accuracy, Step};
use crate::format::Format;
use crate::op::{Kind, MicroOp, Origin, Special};
use crate::registers::{Constants, RegisterCount, Slot};
use crate::tracked::{Tracked, Uses};
use crate::unit::{BulkCopy, Unit};

/// A kernel ready to run.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub accuracy: Accuracy,
    /// The module's target.
    pub target: String,
    pub ops: Vec<MicroOp>,
    pub origins: Vec<Origin>,
    pub lists: Vec<Slot>,
    /// Targets of indexed branches.
    pub targets: Vec<u32>,
    /// Registers tracked by the checks.
    pub tracked: Tracked,
    /// Uses of the registers that are operands or accumulators of wgmma, and their number.
    pub product_uses: Uses,
    pub product_registers: usize,
    pub constants: Constants,
    pub registers: RegisterCount,
    /// Local memory per thread in bytes.
    pub local_bytes: u32,
    /// Static shared memory per block in bytes.
    pub shared_bytes: u32,
}

impl Program {
    /// How tensor cores add, if not one product after another.
    #[inline(always)]
    pub fn step(&self, format: Format, k: usize) -> Option<Step> {
        match self.accuracy {
            Accuracy::Nearest => None,
            Accuracy::Worst => Some(Step::of(&self.target, format, k)),
        }
    }

    /// Whether the kernel reads the address of the grid's workspace.
    pub fn has_grid_barriers(&self) -> bool {
        let reads = |op: &MicroOp| matches!(op.kind, Kind::Special(Special::WorkspaceLow));
        self.ops.iter().any(reads)
    }

    /// Whether the kernel has no instruction by which blocks of different clusters work together:
    /// atomics and strong accesses outside of shared memory, changes of tensor maps, the heap. One
    /// that has none may still race.
    pub fn keeps_to_clusters(&self) -> bool {
        self.ops.iter().all(|op| match op.kind {
            Kind::Load(access) | Kind::Store(access) => {
                !access.strong || matches!(access.window, Window::Shared | Window::Local)
            }
            Kind::Atomic(atomic) => atomic.window == Window::Shared,
            Kind::Unit(Unit::Bulk(BulkCopy { reduce, .. })) => reduce.is_none(),
            Kind::Unit(Unit::ReplaceMap { .. } | Unit::CopyMap | Unit::Allocate | Unit::Free) => {
                false
            }
            _ => true,
        })
    }

    /// Whether the kernel reads at system scope, so that it may wait for another launch.
    pub fn reads_at_system_scope(&self) -> bool {
        self.origins.iter().any(|origin| origin.traits.reads_system)
    }

    /// Whether the kernel waits for the launches before it.
    pub fn waits_for_grids(&self) -> bool {
        self.ops.iter().any(|op| matches!(op.kind, Kind::GridWait))
    }

    /// Whether the kernel allocates memory, or frees it.
    pub fn has_heap(&self) -> bool {
        let uses = |op: &MicroOp| matches!(op.kind, Kind::Unit(Unit::Allocate | Unit::Free));
        self.ops.iter().any(uses)
    }
}
