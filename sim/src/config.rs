//! Device configuration.

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
        }
    }
}
