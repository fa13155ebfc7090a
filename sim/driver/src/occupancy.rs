//! How many blocks an SM holds.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::cudaError_enum::*;

use crate::gpu::Gpu;
use crate::launch::{Config, Function};
use crate::machine::{MACHINE, driver};
use crate::outcome::Outcome;
use crate::pointer::{In, Out};
use crate::settings::SETTINGS;

/// Registers of an SM, and how many a warp is given at once.
const REGISTERS_SM: u32 = 65536;
const REGISTERS_UNIT: u32 = 256;
const WARP: u32 = 32;

pub fn gpu() -> &'static Gpu {
    SETTINGS.as_ref().map_or(Gpu::SIM, |all| all.gpu)
}

/// Shared memory that the system takes of each block, in bytes.
pub fn shared_bytes_reserved(gpu: &Gpu) -> u32 {
    if gpu.capability >= (8, 0) { 1024 } else { 0 }
}

/// Blocks of a size that an SM holds; none if one does not fit.
fn blocks(function: &Function, threads: u32, shared_bytes: u64) -> u32 {
    let gpu = gpu();
    if threads == 0 || threads > function.threads_max() {
        return 0;
    }
    let shared = u64::from(function.kernel.shared_bytes()).saturating_add(shared_bytes);
    if shared > u64::from(gpu.shared_bytes_max) {
        return 0;
    }
    let warps = threads.div_ceil(WARP);
    let registers = (function.registers() * WARP).next_multiple_of(REGISTERS_UNIT) * warps;
    let taken = shared + u64::from(shared_bytes_reserved(gpu));
    let by_shared = (u64::from(gpu.shared_bytes_sm) / taken.max(1)).min(u64::from(gpu.blocks_sm));
    (gpu.threads_sm / (warps * WARP))
        .min(REGISTERS_SM / registers)
        .min(by_shared as u32)
        .min(
            SETTINGS
                .as_ref()
                .ok()
                .and_then(|all| all.resident)
                .map_or(u32::MAX, |most| most as u32),
        )
        .min(gpu.blocks_sm)
}

fn of(function: u64) -> Outcome<Function> {
    let state = MACHINE.ready()?;
    state.functions.get(&function).cloned().ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn max_active(to: Out<c_int>, function: u64, threads: c_int, shared: usize) -> Outcome {
    let threads = u32::try_from(threads).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    if threads == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    to.put(blocks(&of(function)?, threads, shared as u64) as c_int)
}

type SharedOfBlock = Option<unsafe extern "C" fn(c_int) -> usize>;

/// The block size that fills an SM best, the largest of the best, and a grid that fills the device.
fn potential(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: u64,
    of_block: SharedOfBlock,
    shared: usize,
    limit: c_int,
) -> Outcome {
    let function = of(function)?;
    let limit = if limit <= 0 { 1024 } else { limit as u32 };
    let most = limit.min(function.threads_max()).min(1024);
    let mut best = (0, 0, 0);
    let mut threads = most;
    while threads > 0 {
        let shared = match of_block {
            // SAFETY: the caller's function of a block size, as the interface asks.
            Some(of_block) => unsafe { of_block(threads as c_int) },
            None => shared,
        };
        let count = blocks(&function, threads, shared as u64);
        if count * threads > best.0 {
            best = (count * threads, threads, count);
        }
        threads = (threads - 1) / WARP * WARP;
    }
    if best.1 == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    block.put(best.1 as c_int)?;
    grid.put((best.2 * gpu().sm_count) as c_int)
}

driver! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        to: Out<c_int>,
        function: u64,
        threads: c_int,
        shared: usize,
    ) {
        max_active(to, function, threads, shared)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        to: Out<c_int>,
        function: u64,
        threads: c_int,
        shared: usize,
        flags: c_uint,
    ) {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        max_active(to, function, threads, shared)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: u64,
        of_block: SharedOfBlock,
        shared: usize,
        limit: c_int,
    ) {
        potential(grid, block, function, of_block, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>,
        block: Out<c_int>,
        function: u64,
        of_block: SharedOfBlock,
        shared: usize,
        limit: c_int,
        flags: c_uint,
    ) {
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        potential(grid, block, function, of_block, shared, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>,
        function: u64,
        count: c_int,
        threads: c_int,
    ) {
        let function = of(function)?;
        let fit = u32::try_from(threads).map(|threads| blocks(&function, threads, 0));
        match (fit, u32::try_from(count)) {
            (Ok(fit), Ok(count)) if count > 0 && count <= fit => {
                let gpu = gpu();
                let own = function.kernel.shared_bytes() + shared_bytes_reserved(gpu);
                let each = (gpu.shared_bytes_sm / count).saturating_sub(own);
                let most = gpu.shared_bytes_max - function.kernel.shared_bytes();
                bytes.put(each.min(most) as usize)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn cuOccupancyMaxActiveClusters(to: Out<c_int>, function: u64, config: In<Config>) {
        let (function, config) = (of(function)?, config.get()?);
        let cluster = config.cluster()?.or(function.kernel.cluster()).unwrap_or([1; 3]);
        let threads = config.block.iter().fold(1, |all, &n| u32::saturating_mul(all, n));
        let of_sm = blocks(&function, threads, u64::from(config.shared_bytes));
        let size = cluster.iter().fold(1, |all, &n| u32::saturating_mul(all, n));
        // A launch takes every cluster whose blocks fit an SM each, however few SMs there are.
        let fit = (of_sm * gpu().sm_count / size.max(1)).max(of_sm.min(1));
        to.put(fit as c_int)
    }

    fn cuOccupancyMaxPotentialClusterSize(to: Out<c_int>, function: u64, config: In<Config>) {
        let (function, config) = (of(function)?, config.get()?);
        let threads = config.block.iter().fold(1, |all, &n| u32::saturating_mul(all, n));
        let fit = blocks(&function, threads, u64::from(config.shared_bytes)) * gpu().sm_count;
        // Of the sizes that every device takes, the largest that is there at once.
        let size = [8, 4, 2, 1].into_iter().find(|&size| size <= fit);
        to.put(size.ok_or(CUDA_ERROR_INVALID_VALUE)? as c_int)
    }
}
