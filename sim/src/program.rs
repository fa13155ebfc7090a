//! A kernel as the machine runs it.

use crate::op::{MicroOp, Origin};
use crate::registers::{Constants, RegisterCount, Slot};
use crate::tracked::Tracked;

/// A kernel ready to run.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub ops: Vec<MicroOp>,
    pub origins: Vec<Origin>,
    pub lists: Vec<Slot>,
    /// Targets of indexed branches.
    pub targets: Vec<u32>,
    /// Registers that checks must watch.
    pub tracked: Tracked,
    pub constants: Constants,
    pub registers: RegisterCount,
    /// Local memory of a thread.
    pub local_bytes: u32,
    /// Static shared memory of a block.
    pub shared_bytes: u32,
}
