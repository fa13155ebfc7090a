//! The GPUs that the simulated device may pass for: what the data sheets and the table of compute
//! capabilities in the *CUDA C++ Programming Guide* say of them.

/// A GPU by its numbers.
#[derive(Debug, PartialEq, Eq)]
pub struct Gpu {
    pub name: &'static str,
    /// Names that choose it.
    keys: &'static [&'static str],
    pub capability: (u32, u32),
    pub sm_count: u32,
    /// Shared memory that a block may have, and that an SM has, in bytes.
    pub shared_bytes_max: u32,
    pub shared_bytes_sm: u32,
    pub threads_sm: u32,
    pub blocks_sm: u32,
    pub l2_bytes: u32,
    pub clock_khz: u32,
    pub memory_clock_khz: u32,
    pub memory_bus_bits: u32,
}

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;

/// The default comes first.
static GPUS: [Gpu; 9] = [
    Gpu {
        name: "Kiln simulated GPU",
        keys: &["sim"],
        capability: (9, 0),
        sm_count: 4,
        shared_bytes_max: 227 * KIB,
        shared_bytes_sm: 228 * KIB,
        threads_sm: 2048,
        blocks_sm: 32,
        l2_bytes: 50 * MIB,
        clock_khz: 1_000_000,
        memory_clock_khz: 1_000_000,
        memory_bus_bits: 64,
    },
    Gpu {
        name: "Kiln simulated T4",
        keys: &["t4", "sm_75"],
        capability: (7, 5),
        sm_count: 40,
        shared_bytes_max: 64 * KIB,
        shared_bytes_sm: 64 * KIB,
        threads_sm: 1024,
        blocks_sm: 16,
        l2_bytes: 4 * MIB,
        clock_khz: 1_590_000,
        memory_clock_khz: 5_001_000,
        memory_bus_bits: 256,
    },
    Gpu {
        name: "Kiln simulated A100",
        keys: &["a100", "sm_80"],
        capability: (8, 0),
        sm_count: 108,
        shared_bytes_max: 163 * KIB,
        shared_bytes_sm: 164 * KIB,
        threads_sm: 2048,
        blocks_sm: 32,
        l2_bytes: 40 * MIB,
        clock_khz: 1_410_000,
        memory_clock_khz: 1_512_000,
        memory_bus_bits: 5120,
    },
    Gpu {
        name: "Kiln simulated RTX 4090",
        keys: &["rtx4090", "sm_89"],
        capability: (8, 9),
        sm_count: 128,
        shared_bytes_max: 99 * KIB,
        shared_bytes_sm: 100 * KIB,
        threads_sm: 1536,
        blocks_sm: 24,
        l2_bytes: 72 * MIB,
        clock_khz: 2_520_000,
        memory_clock_khz: 10_501_000,
        memory_bus_bits: 384,
    },
    Gpu {
        name: "Kiln simulated L40S",
        keys: &["l40s"],
        capability: (8, 9),
        sm_count: 142,
        shared_bytes_max: 99 * KIB,
        shared_bytes_sm: 100 * KIB,
        threads_sm: 1536,
        blocks_sm: 24,
        l2_bytes: 96 * MIB,
        clock_khz: 2_520_000,
        memory_clock_khz: 9_001_000,
        memory_bus_bits: 384,
    },
    Gpu {
        name: "Kiln simulated H100",
        keys: &["h100", "sm_90"],
        capability: (9, 0),
        sm_count: 132,
        shared_bytes_max: 227 * KIB,
        shared_bytes_sm: 228 * KIB,
        threads_sm: 2048,
        blocks_sm: 32,
        l2_bytes: 50 * MIB,
        clock_khz: 1_980_000,
        memory_clock_khz: 2_619_000,
        memory_bus_bits: 5120,
    },
    Gpu {
        name: "Kiln simulated H200",
        keys: &["h200"],
        capability: (9, 0),
        sm_count: 132,
        shared_bytes_max: 227 * KIB,
        shared_bytes_sm: 228 * KIB,
        threads_sm: 2048,
        blocks_sm: 32,
        l2_bytes: 50 * MIB,
        clock_khz: 1_980_000,
        memory_clock_khz: 3_201_000,
        memory_bus_bits: 6144,
    },
    Gpu {
        name: "Kiln simulated B200",
        keys: &["b200", "sm_100"],
        capability: (10, 0),
        sm_count: 148,
        shared_bytes_max: 227 * KIB,
        shared_bytes_sm: 228 * KIB,
        threads_sm: 2048,
        blocks_sm: 32,
        l2_bytes: 126 * MIB,
        clock_khz: 1_965_000,
        memory_clock_khz: 3_996_000,
        memory_bus_bits: 8192,
    },
    Gpu {
        name: "Kiln simulated RTX 5090",
        keys: &["rtx5090", "sm_120"],
        capability: (12, 0),
        sm_count: 170,
        shared_bytes_max: 99 * KIB,
        shared_bytes_sm: 100 * KIB,
        threads_sm: 1536,
        blocks_sm: 24,
        l2_bytes: 96 * MIB,
        clock_khz: 2_407_000,
        memory_clock_khz: 14_001_000,
        memory_bus_bits: 512,
    },
];

impl Gpu {
    /// The default: small, so that grids that fill the device are small.
    pub const SIM: &'static Gpu = &GPUS[0];

    /// Looks a GPU up by name or architecture, in any case.
    pub fn named(name: &str) -> Option<&'static Gpu> {
        let key = name.to_ascii_lowercase();
        GPUS.iter().find(|gpu| gpu.keys.contains(&key.as_str()))
    }

    pub fn names() -> Vec<&'static str> {
        GPUS.iter().flat_map(|gpu| gpu.keys).copied().collect()
    }
}
