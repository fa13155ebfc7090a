//! Configuration of a Kiln, as given by a program.

use std::path::PathBuf;
use std::str::FromStr;

use crate::cache::{Pack, Remote, TrustRoot};
use crate::device::DeviceChoice;
use crate::engine::{Mode, Notes};
use crate::error::{Error, Result};

/// Configuration of a [`Kiln`](crate::plan::Kiln). A field that is `None` is read from the
/// environment ([`VARIABLES`](crate::plan::VARIABLES)); if its variable is not set, the default
/// holds. A process with more privileges than the user who started it (setuid) reads no variables
/// ([`variable`](crate::compile::variable)).
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The device to run on.
    pub device: Option<DeviceChoice>,
    /// The folder of the disk cache.
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of the disk cache in bytes.
    pub cache_bytes: Option<u64>,
    /// Packs of prebuilt kernels, searched in this order and before the disk cache.
    pub packs: Option<Vec<Pack>>,
    /// A store shared by several machines, searched after the disk cache. Requires the cargo
    /// feature `remote`.
    pub remote: Option<Remote>,
    /// Public keys. If there are any, packs signed with none of them are refused.
    pub trust_roots: Option<Vec<TrustRoot>>,
    /// Minimum version of a pack, with trust roots.
    pub trust_version: Option<u64>,
    /// With trust roots: refuse packs without an expiry date.
    pub trust_expiry: Option<bool>,
    /// Run only kernels that a trust root has signed, or that are compiled here from the embedded
    /// templates. There is no disk cache; a remote store, overrides and a template folder are
    /// refused.
    pub trust_all: Option<bool>,
    /// Strict mode: a kernel that is not in a pack or cache is an error with its key and an
    /// explanation, and is not compiled.
    pub no_jit: Option<bool>,
    /// How configurations are chosen if none has been tuned.
    pub heuristic: Option<Mode>,
    /// Excludes configurations with any of these notes.
    pub without: Option<Notes>,
    /// Run a requested configuration even if its kernels spill registers, with a warning.
    pub allow_spills: Option<bool>,
    /// On GPUs of sm_90 and later: a kernel of a plan may begin while the one before it ends
    /// (programmatic dependent launch). Layers of recurrent networks may run side by side
    /// ([`set_chunk_steps`](crate::layers::PersistentRnn::set_chunk_steps)). On unless given.
    pub overlap_launches: Option<bool>,
    /// Run a graph with generic kernels that have been built, if there are any, while its
    /// specialised kernels are compiled in the background. No effect in strict mode.
    pub background: Option<Background>,
    /// A manifest file that every planned problem is added to, for `kiln warm` and `kiln pack
    /// build`. An empty path: none.
    pub record: Option<PathBuf>,
    /// A folder that every planned kernel is dumped to, each into its own subfolder.
    pub dump: Option<PathBuf>,
    /// Dump only kernels whose stem contains this text or whose key starts with it.
    pub dump_filter: Option<String>,
    /// Also dump the tensors of every plan's first launch, which then synchronises its stream.
    pub dump_tensors: Option<bool>,
    /// The most bytes of tensors to capture of one launch; larger ones are left out.
    pub dump_tensor_bytes: Option<u64>,
    /// A folder of edited dumps, sources and PTX that replace generated kernels: see
    /// `docs/dump-and-replay.md`.
    pub overrides: Option<PathBuf>,
    /// On the simulator: a launch fails that has a data race, reads uninitialised memory, or
    /// reaches a barrier divergently.
    pub sanitize: Option<bool>,
    /// On the simulator: the seed of the order in which warps run and asynchronous copies complete.
    /// Results of a correct kernel depend on no seed; 0 unless given.
    pub sim_seed: Option<u64>,
    /// On the simulator: approximate functions have the largest error that PTX documents, and
    /// tensor cores truncate as hardware has been found to. Results stay within their bounds.
    pub sim_worst: Option<bool>,
    /// On the simulator: work of streams that nothing orders runs late, and in an order drawn with
    /// the seed. Results of a program that orders what depends on each other do not change.
    pub sim_late: Option<bool>,
    /// On the simulator: count the instructions and memory accesses of launches
    /// ([`Device::report`](crate::device::Device)).
    pub count: bool,
    /// On the simulator: run only so many clusters of each launch, or blocks without clusters,
    /// spread evenly over its grid, and count those. Results are incomplete; cooperative launches
    /// run whole.
    pub sample: Option<u32>,
    /// On the simulator: compile to PTX, which is all that it runs, without assembling a cubin,
    /// which takes two fifths of the compilation time. Registers and spills are then unknown: no
    /// configuration is rejected for spilling, and resident grids are computed with the maximum
    /// number of registers. Kernels that are warmed up or packed for a GPU are assembled
    /// nevertheless.
    pub ptx_only: Option<bool>,
    /// Keep compiled kernels in memory only, without a disk cache and without the environment's
    /// remote store.
    pub no_disk_cache: bool,
    /// The NVRTC library, or its folder.
    pub nvrtc: Option<PathBuf>,
    /// A folder of templates to use instead of the embedded ones.
    pub templates: Option<PathBuf>,
}

/// Background compilation ([`Config::background`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Background {
    /// Number of compiling threads, up to 8; 0 compiles in the foreground.
    pub threads: usize,
    /// Maximum number of queued compilations, up to 4096. A plan that finds the queue full keeps
    /// its generic kernels and tries again when it is executed.
    pub queue: usize,
}

impl Default for Background {
    /// One thread, 64 queued compilations.
    fn default() -> Self {
        Background { threads: 1, queue: 64 }
    }
}

impl FromStr for Background {
    type Err = Error;

    /// Reads `THREADS` or `THREADS:QUEUE`.
    fn from_str(text: &str) -> Result<Self> {
        let (threads, queue) = match text.split_once(':') {
            Some((threads, queue)) => (threads.parse().ok(), queue.parse().ok()),
            None => (text.parse().ok(), Some(Background::default().queue)),
        };
        match (threads, queue) {
            (Some(threads), Some(queue)) => Ok(Background { threads, queue }),
            _ => Err(Error::bad_param(format!(
                "malformed background `{text}`: expected THREADS or THREADS:QUEUE"
            ))),
        }
    }
}
