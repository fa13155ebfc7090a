//! Settings, read once at [`open`](crate::plan::Kiln::open).

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::cache::{BUDGET_BYTES, Pack, Remote, Trust, TrustRoot};
use crate::compile::{Search, variable};
use crate::device::{DeviceChoice, SimOptions};
use crate::engine::{Mode, Notes, Selection};
use crate::error::{Error, Result};
use crate::plan::report::BuildReport;

/// How a [`Kiln`](crate::plan::Kiln) is set up. A field that is `None` is taken from the
/// environment, and from its default where that says nothing.
///
/// | field | variable | default |
/// |---|---|---|
/// | `device` | `KILN_DEVICE`: `auto`, `sim[:TARGET]`, `cuda[:N]`, `null[:TARGET]` | `auto` |
/// | `cache_dir` | `KILN_CACHE_DIR`: a folder, or `off` | `$XDG_CACHE_HOME/kiln`, `~/.cache/kiln` |
/// | `cache_bytes` | `KILN_CACHE_BYTES`: the disk cache's budget | 1 GiB |
/// | `packs` | `KILN_PACKS`: files separated by colons, the first wins | none |
/// | `remote` | `KILN_REMOTE`: an address; `KILN_REMOTE_READ_ONLY`: 1; `KILN_REMOTE_MS` | none |
/// | `trust_roots` | `KILN_TRUST_ROOTS`: public keys separated by colons | no signature needed |
/// | `trust_version` | `KILN_TRUST_VERSION`: packs of an older version are refused | any |
/// | `trust_expiry` | `KILN_TRUST_EXPIRY`: 1 to refuse packs that never expire | any |
/// | `trust_all` | `KILN_TRUST_ALL`: 1 to run signed packs and what is compiled here only | no |
/// | `no_jit` | `KILN_NO_JIT`: 1 to fail rather than compile | compile |
/// | `heuristic` | `KILN_HEURISTIC`: `a`, `b` or `fallback` | `a` |
/// | `without` | `KILN_WITHOUT`: notes that exclude a setting, separated by commas | none |
/// | `allow_spills` | `KILN_ALLOW_SPILLS`: 0 to refuse settings that spill | run them, warn |
/// | `background` | `KILN_BACKGROUND`: `THREADS` or `THREADS:QUEUE` | compile in the foreground |
/// | `record` | `KILN_RECORD`: a manifest that what is planned is added to | nothing is recorded |
/// | `sanitize` | `KILN_SANITIZE`: 1 to check launches on the simulator | no checks |
/// | `count` | none: counts are asked for | no counts |
/// | `ptx_only` | `KILN_PTX_ONLY`: 1 to assemble nothing for the simulator | cubin and PTX |
/// | `dump` | `KILN_DUMP`: a folder | no dumps |
/// | `dump_filter` | `KILN_DUMP_FILTER`: part of a stem, or the start of a key | every kernel |
/// | `dump_tensors` | `KILN_DUMP_TENSORS`: 1 to dump what first launches run on | no tensors |
/// | `dump_tensor_bytes` | `KILN_DUMP_TENSOR_BYTES`: the most to capture of a launch | 256 MiB |
/// | `overrides` | `KILN_OVERRIDES`: a folder of kernels that stand in for generated ones | none |
/// | `nvrtc` | `KILN_NVRTC`: the library or its folder | searched for |
/// | `templates` | `KILN_TEMPLATES`: a folder laid out as `templates/` | embedded |
///
/// These are all the variables the library reads for itself; where NVRTC is looked for is said at
/// [`locate`](crate::compile::locate). A program with more rights than who started it (setuid) sees
/// none of them ([`variable`]). The command line tool also reads `KILN_LOG` or
/// else `RUST_LOG`, a filter for log messages such as `kiln=debug`, and `KILN_TRACE`, a file for
/// the spans of a run.
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

/// The default of [`Config::dump_tensor_bytes`].
const DUMP_TENSOR_BYTES: u64 = 256 << 20;

/// Which kernels are dumped as they are planned, and where to.
#[derive(Debug, Clone)]
pub(super) struct Dumping {
    pub(super) folder: PathBuf,
    /// Part of a stem or the start of a key.
    pub(super) filter: String,
    /// The most bytes of tensors to capture; `None`: none.
    pub(super) tensor_bytes_max: Option<u64>,
}

impl Dumping {
    pub(super) fn wants(&self, report: &BuildReport) -> bool {
        let filter = self.filter.as_str();
        report.stem.contains(filter) || report.key.to_hex().starts_with(filter)
    }
}

/// A [`Config`] with every choice made.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) device: DeviceChoice,
    pub(super) sim: SimOptions,
    pub(super) ptx_only: bool,
    /// `None`: no disk cache wanted, or no place for one.
    pub(super) cache_dir: Option<PathBuf>,
    pub(super) cache_bytes: u64,
    pub(super) packs: Vec<Pack>,
    pub(super) trust: Trust,
    pub(super) remote: Option<Remote>,
    pub(super) no_jit: bool,
    pub(super) selection: Selection,
    pub(super) allow_spills: bool,
    pub(super) background: Option<Background>,
    pub(super) record: Option<PathBuf>,
    pub(super) dump: Option<Dumping>,
    pub(super) overrides: Option<PathBuf>,
    pub(super) search: Search,
    pub(super) templates: Option<PathBuf>,
}

impl Config {
    /// The folder of the disk cache that [`open`](crate::plan::Kiln::open) would use and create;
    /// `None` where there is none.
    ///
    /// # Errors
    /// `BadParam` as for `open`.
    pub fn cache_folder(&self) -> Result<Option<PathBuf>> {
        Ok(self.resolve()?.cache_dir)
    }

    pub(super) fn resolve(&self) -> Result<Resolved> {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let device = match (&self.device, text("KILN_DEVICE")?) {
            (Some(device), _) => device.clone(),
            (None, Some(text)) => {
                text.parse().map_err(|error: Error| error.context("environment KILN_DEVICE"))?
            }
            (None, None) => DeviceChoice::Auto,
        };
        let cache_dir = match (&self.cache_dir, path("KILN_CACHE_DIR")) {
            _ if self.no_disk_cache => None,
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(folder)) if folder.as_os_str() == "off" => None,
            (None, Some(folder)) => Some(folder),
            (None, None) => default_cache_dir(),
        };
        let cache_bytes = match self.cache_bytes {
            Some(bytes) => bytes,
            None => number("KILN_CACHE_BYTES", "a number of bytes")?.unwrap_or(BUDGET_BYTES),
        };
        let packs = match (&self.packs, variable("KILN_PACKS")) {
            (Some(packs), _) => packs.clone(),
            (None, Some(paths)) => env::split_paths(&paths)
                .filter(|path| !path.as_os_str().is_empty())
                .map(|path| Pack::open(&path))
                .collect::<Result<_>>()
                .map_err(|error| error.context("environment KILN_PACKS"))?,
            (None, None) => Vec::new(),
        };
        let trust = self.trust()?;
        packs.iter().try_for_each(|pack: &Pack| pack.require_trust(&trust))?;
        let background = match (self.background, text("KILN_BACKGROUND")?) {
            (Some(background), _) => Some(background),
            (None, Some(text)) => Some(
                text.parse()
                    .map_err(|error: Error| error.context("environment KILN_BACKGROUND"))?,
            ),
            (None, None) => None,
        };
        let mode = match (self.heuristic, text("KILN_HEURISTIC")?) {
            (Some(mode), _) => mode,
            (None, Some(text)) => {
                text.parse().map_err(|error: Error| error.context("environment KILN_HEURISTIC"))?
            }
            (None, None) => Mode::default(),
        };
        let without = match (&self.without, text("KILN_WITHOUT")?) {
            (Some(notes), _) => notes.clone(),
            (None, text) => text
                .unwrap_or_default()
                .parse()
                .map_err(|error: Error| error.context("environment KILN_WITHOUT"))?,
        };
        let allow_spills = match self.allow_spills {
            Some(allowed) => allowed,
            None => text("KILN_ALLOW_SPILLS")?.is_none() || switch("KILN_ALLOW_SPILLS")?,
        };
        let no_jit = self.no_jit.map_or_else(|| switch("KILN_NO_JIT"), Ok)?;
        let sanitize = self.sanitize.map_or_else(|| switch("KILN_SANITIZE"), Ok)?;
        self.signed_only(Resolved {
            trust,
            device,
            sim: SimOptions { sanitize, count: self.count },
            ptx_only: self.ptx_only.map_or_else(|| switch("KILN_PTX_ONLY"), Ok)?,
            cache_dir,
            cache_bytes,
            packs,
            remote: match &self.remote {
                Some(remote) => Some(remote.clone()),
                None if self.no_disk_cache => None,
                None => remote_of_environment()?,
            },
            no_jit,
            selection: Selection { mode, without },
            allow_spills,
            background: background.filter(|background| background.threads > 0),
            record: self
                .record
                .clone()
                .or_else(|| path("KILN_RECORD"))
                .filter(|path| !path.as_os_str().is_empty()),
            dump: self
                .dump
                .clone()
                .or_else(|| path("KILN_DUMP"))
                .map(|folder| self.dumping(folder))
                .transpose()?,
            overrides: self.overrides.clone().or_else(|| path("KILN_OVERRIDES")),
            search: Search { configured: self.nvrtc.clone(), environment: path("KILN_NVRTC") },
            templates: self.templates.clone().or_else(|| path("KILN_TEMPLATES")),
        })
    }

    /// Whom to trust. What is meant to turn signatures on never turns them off.
    fn trust(&self) -> Result<Trust> {
        let roots = match (&self.trust_roots, text("KILN_TRUST_ROOTS")?) {
            (Some(roots), _) => roots.clone(),
            (None, Some(text)) => text
                .split(':')
                .map(TrustRoot::from_hex)
                .collect::<Result<_>>()
                .map_err(|error| error.context("environment KILN_TRUST_ROOTS"))?,
            (None, None) => Vec::new(),
        };
        let version = number("KILN_TRUST_VERSION", "a version");
        let version_min = self.trust_version.map_or_else(|| version, |it| Ok(Some(it)))?;
        let expiry = self.trust_expiry.map_or_else(|| switch("KILN_TRUST_EXPIRY"), Ok)?;
        if roots.is_empty() && (version_min.is_some_and(|it| it > 0) || expiry) {
            let text = "a version or an expiry is required of packs, but no trust root is set";
            return Err(Error::bad_param(text));
        }
        Ok(Trust { roots, version_min: version_min.unwrap_or(0), expiry })
    }

    /// Leaves out, or refuses, everything that no trust root can have signed, where that is asked.
    fn signed_only(&self, resolved: Resolved) -> Result<Resolved> {
        if !self.trust_all.map_or_else(|| switch("KILN_TRUST_ALL"), Ok)? {
            return Ok(resolved);
        }
        let refuse = |what: &str| {
            let text = format!("only signed code is to be run (KILN_TRUST_ALL): {what}");
            Err(Error::bad_param(text))
        };
        match &resolved {
            Resolved { trust, .. } if !trust.is_required() => refuse("no trust root is set"),
            Resolved { remote: Some(_), .. } => refuse("what a remote store has is not signed"),
            Resolved { overrides: Some(_), .. } => refuse("overrides are not signed"),
            Resolved { templates: Some(_), .. } => refuse("a folder of templates is not signed"),
            _ => Ok(Resolved { cache_dir: None, ..resolved }),
        }
    }

    fn dumping(&self, folder: PathBuf) -> Result<Dumping> {
        let filter = match &self.dump_filter {
            Some(filter) => Some(filter.clone()),
            None => text("KILN_DUMP_FILTER")?,
        };
        let tensors = self.dump_tensors.map_or_else(|| switch("KILN_DUMP_TENSORS"), Ok)?;
        let bytes_max = match self.dump_tensor_bytes {
            Some(bytes) => bytes,
            None => {
                number("KILN_DUMP_TENSOR_BYTES", "a number of bytes")?.unwrap_or(DUMP_TENSOR_BYTES)
            }
        };
        Ok(Dumping {
            folder,
            filter: filter.unwrap_or_default(),
            tensor_bytes_max: tensors.then_some(bytes_max),
        })
    }
}

/// A variable that is set and not empty. One that is no text is an error: to take it for unset
/// would turn off what it asks for, signatures among others.
fn text(name: &str) -> Result<Option<String>> {
    let not_text = |_| Error::bad_param(format!("environment {name}: the value is not UTF-8"));
    variable(name).map(|value| value.into_string().map_err(not_text)).transpose()
}

/// A variable that is 1 or 0, 0 when it is not set.
fn switch(name: &str) -> Result<bool> {
    match text(name)?.as_deref() {
        Some("1") => Ok(true),
        Some("0") | None => Ok(false),
        Some(text) => {
            Err(Error::bad_param(format!("environment {name}: `{text}` is neither 0 nor 1")))
        }
    }
}

/// A variable that is a number, in words.
fn number(name: &str, units: &str) -> Result<Option<u64>> {
    let Some(text) = text(name)? else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| Error::bad_param(format!("environment {name}: `{text}` is not {units}")))
}

fn remote_of_environment() -> Result<Option<Remote>> {
    let Some(uri) = text("KILN_REMOTE")? else { return Ok(None) };
    let mut remote = Remote::new(uri);
    remote.read_only = switch("KILN_REMOTE_READ_ONLY")?;
    if let Some(ms) = number("KILN_REMOTE_MS", "a number of milliseconds")? {
        remote.timeout = Duration::from_millis(ms);
    }
    Ok(Some(remote))
}

fn default_cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let found = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|folder| folder.join("kiln"));
    if found.is_none() {
        tracing::warn!("neither XDG_CACHE_HOME nor HOME is set; caching in memory only");
    }
    found
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
