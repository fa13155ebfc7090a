//! Executable form of a kernel.

use crate::op::{MicroOp, Origin};
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
