//! What a device is made with.

/// What a device has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceConfig {
    /// Bytes that may be allocated at once. The host's memory is taken as it is touched.
    pub memory_bytes: u64,
    /// The most shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes_max: u32,
    /// Multiprocessors, at least 1: what `%nsmid` says, and how many blocks are resident.
    pub sm_count: u32,
    /// Host threads that run blocks, at least 1.
    pub workers: usize,
    /// What the order of warps is drawn from.
    pub seed: u64,
}

impl Default for DeviceConfig {
    /// 8 GiB, 227 KiB of shared memory, 4 multiprocessors and a worker for each host processor.
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
