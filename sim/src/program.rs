//! Executable form of a kernel.

use crate::op::{Kind, MicroOp, Origin, Special};
use crate::registers::{Constants, RegisterCount, Slot};
use crate::tracked::{Tracked, Uses};

/// A kernel ready to run.
#[derive(Debug, Default)]
pub(crate) struct Program {
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
    /// Whether the kernel reads the address of the grid's workspace.
    pub fn has_grid_barriers(&self) -> bool {
        let reads = |op: &MicroOp| matches!(op.kind, Kind::Special(Special::WorkspaceLow));
        self.ops.iter().any(reads)
    }
}
