//! Why settings of a recurrent layer are not legal.

use std::fmt;

/// A limit and the requirement that exceeds it. No text is formatted until it is shown: most
/// settings are refused during a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    HiddenUnits,
    Threads { count: i64 },
    Resident { count: i64, sm_count: i64 },
    Cluster { blocks: i64, max: i64 },
    Registers { needed: i64, available: i64 },
    SharedBytes { needed: i64, available: i64 },
    PartialSums,
    Words { threads: i64 },
}

/// Maximum threads per block.
pub(super) const THREADS_MAX: i64 = 1024;

impl fmt::Display for Refusal {
    /// Reads on after the name of an engine or a configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::HiddenUnits => f.write_str("needs at least 8 hidden units in each block"),
            Refusal::Threads { count } => {
                write!(f, "needs {count} threads, a block has at most {THREADS_MAX}")
            }
            Refusal::Resident { count, sm_count } => {
                write!(f, "needs {count} resident blocks, {sm_count} SMs hold one each")
            }
            Refusal::Cluster { blocks, max } => {
                write!(f, "needs a cluster of {blocks} blocks, it has at most {max}")
            }
            Refusal::Registers { needed, available } => {
                write!(f, "needs about {needed} registers per thread, {available} are available")
            }
            Refusal::PartialSums => f.write_str(
                "exchanges partial sums of one transposed GEMM per step, on tensor cores",
            ),
            Refusal::Words { threads } => {
                write!(f, "exchanges words of 8 bits by 64 threads at least, a block has {threads}")
            }
            Refusal::SharedBytes { needed, available } => {
                write!(f, "needs {needed} bytes of shared memory, {available} are available")
            }
        }
    }
}
