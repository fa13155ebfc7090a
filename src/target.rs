//! GPU properties that kernels are generated for, and a table of known GPUs for use without a
//! device.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A compute capability with its architecture-specific suffix: `sm_90a` is not `sm_90`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Arch {
    /// `major * 10 + minor`.
    pub capability: u16,
    /// The `a` suffix: features of exactly this architecture, no forward compatibility.
    pub specific: bool,
}

impl Arch {
    /// An architecture without the `a` suffix.
    pub const fn new(capability: u16) -> Self {
        Arch { capability, specific: false }
    }

    /// The architecture to compile for on a device of this capability: with the `a` suffix where
    /// the hardware has architecture-specific instructions.
    pub const fn of_device(capability: u16) -> Self {
        Arch { capability, specific: matches!(capability, 90 | 100 | 103) }
    }

    /// Threads per warp.
    pub const WARP_THREADS: u32 = 32;

    /// Maximum number of 32-bit registers per thread on every architecture.
    pub const REGISTERS_THREAD_MAX: u32 = 255;

    /// Maximum number of threads per block on every architecture.
    pub const BLOCK_THREADS_MAX: u32 = 1024;
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.specific { "a" } else { "" })
    }
}

impl FromStr for Arch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad =
            || Error::bad_param(format!("unknown architecture `{text}`: expected like sm_90a"));
        let rest = text.strip_prefix("sm_").ok_or_else(bad)?;
        let digits = rest.strip_suffix('a').unwrap_or(rest);
        let capability = digits.parse().map_err(|_| bad())?;
        Ok(Arch { capability, specific: digits.len() != rest.len() })
    }
}

impl From<Arch> for String {
    fn from(arch: Arch) -> String {
        arch.to_string()
    }
}

impl TryFrom<String> for Arch {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

/// A kernel's target: an architecture and the resources of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Device name, as the driver reports it.
    pub name: String,
    /// Architecture that NVRTC compiles for.
    pub arch: Arch,
    /// Number of SMs.
    pub sm_count: u32,
    /// Maximum shared memory per block (opt-in) in bytes.
    pub shared_block_bytes_max: u32,
    /// Shared memory per SM in bytes.
    pub shared_sm_bytes: u32,
    /// 32-bit registers per SM.
    pub registers_sm: u32,
    /// Maximum number of threads per SM.
    pub threads_sm_max: u32,
    /// L2 cache size in bytes.
    pub l2_bytes: u64,
}

struct Known {
    key: &'static str,
    name: &'static str,
    arch: Arch,
    sm_count: u32,
    shared_block_kib: u32,
    shared_sm_kib: u32,
    threads_sm: u32,
    l2_mib: u64,
}

const fn specific(capability: u16) -> Arch {
    Arch { capability, specific: true }
}

/// Sources: compute capability table of the CUDA C++ programming guide; architecture whitepapers
/// for SM counts and L2 sizes. The simulator has few SMs so that persistent grids wrap around.
const KNOWN: &[Known] = &[
    known("sim", "Kiln simulator", specific(90), 4, [227, 228], 2048, 50),
    known("sim120", "Kiln simulator (sm_120)", Arch::new(120), 4, [99, 100], 1536, 64),
    known("t4", "Tesla T4", Arch::new(75), 40, [64, 64], 1024, 4),
    known("a100", "NVIDIA A100-SXM4-80GB", Arch::new(80), 108, [163, 164], 2048, 40),
    known("rtx3090", "NVIDIA GeForce RTX 3090", Arch::new(86), 82, [99, 100], 1536, 6),
    known("l40s", "NVIDIA L40S", Arch::new(89), 142, [99, 100], 1536, 96),
    known("rtx4090", "NVIDIA GeForce RTX 4090", Arch::new(89), 128, [99, 100], 1536, 72),
    known("h100", "NVIDIA H100 80GB HBM3", specific(90), 132, [227, 228], 2048, 50),
    known("h200", "NVIDIA H200", specific(90), 132, [227, 228], 2048, 50),
    known("b200", "NVIDIA B200", specific(100), 148, [227, 228], 2048, 126),
    known("rtx5090", "NVIDIA GeForce RTX 5090", Arch::new(120), 170, [99, 100], 1536, 96),
];

const fn known(
    key: &'static str,
    name: &'static str,
    arch: Arch,
    sm_count: u32,
    [shared_block_kib, shared_sm_kib]: [u32; 2],
    threads_sm: u32,
    l2_mib: u64,
) -> Known {
    Known { key, name, arch, sm_count, shared_block_kib, shared_sm_kib, threads_sm, l2_mib }
}

impl Target {
    /// The target of the default simulated device: sm_90a with four SMs.
    pub fn sim() -> Self {
        Target::named("sim").expect("the table holds the simulator")
    }

    /// Looks up a GPU by its short name: `a100`, `l40s`, `rtx4090`, `h100`, `h200`, `b200`, `sim`
    /// and others ([`Target::names`]).
    ///
    /// # Errors
    /// `BadParam` for an unknown name.
    pub fn named(key: &str) -> Result<Self, Error> {
        let found = KNOWN.iter().find(|known| known.key == key).ok_or_else(|| {
            let names = Target::names().collect::<Vec<_>>().join(", ");
            Error::bad_param(format!("unknown target `{key}`: expected one of {names}"))
        })?;
        Ok(Target {
            name: found.name.to_owned(),
            arch: found.arch,
            sm_count: found.sm_count,
            shared_block_bytes_max: found.shared_block_kib * 1024,
            shared_sm_bytes: found.shared_sm_kib * 1024,
            registers_sm: 65536,
            threads_sm_max: found.threads_sm,
            l2_bytes: found.l2_mib << 20,
        })
    }

    /// Maximum cluster size in blocks: 8 from sm_90 on, 16 on data-center GPUs, where it is not
    /// portable (CUDA C++ programming guide, "thread block clusters").
    pub fn cluster_blocks_max(&self) -> u32 {
        match self.arch.capability {
            90 | 100 | 103 => 16,
            91.. => 8,
            _ => 1,
        }
    }

    /// Short names of the table.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|known| known.key)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {} SMs)", self.name, self.arch, self.sm_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_round_trip() {
        for text in ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120"] {
            assert_eq!(text.parse::<Arch>().expect("valid").to_string(), text);
        }
        for text in ["90", "sm_", "sm_90b", "sm_x"] {
            let error = text.parse::<Arch>().expect_err("invalid").to_string();
            assert_eq!(error, format!("unknown architecture `{text}`: expected like sm_90a"));
        }
    }

    #[test]
    fn the_table_is_found_by_name() {
        let h200 = Target::named("h200").expect("known");
        assert_eq!(h200.to_string(), "NVIDIA H200 (sm_90a, 132 SMs)");
        let clusters = |key| Target::named(key).expect("known").cluster_blocks_max();
        assert_eq!(["a100", "h200", "b200", "rtx5090"].map(clusters), [1, 16, 16, 8]);
        let error = Target::named("h900").expect_err("unknown").to_string();
        assert!(error.starts_with("unknown target `h900`: expected one of sim, "), "{error}");
    }
}
