//! Device configuration.

use std::time::Duration;

/// Resources of a simulated device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceConfig {
    /// Maximum total size of allocations in bytes. Host memory is committed on first touch.
    pub memory_bytes: u64,
    /// Maximum shared memory per block, static and dynamic, in bytes.
    pub shared_bytes_max: u32,
    /// Number of SMs, at least 1: the value of `%nsmid`, which bounds the number of resident
    /// blocks.
    pub sm_count: u32,
    /// Number of host threads that run blocks, at least 1.
    pub workers: usize,
    /// Seed of the warp scheduling order.
    pub seed: u64,
    /// How long a launch whose threads all poll may do so before its clocks leap, if its kernel
    /// reads at system scope: what it waits for may come of another launch, on another thread of
    /// the host, of another device, or of the host. Its clocks then go as the host's does. With 0
    /// they leap as those of any launch.
    pub patience: Duration,
}

impl Default for DeviceConfig {
    /// 8 GiB of memory, 227 KiB of shared memory, 4 SMs and a worker per host processor.
    fn default() -> DeviceConfig {
        DeviceConfig {
            memory_bytes: 8 << 30,
            shared_bytes_max: 227 << 10,
            sm_count: 4,
            workers: std::thread::available_parallelism().map_or(1, |count| count.get()),
            seed: 0,
            patience: Duration::ZERO,
        }
    }
}
