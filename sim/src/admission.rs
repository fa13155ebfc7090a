//! Validation of launches, as a driver does it.

use crate::config::DeviceConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::launch::{Launch, SM_REGISTERS};
use crate::memory::RANK_BYTES;
use crate::module::Kernel;
use crate::registers::LANES;

/// Maximum number of threads per block.
const BLOCK_THREADS_MAX: u64 = 1024;
/// Maximum number of threads per SM.
const SM_THREADS: u64 = 2048;
/// Maximum number of blocks per SM.
const SM_BLOCKS: u64 = 32;
/// Maximum number of blocks per cluster, and on every device.
const CLUSTER_BLOCKS_MAX: u32 = 16;
const CLUSTER_BLOCKS_PORTABLE: u64 = 8;
/// Registers of a warp are allocated in multiples of this.
const WARP_REGISTERS: u64 = 256;

/// Registers of a block, as many as its warps are given.
fn block_registers(launch: &Launch) -> u64 {
    let warps = product(launch.block).div_ceil(LANES as u64);
    warps * (u64::from(launch.registers) * LANES as u64).next_multiple_of(WARP_REGISTERS)
}

/// Product of three extents, saturating.
pub(crate) fn product(size: [u32; 3]) -> u64 {
    size.iter().fold(1, |all, &n| u64::saturating_mul(all, n.into()))
}

fn bad<T>(kernel: &Kernel, why: String) -> Result<T> {
    let text = format!("failed to launch `{}`: {why}", kernel.name());
    Err(Error::new(ErrorKind::BadLaunch, text))
}

/// Number of blocks that the device holds at once.
pub(crate) fn resident_max(kernel: &Kernel, launch: &Launch, config: &DeviceConfig) -> u64 {
    let threads = product(launch.block);
    let shared = u64::from(kernel.shared_bytes()) + u64::from(launch.shared_bytes);
    let by_threads = SM_THREADS / threads.next_multiple_of(LANES as u64);
    // The maximum per block is 1 KiB less than the SM has; each block reserves 1 KiB.
    let by_shared = (u64::from(config.shared_bytes_max) + 1024) / (shared + 1024);
    let by_registers = match block_registers(launch) {
        0 => u64::MAX,
        registers => u64::from(SM_REGISTERS) / registers,
    };
    by_threads.min(by_shared).min(by_registers).clamp(1, SM_BLOCKS) * u64::from(config.sm_count)
}

/// Rejects launches that a driver would reject.
pub(crate) fn check(
    kernel: &Kernel,
    launch: &Launch,
    params: &[u8],
    config: &DeviceConfig,
) -> Result<()> {
    let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
    if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > 65535 || gz > 65535 {
        return bad(
            kernel,
            format!("grid ({gx}, {gy}, {gz}) is not within (2147483647, 65535, 65535)"),
        );
    }
    let threads = product(launch.block);
    if threads == 0 || threads > BLOCK_THREADS_MAX || bz > 64 {
        return bad(kernel, format!("block ({bx}, {by}, {bz}) is not within 1024 threads"));
    }
    if let Some([x, y, z]) = kernel.block().filter(|&own| launch.block != own) {
        return bad(
            kernel,
            format!("block ({bx}, {by}, {bz}) where .reqntid says ({x}, {y}, {z})"),
        );
    }
    if let Some(max) = kernel.block_threads_max().filter(|&max| threads > u64::from(max)) {
        return bad(kernel, format!("{threads} threads where .maxntid allows {max}"));
    }
    let shared = u64::from(kernel.shared_bytes()) + u64::from(launch.shared_bytes);
    let max = u64::from(config.shared_bytes_max).min(RANK_BYTES);
    if shared > max {
        return bad(kernel, format!("{shared} bytes of shared memory of {max}"));
    }
    let registers = block_registers(launch);
    if registers > u64::from(SM_REGISTERS) {
        let each = launch.registers;
        return bad(
            kernel,
            format!("{threads} threads of {each} registers take {registers} of {SM_REGISTERS}"),
        );
    }
    if params.len() != kernel.param_bytes() {
        let (found, want) = (params.len(), kernel.param_bytes());
        return bad(kernel, format!("{found} bytes of parameters instead of {want}"));
    }
    check_cluster(kernel, launch)?;
    let blocks = product(launch.grid);
    let resident = resident_max(kernel, launch, config);
    if launch.cooperative && launch.clusters_max.is_some() {
        return bad(kernel, "some blocks of a cooperative grid".to_string());
    }
    if launch.cooperative && blocks > resident {
        return bad(kernel, format!("a cooperative grid of {blocks} blocks; {resident} fit"));
    }
    Ok(())
}

fn check_cluster(kernel: &Kernel, launch: &Launch) -> Result<()> {
    let [x, y, z] = launch.cluster;
    if let Some(own) =
        kernel.cluster().filter(|&own| launch.cluster != [0; 3] && launch.cluster != own)
    {
        let [a, b, c] = own;
        return bad(
            kernel,
            format!("cluster ({x}, {y}, {z}) where .reqnctapercluster says ({a}, {b}, {c})"),
        );
    }
    let size = launch.cluster_of(kernel);
    let ([x, y, z], [gx, gy, gz]) = (size, launch.grid);
    let blocks = product(size);
    let max = kernel.cluster_blocks_max().unwrap_or(CLUSTER_BLOCKS_MAX).min(CLUSTER_BLOCKS_MAX);
    if blocks == 0 || blocks > u64::from(max) {
        return bad(kernel, format!("cluster ({x}, {y}, {z}) is not within {max} blocks"));
    }
    if blocks > CLUSTER_BLOCKS_PORTABLE && !launch.non_portable_cluster {
        return bad(
            kernel,
            format!(
                "{blocks} blocks in a cluster, more than 8, where non-portable is not asked for"
            ),
        );
    }
    if gx % x != 0 || gy % y != 0 || gz % z != 0 {
        return bad(
            kernel,
            format!("grid ({gx}, {gy}, {gz}) is not a multiple of cluster ({x}, {y}, {z})"),
        );
    }
    Ok(())
}
