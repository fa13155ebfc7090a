//! How many blocks of a kernel one SM holds.

use crate::Machine;

/// What a block of a compiled kernel takes, as the driver or the assembler says it: PTX does not
/// know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u32,
}

/// What keeps an SM from holding more blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Blocks at once.
    Blocks,
    /// Threads at once.
    Threads,
    /// The registers.
    Registers,
    /// The shared memory.
    Shared,
}

/// How full an SM is.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Blocks of one SM; 0 if the kernel does not fit.
    pub blocks: u32,
    /// Warps of one SM.
    pub warps: u32,
    /// The share of the warps that it could hold, from 0 to 1.
    pub share: f64,
    /// What binds.
    pub limit: Limit,
}

/// Registers are given to a warp in units of this: CUDA Occupancy Calculator, since 7.0.
const REGISTER_UNIT: u32 = 256;
/// Shared memory is given in units of this, since 8.0.
const SHARED_UNIT: u32 = 128;

impl Occupancy {
    /// How full a kernel with blocks of so many threads makes an SM.
    pub fn of(machine: &Machine, threads: u32, resources: Resources) -> Occupancy {
        // More than any GPU has, so that no sum overflows.
        let bounded = |taken: u32| taken.min(1 << 24);
        let warps = bounded(threads).div_ceil(32).max(1);
        let per_warp = (bounded(resources.registers).max(1) * 32).next_multiple_of(REGISTER_UNIT);
        // Each of the four schedulers has a quarter of the registers, and whole warps.
        let warps_by_registers = machine.registers / 4 / per_warp * 4;
        let own = bounded(resources.shared_bytes).next_multiple_of(SHARED_UNIT);
        let shared = (own + machine.shared_reserved).max(1);
        let limits = [
            (machine.blocks_max, Limit::Blocks),
            (machine.threads_max / (warps * 32), Limit::Threads),
            (warps_by_registers / warps, Limit::Registers),
            (machine.shared_bytes / shared, Limit::Shared),
        ];
        let (blocks, limit) =
            limits.into_iter().min_by_key(|&(blocks, _)| blocks).unwrap_or((0, Limit::Blocks));
        let warps = blocks * warps;
        let share = f64::from(warps) * 32.0 / f64::from(machine.threads_max);
        Occupancy { blocks, warps, share, limit }
    }
}
