//! Why settings of a recurrent layer are not legal.

use std::fmt;

use crate::error::Error;

/// A limit and the requirement that exceeds it. No text is formatted until it is shown: most
/// settings are refused during a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Units,
    Threads { count: i64 },
    Resident { count: i64, sm_count: i64 },
    Cluster { blocks: i64, max: i64 },
    Registers { needed: i64, available: i64 },
    SharedBytes { needed: i64, available: i64 },
}

/// Maximum threads per block.
pub(super) const THREADS_MAX: i64 = 1024;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Units => f.write_str("blocks would have less than 8 units each"),
            Refusal::Threads { count } => write!(f, "{count} threads, at most {THREADS_MAX}"),
            Refusal::Resident { count, sm_count } => {
                write!(f, "{count} blocks, {sm_count} can be resident together")
            }
            Refusal::Cluster { blocks, max } => {
                write!(f, "a cluster of {blocks} blocks, at most {max}")
            }
            Refusal::Registers { needed, available } => {
                write!(f, "about {needed} registers of each thread, {available} are there")
            }
            Refusal::SharedBytes { needed, available } => {
                write!(f, "{needed} bytes of shared memory, {available} are there")
            }
        }
    }
}

impl Refusal {
    pub(super) fn error(self) -> Error {
        Error::not_supported(self.to_string())
    }
}
