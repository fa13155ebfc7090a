//! Compiled kernels, kept: in memory for the process, on disk for the next one.
//!
//! The cache never fails a call. Whatever goes wrong here (no home, a full disk, a corrupt or
//! foreign entry) is a warning and a rebuild. It knows keys and images, not what they are for.

mod disk;
mod entry;
mod flight;
mod key;

pub use disk::{DiskCache, DiskCounters};
pub use entry::{Entry, EntryError};
pub use flight::Flight;
pub use key::{Key, Request};
