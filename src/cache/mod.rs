//! Cache of compiled kernels: in memory within a process, on disk across processes.
//!
//! The cache never fails a call. Any failure (no home folder, a full disk, a corrupt or foreign
//! entry) is a warning and a rebuild. It knows keys and images, not graphs or engines.

mod collect;
mod counters;
mod disk;
mod entry;
mod explain;
mod flight;
mod folder;
mod held;
mod key;
mod lease;
mod lock;
mod memo;
mod pack;
mod remote;
mod signature;
mod storage;

pub use collect::{Collected, EntryFile};
pub use counters::Counts;
pub use disk::{BUDGET_BYTES, DiskCache};
pub use entry::{Entry, EntryError};
pub use explain::{Difference, Explanation, explain};
pub use flight::Flight;
pub use held::Held;
pub use key::{Key, Request};
pub use lock::KeyLock;
pub use pack::{Pack, PackItem};
pub use remote::{Remote, RemoteCache};
pub use signature::{PackSigner, Signed, Trust, TrustRoot, Validity};
