//! Settings of a Kiln, as a program gives them.

use std::path::PathBuf;
use std::str::FromStr;

use crate::cache::{Pack, Remote, TrustRoot};
use crate::device::DeviceChoice;
use crate::engine::{Mode, Notes};
use crate::error::{Error, Result};

/// How a [`Kiln`](crate::plan::Kiln) is set up. A field that is `None` is taken from the
/// environment ([`VARIABLES`](crate::plan::VARIABLES)), and from its default where that says
/// nothing. A program with more rights than who started it (setuid) sees no variables
/// ([`variable`](crate::compile::variable)).
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The device to run on.
    pub device: Option<DeviceChoice>,
    /// The folder of the disk cache.
    pub cache_dir: Option<PathBuf>,
    /// The size the disk cache is kept within, in bytes.
    pub cache_bytes: Option<u64>,
    /// Packs of prebuilt kernels, searched in this order and before the disk cache.
    pub packs: Option<Vec<Pack>>,
    /// A store that several machines share, asked after the disk cache; needs the cargo feature
    /// `remote`.
    pub remote: Option<Remote>,
    /// Public keys: where there is one, packs that none of them has signed are refused.
    pub trust_roots: Option<Vec<TrustRoot>>,
    /// The least version of a pack, where there are trust roots.
    pub trust_version: Option<u64>,
    /// Where there are trust roots: refuse packs that never expire.
    pub trust_expiry: Option<bool>,
    /// Run only what a trust root has signed, or what is compiled here from the embedded templates:
    /// there is no disk cache, and a remote store, overrides and a folder of templates are refused.
    pub trust_all: Option<bool>,
    /// Strict mode: fail with the missing key and its explanation instead of compiling.
    pub no_jit: Option<bool>,
    /// How engines and knobs are chosen where none has been tuned.
    pub heuristic: Option<Mode>,
    /// Settings with one of these notes are not used.
    pub without: Option<Notes>,
    /// Run a setting that was asked for even where its kernels spill registers, with a warning.
    pub allow_spills: Option<bool>,
    /// Serve a graph at once with a more general kernel that has been built, if there is one,
    /// while its own is compiled; not in strict mode.
    pub background: Option<Background>,
    /// A manifest that every problem planned is added to, for `kiln warm` and `kiln pack build`. An
    /// empty path: none.
    pub record: Option<PathBuf>,
    /// A folder that every planned kernel is dumped to, one folder each.
    pub dump: Option<PathBuf>,
    /// Dump only kernels whose stem holds this text or whose key starts with it.
    pub dump_filter: Option<String>,
    /// Also dump the tensors of every plan's first launch, which then waits for its stream.
    pub dump_tensors: Option<bool>,
    /// The most bytes of tensors to capture of one launch; larger ones are left out.
    pub dump_tensor_bytes: Option<u64>,
    /// A folder of edited dumps, sources and PTX that stand in for generated kernels: see
    /// `docs/dump-and-replay.md`.
    pub overrides: Option<PathBuf>,
    /// On the simulator: fail a launch that races, reads what nobody wrote or divides a barrier.
    pub sanitize: Option<bool>,
    /// On the simulator: count what launches execute ([`Device::report`](crate::device::Device)).
    pub count: bool,
    /// On the simulator: compile to PTX, which is all it runs, and assemble no cubin, which takes
    /// two fifths of the time. Registers and spills are unknown then: no setting is passed over for
    /// spilling, and a resident grid is that of a kernel with the most registers there are. What
    /// is warmed or packed for a GPU is assembled all the same.
    pub ptx_only: Option<bool>,
    /// Keep compiled kernels in memory only: no disk cache, nor the remote of the environment.
    pub no_disk_cache: bool,
    /// The NVRTC library or the folder it is in.
    pub nvrtc: Option<PathBuf>,
    /// A folder of templates to use instead of the embedded ones.
    pub templates: Option<PathBuf>,
}

/// Compiling in the background ([`Config::background`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Background {
    /// Threads that compile, up to 8; 0 compiles in the foreground.
    pub threads: usize,
    /// Compilations that wait at most, up to 4096. A plan that finds the queue full keeps its
    /// general kernel and asks again when it is executed.
    pub queue: usize,
}

impl Default for Background {
    /// One thread, 64 waiting compilations.
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
